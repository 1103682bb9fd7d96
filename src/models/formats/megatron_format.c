/* megatron_format.c - layouts as flags of Megatron-LM, and rules from flags. */
#include <stdio.h>

#include "models/formats/formats.h"

/* ---- writing ---- */

static int64_t axis_size(const clv_mesh *mesh, const char *name)
{
    int axis;
    return clv_mesh_find(&axis, mesh, name, NULL) == CLV_OK ? mesh->axis[axis].size : 1;
}

static clv_status divides(const char *what, int64_t n, int64_t by, const char *ranks, clv_error *err)
{
    if (n % by == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EUNSUPPORTED, "Megatron has no such layout: %s %lld over %lld %s is uneven", what,
                    (long long)n, (long long)by, ranks);
}

/* What Megatron's arguments assert. */
static clv_status check_sizes(const clv_model_info *info, const clv_format_roles *roles, int64_t tp, int64_t seq,
                              const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(divides("heads", info->heads, tp, "ranks of tensor parallelism", err));
    CLV_TRY(divides("KV heads", info->kv_heads, tp, "ranks of tensor parallelism", err));
    if (info->ffn > 0)
        CLV_TRY(divides("feed-forward width", info->ffn, tp, "ranks of tensor parallelism", err));
    if (roles->sequence)
        CLV_TRY(divides("the sequence of", seq, tp, "ranks of sequence parallelism", err));
    CLV_TRY(divides("layers", info->layers, axis_size(mesh, "pipe"), "stages", err));
    if (info->experts > 0)
        CLV_TRY(divides("experts", info->experts, axis_size(mesh, "expert"), "ranks of expert parallelism", err));
    if (tp > 1 && !roles->vocab)
        return clv_fail(
            err, CLV_EUNSUPPORTED,
            "Megatron has no such layout: the vocabulary is whole, which Megatron always splits; add a rule "
            "for vocab");
    return CLV_OK;
}

static void put_flags(FILE *to, const clv_plan_options *plan, const clv_format_roles *roles, int64_t tp, int64_t dp)
{
    const int64_t parts = plan->accumulate > 1 ? plan->accumulate : 1,
                  batch = plan->batch ? plan->batch : CLV_PLAN_BATCH, pipe = axis_size(plan->mesh, "pipe"),
                  context = axis_size(plan->mesh, "context"), expert = axis_size(plan->mesh, "expert");
    fprintf(to, "--world-size %lld\n", (long long)clv_mesh_rank_count(plan->mesh));
    fprintf(to, "--tensor-model-parallel-size %lld\n", (long long)tp);
    if (roles->sequence)
        fputs("--sequence-parallel\n", to);
    if (pipe > 1)
        fprintf(to, "--pipeline-model-parallel-size %lld\n", (long long)pipe);
    if (context > 1)
        fprintf(to, "--context-parallel-size %lld\n", (long long)context);
    if (expert > 1)
        fprintf(to, "--expert-model-parallel-size %lld\n", (long long)expert);
    if (roles->shard >= 0)
        fputs(roles->gathers ? "--use-megatron-fsdp\n--data-parallel-sharding-strategy optim_grads_params\n"
                             : "--use-distributed-optimizer\n",
              to);
    fprintf(to, "--micro-batch-size %lld\n--global-batch-size %lld\n--seq-length %lld\n",
            (long long)(batch / (parts * dp)), (long long)batch, (long long)(plan->seq ? plan->seq : CLV_PLAN_SEQ));
    if (plan->compile.recompute == CLV_RECOMPUTE_FULL)
        fputs("--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n", to);
    if (plan->compile.recompute == CLV_RECOMPUTE_SELECTIVE)
        fputs("--recompute-granularity selective\n", to);
    if (plan->dtype == CLV_BF16 || plan->dtype == CLV_F16)
        fputs(plan->dtype == CLV_BF16 ? "--bf16\n" : "--fp16\n", to);
}

