/* test_plan_snapshots.c - plans held still: what the planner makes of a model, a mesh and a pass, to the byte. A change
 * here is no fault; it is to be meant. tests/golden/plans.txt has a line a plan; after a change that is meant,
 *
 *   CLV_RENEW_PLANS=1 ctest --test-dir build -R test_plan_snapshots
 *
 * writes it anew, and its diff tells which plans move more, in more steps, or need more memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "models/config/model_config.h"
#include "program/program.h"
#include "unit_test.h"

/* ---- models ---- */

static const clv_model_config llama_small = {.family = &clv_family_llama,
                                             .hidden = 128,
                                             .layers = 2,
                                             .heads = 8,
                                             .kv_heads = 8,
                                             .head_dim = 16,
                                             .ffn = 344,
                                             .vocab = 512,
                                             .max_positions = 4096,
                                             .norm_eps = 1e-5,
                                             .rope.theta = 1e4,
                                             .activation = CLV_SILU};

static const clv_model_config gpt2 = {.family = &clv_family_gpt2,
                                      .hidden = 768,
                                      .layers = 2,
                                      .heads = 12,
                                      .kv_heads = 12,
                                      .head_dim = 64,
                                      .ffn = 3072,
                                      .vocab = 50257,
                                      .max_positions = 1024,
                                      .norm_eps = 1e-5,
                                      .activation = CLV_GELU_TANH,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .tie_word_embeddings = true};

static const clv_model_config esm_15b = {.family = &clv_family_esm,
                                         .hidden = 5120,
                                         .layers = 2,
                                         .heads = 40,
                                         .kv_heads = 40,
                                         .head_dim = 128,
                                         .ffn = 20480,
                                         .vocab = 33,
                                         .max_positions = 1026,
                                         .norm_eps = 1e-5,
                                         .activation = CLV_GELU,
                                         .qkv_bias = true,
                                         .output_bias = true,
                                         .mlp_bias = true,
                                         .rope.theta = 1e4,
                                         .bidirectional = true,
                                         .tie_word_embeddings = true,
                                         .token_dropout = true,
                                         .mask = 32};

static const clv_model_config bert_base = {.family = &clv_family_bert,
                                           .hidden = 768,
                                           .layers = 2,
                                           .heads = 12,
                                           .kv_heads = 12,
                                           .head_dim = 64,
                                           .ffn = 3072,
                                           .vocab = 30522,
                                           .max_positions = 512,
                                           .norm_eps = 1e-12,
                                           .activation = CLV_GELU,
                                           .qkv_bias = true,
                                           .output_bias = true,
                                           .mlp_bias = true,
                                           .bidirectional = true,
                                           .token_types = 2,
                                           .tie_word_embeddings = true};

/* The small Llama with other heads. */
static clv_model_config heads(int64_t n, int64_t kv, int64_t head_dim)
{
    clv_model_config model = llama_small;
    model.heads = n;
    model.kv_heads = kv;
    model.head_dim = head_dim;
    model.hidden = n * head_dim;
    return model;
}

/* Nothing divides anything. */
static clv_model_config odd(void)
{
    clv_model_config model = heads(7, 7, 6);
    model.ffn = 113;
    model.vocab = 257;
    return model;
}

/* Wider, so that gradients of weights are smaller than those of activations. */
static clv_model_config wide(void)
{
    clv_model_config model = heads(16, 2, 32);
    model.ffn = 2048;
    return model;
}

static clv_model_config llama_7b(void)
{
    clv_model_config model = heads(32, 32, 128);
    model.ffn = 11008;
    model.vocab = 32000;
    return model;
}

static clv_model_config llama_8b(void)
{
    clv_model_config model = heads(32, 8, 128);
    model.layers = 4;
    model.ffn = 14336;
    model.vocab = 128256;
    return model;
}

static clv_model_config qwen_half_b(void)
{
    clv_model_config model = heads(14, 2, 64);
    model.family = &clv_family_qwen2;
    model.ffn = 4864;
    model.vocab = 151936;
    model.qkv_bias = model.tie_word_embeddings = true;
    return model;
}

static clv_model_config windowed(void)
{
    clv_model_config model = heads(8, 2, 16);
    model.family = &clv_family_mistral;
    model.window = 64;
    model.windowed[0] = 3;
    return model;
}

/* ---- plans ---- */

typedef enum pass { TRAIN, RESHARD, PREFILL, DECODE } pass;
static const char *const pass_names[] = {"train", "reshard_after_forward", "prefill", "decode"};

typedef struct plan {
    const char *mesh, *rules;
    pass pass;
    int batch, seq;
    clv_dtype dtype;
} plan;

typedef struct subject {
    const char *name;
    clv_model_config model;
    const plan *plans; /* ended by a NULL mesh */
} subject;