clv_status clv_megatron_write(char **out, const clv_format_input *in, clv_error *err)
{
    const clv_plan_options *plan = in->plan;
    const int64_t parts = plan->accumulate > 1 ? plan->accumulate : 1;
    clv_model_info info = {.size = sizeof info};
    clv_format_roles roles;
    char *text = NULL;
    size_t size = 0;
    CLV_TRY(clv_model_get_info(in->model->model, &info, err));
    CLV_TRY(clv_format_roles_of(&roles, plan->rules, plan->mesh, "Megatron", err));
    if (roles.shard >= 0 && roles.replicate >= 0)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "Megatron has no such layout: '%s' replicates what '%s' splits; valid: one axis of data "
                        "parallelism",
                        plan->mesh->axis[roles.replicate].name, plan->mesh->axis[roles.shard].name);
    const int64_t tp = roles.tensor >= 0 ? plan->mesh->axis[roles.tensor].size : 1;
    const int data = roles.shard >= 0 ? roles.shard : roles.replicate;
    const int64_t dp = (data >= 0 ? plan->mesh->axis[data].size : 1) * axis_size(plan->mesh, "expert");
    CLV_TRY(check_sizes(&info, &roles, tp, plan->seq ? plan->seq : CLV_PLAN_SEQ, plan->mesh, err));
    CLV_TRY(divides("the batch of", plan->batch ? plan->batch : CLV_PLAN_BATCH, parts * dp,
                    "microbatches of data-parallel ranks", err));
    FILE *to = open_memstream(&text, &size);
    if (to)
        put_flags(to, plan, &roles, tp, dp);
    if (!to || fclose(to) != 0)
        return clv_fail_memory(err, "a layout's text", size);
    *out = text;
    return CLV_OK;
}

/* ---- reading ---- */

typedef struct flags {
    int64_t tp, pp, cp, ep, world, nodes, per_node, micro, batch, seq, virtual_stages, recompute_layers;
    bool sequence, distributed, megatron_fsdp, torch_fsdp, selective, bf16, fp16;
    const char *granularity, *method, *strategy, *layers_per_stage;
} flags;

typedef enum value_kind { WHOLE, SWITCH, TEXT } value_kind;

static const struct {
    const char *name;
    value_kind kind;
    size_t offset;
} known[] = {
    {"--tensor-model-parallel-size", WHOLE, offsetof(flags, tp)},
    {"--pipeline-model-parallel-size", WHOLE, offsetof(flags, pp)},
    {"--context-parallel-size", WHOLE, offsetof(flags, cp)},
    {"--expert-model-parallel-size", WHOLE, offsetof(flags, ep)},
    {"--sequence-parallel", SWITCH, offsetof(flags, sequence)},
    {"--use-distributed-optimizer", SWITCH, offsetof(flags, distributed)},
    {"--use-megatron-fsdp", SWITCH, offsetof(flags, megatron_fsdp)},
    {"--use-torch-fsdp2", SWITCH, offsetof(flags, torch_fsdp)},
    {"--data-parallel-sharding-strategy", TEXT, offsetof(flags, strategy)},
    {"--num-virtual-stages-per-pipeline-rank", WHOLE, offsetof(flags, virtual_stages)},
    {"--world-size", WHOLE, offsetof(flags, world)}, /* torchrun's */
    {"--nnodes", WHOLE, offsetof(flags, nodes)},
    {"--nproc-per-node", WHOLE, offsetof(flags, per_node)},
    {"--nproc_per_node", WHOLE, offsetof(flags, per_node)},
    {"--micro-batch-size", WHOLE, offsetof(flags, micro)},
    {"--global-batch-size", WHOLE, offsetof(flags, batch)},
    {"--seq-length", WHOLE, offsetof(flags, seq)},
    {"--bf16", SWITCH, offsetof(flags, bf16)},
    {"--fp16", SWITCH, offsetof(flags, fp16)},
    {"--recompute-activations", SWITCH, offsetof(flags, selective)},
    {"--recompute-granularity", TEXT, offsetof(flags, granularity)},
    {"--recompute-method", TEXT, offsetof(flags, method)},
    {"--recompute-num-layers", WHOLE, offsetof(flags, recompute_layers)},
};