/* Weights are split over the axis that splits the width of activations: their products contract in place. */
static const char width_on_one_axis[] = "{\"rules\": [[\"heads\", \"Y\"], [\"kv_heads\", \"Y\"], [\"mlp\", \"Y\"], "
                                        "[\"embed\", \"X\"], [\"embed_kernel\", \"X\"]]}";

static const plan small_plans[] = {{"model=1", "megatron", TRAIN, 4, 32, CLV_F32},
                                   {"model=2", "megatron", TRAIN, 4, 32, CLV_F32},
                                   {"model=4", "megatron-sp", TRAIN, 4, 32, CLV_F32},
                                   {"model=4", "megatron-sp", RESHARD, 4, 32, CLV_F32},
                                   {"model=3", "megatron-sp", TRAIN, 4, 32, CLV_F32},
                                   {"model=4", "megatron", PREFILL, 4, 32, CLV_F32},
                                   {"model=4", "megatron", DECODE, 4, 32, CLV_F32},
                                   {"data=2,model=2", "fsdp+megatron-sp", TRAIN, 4, 32, CLV_F32},
                                   {"data=4", "fsdp", TRAIN, 4, 32, CLV_F32},
                                   {"data=2,model=2", "zero1", TRAIN, 4, 32, CLV_F32},
                                   {"X=2,Y=2", "gspmd-2d", TRAIN, 4, 32, CLV_F32},
                                   {"X=2,Y=4", "gspmd-2d", DECODE, 4, 32, CLV_F32},
                                   {"X=2,Y=2", width_on_one_axis, TRAIN, 4, 32, CLV_F32},
                                   {0}};
static const plan shared_head_plans[] = {
    {"model=4", "megatron", TRAIN, 4, 32, CLV_F32},       {"model=8", "megatron-sp", TRAIN, 4, 32, CLV_F32},
    {"model=8", "megatron-sp", RESHARD, 4, 32, CLV_BF16}, {"model=8", "megatron", PREFILL, 4, 32, CLV_F32},
    {"model=8", "megatron", DECODE, 4, 512, CLV_F32},     {"data=2,model=4", "fsdp+megatron-sp", TRAIN, 4, 32, CLV_F32},
    {"X=2,Y=4", "gspmd-2d", TRAIN, 4, 32, CLV_F32},       {0}};
static const plan wide_plans[] = {
    {"X=8,Y=1", "gspmd-2d", TRAIN, 8, 128, CLV_F32}, {"data=8", "fsdp", RESHARD, 8, 128, CLV_F32}, {0}};
static const plan uneven_plans[] = {{"model=6", "megatron-sp", TRAIN, 3, 17, CLV_F32},
                                    {"model=6", "megatron", DECODE, 3, 17, CLV_F32},
                                    {"X=2,Y=3", "gspmd-2d", TRAIN, 3, 17, CLV_F32},
                                    {"data=5", "dp", TRAIN, 3, 17, CLV_F32},
                                    {0}};
static const plan encoder_plans[] = {{"model=4", "megatron-sp", TRAIN, 8, 128, CLV_F32},
                                     {"X=2,Y=4", "gspmd-2d", PREFILL, 8, 128, CLV_BF16},
                                     {"X=2,Y=4", "gspmd-2d", RESHARD, 8, 128, CLV_F32},
                                     {0}};
static const plan gpt2_plans[] = {
    {"data=2,model=4", "zero1", TRAIN, 8, 128, CLV_BF16}, {"model=12", "megatron", DECODE, 8, 1024, CLV_F32}, {0}};
static const plan large_plans[] = {{"data=8,model=8", "fsdp+megatron-sp", TRAIN, 64, 4096, CLV_BF16},
                                   {"data=256,model=12", "megatron-sp", TRAIN, 512, 1024, CLV_BF16},
                                   {"model=8", "megatron", PREFILL, 1, 4096, CLV_BF16},
                                   {0}};
static const plan decode_plans[] = {{"model=16", "megatron", DECODE, 8, 128, CLV_BF16},
                                    {"model=16", "megatron", DECODE, 8, 4096, CLV_BF16},
                                    {"data=2,model=16", "megatron-sp", TRAIN, 8, 1024, CLV_BF16},
                                    {0}};

/* A preset, or the text of a file of rules. */
static clv_axis_rules rules_of(clv_graph *graph, const char *text)
{
    clv_error err = {0};
    clv_axis_rules rules;
    if (text[0] != '{')
        return clv_graph_axis_rules(graph, text);
    if (clv_axis_rules_parse(&rules, text, strlen(text), clv_graph_mesh(graph), "rules", &err) != CLV_OK)
        fail_msg("%s", err.message);
    return rules;
}

static clv_program *compile(const clv_model_config *model, const plan *p)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph = NULL;
    clv_program *program;
    clv_model_build_options build = {.batch = p->batch, .seq = p->seq, .dtype = p->dtype};
    bool trains = p->pass == TRAIN || p->pass == RESHARD;
    if (clv_mesh_parse(&mesh, p->mesh, &err) != CLV_OK || clv_graph_new(&graph, &mesh, &err) != CLV_OK)
        fail_msg("%s: %s", p->mesh, err.message);
    build.rules = rules_of(graph, p->rules);
    if (trains) {
        clv_build_train_step(graph, model, &build, &(clv_update_options){.adamw = &(clv_adamw_options){0}}, false);
    } else {
        build.rules = clv_axis_rules_without(&build.rules, CLV_SEQ);
        build.context = model->bidirectional ? 0 : p->seq;
        build.seq = p->pass == DECODE ? 1 : p->seq;
        build.last_logits = !model->bidirectional;
        clv_build_inference(graph, model, &build);
    }
    if (clv_compile(
            &program, graph,
            &(clv_compile_options){.reshard_after_forward = p->pass == RESHARD ? CLV_RESHARD_ALL : CLV_RESHARD_WEIGHTS},
            &err) != CLV_OK)
        fail_msg("%s on %s: %s", pass_names[p->pass], p->mesh, err.message);
    clv_graph_free(graph);
    return program;
}

/* ---- a line a plan ---- */

static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                    "permute",    "exchange",       "slice",      "mask"};
enum { N_KINDS = sizeof kinds / sizeof kinds[0], FIRST_FREE = 6, LINE = 512, MAX_LINES = 96 };

typedef char line[LINE];

/* Bytes that a rank receives; steps that move (and how many of each kind), then those that move nothing; bytes of the
 * region, of state. */
static void describe(line out, const subject *s, const plan *p)
{
    int n[N_KINDS] = {0}, moves = 0;
    double bytes = 0;
    clv_program *program = compile(&s->model, p);
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        bytes += c.bytes;
        for (int k = 0; k < N_KINDS; k++)
            n[k] += strcmp(c.kind, kinds[k]) == 0;
    }
    for (int k = 0; k < FIRST_FREE; k++)
        moves += n[k];
    int used = snprintf(out, LINE, "%s, %s on %s by %s, %dx%d %s: %.2f bytes, %d moves", s->name, pass_names[p->pass],
                        p->mesh, p->rules, p->batch, p->seq, clv_dtype_name(p->dtype), bytes, moves);
    for (int k = 0; k < N_KINDS; k++)
        if (n[k] > 0)
            used += snprintf(out + used, LINE - (size_t)used, ", %d %s", n[k], kinds[k]);
    snprintf(out + used, LINE - (size_t)used, "; region %lld\n", (long long)clv_program_region_bytes(program));
    clv_program_free(program);
}

static const char *table_path(char path[512])
{
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, 512, "%s/tests/golden/plans.txt", source ? source : ".");
    return path;
}

static int describe_all(line *out)
{
    const subject subjects[] = {{"llama 8/8", llama_small, small_plans},
                                {"llama 16/2", heads(16, 2, 8), shared_head_plans},
                                {"llama 16/1", heads(16, 1, 8), shared_head_plans},
                                {"llama 16/2 of 512", wide(), wide_plans},
                                {"llama 12/4", heads(12, 4, 10), uneven_plans},
                                {"llama 7/7", odd(), uneven_plans},
                                {"mistral 8/2", windowed(), gpt2_plans},
                                {"gpt2", gpt2, gpt2_plans},
                                {"qwen2 0.5b", qwen_half_b(), gpt2_plans},
                                {"bert", bert_base, encoder_plans},
                                {"esm2 15b", esm_15b, encoder_plans},
                                {"llama 7b", llama_7b(), large_plans},
                                {"llama 8b", llama_8b(), decode_plans}};
    int n = 0;
    for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++)
        for (const plan *p = subjects[s].plans; p->mesh; p++) {
            assert_true(n < MAX_LINES);
            describe(out[n++], &subjects[s], p);
        }
    return n;
}

static void renew(line *made, int n, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++)
        fputs(made[i], file);
    assert_int_equal(fclose(file), 0);
    print_message("wrote %d plans to %s\n", n, path);
}

static void test_plans(void **state)
{
    static line made[MAX_LINES], held;
    char path[512];
    int n = describe_all(made), differ = 0;
    if (getenv("CLV_RENEW_PLANS")) {
        renew(made, n, table_path(path));
        return;
    }
    FILE *file = fopen(table_path(path), "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    for (int i = 0; i <= n; i++) {
        const char *want = fgets(held, LINE, file), *got = i < n ? made[i] : NULL;
        if ((!want && !got) || (want && got && strcmp(want, got) == 0))
            continue;
        print_error("held: %smade: %s", want ? want : "nothing\n", got ? got : "nothing\n");
        differ++;
    }
    fclose(file);
    if (differ > 0)
        fail_msg("%d plans are not as %s holds them; if that is meant, renew it by CLV_RENEW_PLANS=1", differ, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