/* Flags that say where tensors are; others are passed over. */
static bool is_of_layout(const char *flag)
{
    static const char *const beginnings[] = {
        "--tensor-",   "--pipeline-", "--context-", "--expert-",  "--sequence-",
        "--recompute", "--data-",     "--decoder-", "--encoder-", "--num-layers-per-virtual"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(flag, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return strstr(flag, "fsdp") || strstr(flag, "distributed-optimizer") || strstr(flag, "parallel-size");
}

/* The next word; "=" ends a flag. NULL at the end. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\r\n\\=");
    if (!*word)
        return NULL;
    *at = word + strcspn(word, " \t\r\n\\=");
    if (**at)
        *(*at)++ = '\0';
    return word;
}

static clv_status read_value(flags *f, size_t i, char **at, clv_error *err)
{
    char *to = (char *)f + known[i].offset, *word, *end;
    if (known[i].kind == SWITCH) {
        *(bool *)to = true;
        return CLV_OK;
    }
    word = next_word(at);
    if (!word)
        return clv_fail(err, CLV_EFORMAT, "%s needs a value", known[i].name);
    if (known[i].kind == TEXT) {
        *(const char **)to = word;
        return CLV_OK;
    }
    const long long value = strtoll(word, &end, 10);
    if (*end || value < 1 || value > 1 << 30)
        return clv_fail(err, CLV_EFORMAT, "%s %.40s: a whole number of 1 or more is needed", known[i].name, word);
    *(int64_t *)to = value;
    return CLV_OK;
}

static clv_status read_flags(flags *f, char *text, clv_error *err)
{
    int n = 0;
    for (char *word; (word = next_word(&text)) != NULL;) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i].name, word) != 0)
            i++;
        n += i < sizeof known / sizeof *known;
        if (i < sizeof known / sizeof *known)
            CLV_TRY(read_value(f, i, &text, err));
        else if (strncmp(word, "--", 2) == 0 && is_of_layout(word))
            return clv_fail(err, CLV_EINVAL, "%.80s is not known; the flags of layouts that are: %s, %s, %s, ...", word,
                            known[0].name, known[1].name, known[2].name);
    }
    if (n == 0)
        return clv_fail(err, CLV_EFORMAT, "no flag says a layout; flags that do: %s, %s, %s, ...", known[0].name,
                        known[1].name, known[2].name);
    return CLV_OK;
}

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* The mesh of all flags, and that of the axes that rules name. */
static clv_status make_meshes(clv_mesh *whole, clv_mesh *ruled, const flags *f, int64_t *dp, clv_error *err)
{
    const int64_t inner = at_least_one(f->tp) * at_least_one(f->pp) * at_least_one(f->cp), ep = at_least_one(f->ep);
    const int64_t world = f->nodes || f->per_node ? at_least_one(f->nodes) * at_least_one(f->per_node)
                          : f->world              ? f->world
                                                  : inner * ep;
    if (world % inner != 0 || (world / inner) % ep != 0)
        return clv_fail(err, CLV_EINVAL,
                        "%lld ranks are no multiple of tensor %lld x pipeline %lld x context %lld (x expert %lld)",
                        (long long)world, (long long)at_least_one(f->tp), (long long)at_least_one(f->pp),
                        (long long)at_least_one(f->cp), (long long)ep);
    *dp = world / inner;
    const struct {
        const char *name;
        int64_t size;
        bool ruled;
    } axes[] = {{"pipe", f->pp, false},
                {"data", *dp / ep, true},
                {"context", f->cp, false},
                {"expert", ep, true},
                {"model", f->tp, true}};
    char text[2][CLV_MESH_TEXT] = {"", ""};
    for (int i = 0; i < 5; i++)
        for (int m = 0; m < 2; m++)
            if (axes[i].size > 1 && (m == 0 || axes[i].ruled)) {
                const size_t used = strlen(text[m]);
                snprintf(text[m] + used, sizeof text[m] - used, "%s%s=%lld", used ? "," : "", axes[i].name,
                         (long long)axes[i].size);
            }
    CLV_TRY(clv_mesh_parse(whole, text[0][0] ? text[0] : "model=1", err));
    return text[1][0] ? clv_mesh_parse(ruled, text[1], err) : CLV_OK;
}

static bool has_axis(const clv_mesh *mesh, const char *name)
{
    return axis_size(mesh, name) > 1;
}

/* The rules on the mesh of the axes that they name. */
static clv_status make_rules(clv_axis_rules *out, const flags *f, const clv_mesh *mesh, clv_error *err)
{
    const bool model = has_axis(mesh, "model"), data = has_axis(mesh, "data") || has_axis(mesh, "expert"),
               sp = f->sequence && model;
    const bool parameters = !f->strategy || strcmp(f->strategy, "optim_grads_params") == 0,
               fsdp = data && (f->torch_fsdp || (f->megatron_fsdp && parameters)),
               zero = data && !fsdp && (f->distributed || (f->megatron_fsdp && strcmp(f->strategy, "no_shard") != 0));
    if (fsdp && model && !sp) {
        clv_format_roles roles = {.replicate = -1, .gathers = true, .vocab = true};
        if (has_axis(mesh, "expert"))
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "experts beside FSDP and tensor parallelism without "
                            "--sequence-parallel have no rules; add it");
        CLV_TRY(clv_mesh_find(&roles.shard, mesh, "data", err));
        CLV_TRY(clv_mesh_find(&roles.tensor, mesh, "model", err));
        clv_format_rules_of_roles(out, &roles, mesh);
        return CLV_OK;
    }
    const char *preset = fsdp             ? sp ? "fsdp+megatron-sp" : "fsdp"
                         : zero           ? sp ? "zero1+megatron-sp" : "zero1"
                         : sp             ? "megatron-sp"
                         : data && !model ? "dp"
                                          : NULL;
    return clv_axis_rules_preset(out, preset, mesh, err);
}

/* The same axes, by name, of another mesh. */
static clv_status move_axes(int *axis, int n, const clv_mesh *to, const clv_mesh *from, clv_error *err)
{
    for (int i = 0; i < n; i++)
        CLV_TRY(clv_mesh_find(&axis[i], to, from->axis[axis[i]].name, err));
    return CLV_OK;
}

static clv_status read_recompute(clv_recompute *out, const flags *f, clv_error *err)
{
    *out = f->selective ? CLV_RECOMPUTE_SELECTIVE : CLV_RECOMPUTE_NONE;
    if (!f->granularity)
        return CLV_OK;
    if (strcmp(f->granularity, "selective") == 0)
        *out = CLV_RECOMPUTE_SELECTIVE;
    else if (strcmp(f->granularity, "full") == 0)
        *out = CLV_RECOMPUTE_FULL;
    else
        return clv_fail(err, CLV_EINVAL, "--recompute-granularity %.40s; valid: full, selective", f->granularity);
    if (*out == CLV_RECOMPUTE_FULL && ((f->method && strcmp(f->method, "uniform") != 0) || f->recompute_layers > 1))
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "full recomputation is of each layer here; valid: --recompute-method "
                        "uniform --recompute-num-layers 1");
    return CLV_OK;
}

clv_status clv_megatron_read(clv_read_layouts *out, const char *text, size_t size, clv_error *err)
{
    flags f = {0};
    clv_mesh ruled = {0};
    int64_t dp;
    CLV_FREED char *words = strndup(text, size);
    if (!words)
        return clv_fail_memory(err, "flags", size);
    CLV_TRY(read_flags(&f, words, err));
    clv_saved_plan *plan = &out->plan;
    CLV_TRY(make_meshes(&plan->mesh, &ruled, &f, &dp, err));
    if (ruled.n_axes > 0) /* else no rules are needed */
        CLV_TRY(make_rules(&plan->rules, &f, &ruled, err));
    for (int r = 0; r < plan->rules.n; r++)
        CLV_TRY(move_axes(plan->rules.rule[r].axis, plan->rules.rule[r].n_axes, &plan->mesh, &ruled, err));
    CLV_TRY(move_axes(plan->rules.optimizer, plan->rules.n_optimizer, &plan->mesh, &ruled, err));
    CLV_TRY(read_recompute(&plan->recompute, &f, err));
    plan->accumulate = 1;
    out->batch = f.batch ? f.batch : f.micro ? f.micro * dp : 0;
    if (f.batch && f.micro && f.batch % (f.micro * dp) != 0)
        return clv_fail(err, CLV_EINVAL,
                        "--global-batch-size %lld is no multiple of --micro-batch-size %lld x %lld "
                        "data-parallel ranks",
                        (long long)f.batch, (long long)f.micro, (long long)dp);
    if (f.batch && f.micro)
        plan->accumulate = f.batch / (f.micro * dp);
    out->seq = f.seq;
    out->virtual_stages = f.virtual_stages;
    out->dtype = f.bf16 ? CLV_BF16 : f.fp16 ? CLV_F16 : CLV_F32;
    return CLV_OK;
}
