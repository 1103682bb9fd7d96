/* plan_compile.c - clv_plan_compile: compiles a model or a single block for a mesh without weights or ranks. */
#include "models/plan/plan_internal.h"

#include <stddef.h>
#include <stdio.h>

#include "models/model.h"
#include "models/plan/axes/mesh_parts.h"
#include "nn/axis_rules.h"
#include "ops/builtin_ops.h"
#include "partition/partitioner.h"
#include "program/program.h"

/* ---- what is asked for ---- */

#define ALL_BLOCKS "ffn, attention, gpt, llama"

static const char *const block_names[] = {"none", "ffn", "attention", "gpt", "llama"};
enum { N_BLOCKS = sizeof block_names / sizeof *block_names };

const char *clv_plan_block_name(clv_plan_block block)
{
    return (unsigned)block < N_BLOCKS ? block_names[block] : "unknown";
}

clv_status clv_plan_block_parse(clv_plan_block *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and name", err));
    for (int i = CLV_PLAN_BLOCK_NONE + 1; i < N_BLOCKS; i++)
        if (strcmp(name, block_names[i]) == 0) {
            *out = (clv_plan_block)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "unknown block '%.40s'; valid: " ALL_BLOCKS, name);
}

static bool generates(const clv_plan_options *o)
{
    return o->mode == CLV_PLAN_MODE_PREFILL || o->mode == CLV_PLAN_MODE_DECODE;
}

static bool has_backward(const clv_plan_options *o)
{
    return o->model ? !generates(o) : o->mode == CLV_PLAN_MODE_GRAD;
}

static clv_status check_mode(const clv_plan_options *o, clv_error *err)
{
    if (!o->model == (o->block == CLV_PLAN_BLOCK_NONE))
        return clv_fail(err, CLV_EINVAL, "give either a model, by its folder or config.json, or a block: " ALL_BLOCKS);
    if (!o->model && o->mode > CLV_PLAN_MODE_GRAD)
        return clv_fail(err, CLV_EINVAL, "train, prefill and decode are for models; a block has forward, grad");
    if (o->model && (o->mode == CLV_PLAN_MODE_FORWARD || o->mode == CLV_PLAN_MODE_GRAD))
        return clv_fail(err, CLV_EINVAL, "forward and grad are for blocks; a model has train, prefill, decode");
    if (o->compile.reshard_after_forward && !has_backward(o))
        return clv_fail(err, CLV_EINVAL,
                        "reshard_after_forward is for a backward pass: grad of a block, train of a model");
    if (o->compile.recompute && !has_backward(o))
        return clv_fail(err, CLV_EINVAL, "recompute is for a backward pass: grad of a block, train of a model");
    if (o->lora && !o->model)
        return clv_fail(err, CLV_EINVAL, "lora is for a model; a block has no adapters");
    if (o->quant && (!o->model || !generates(o)))
        return clv_fail(err, CLV_EINVAL, "quant is for a model that generates; valid with prefill, decode");
    if (o->sp && o->rules)
        return clv_fail(err, CLV_EINVAL, "sp cannot be combined with rules");
    return CLV_OK;
}

enum {
    FFN = 1 << CLV_PLAN_BLOCK_FFN,
    ATTENTION = 1 << CLV_PLAN_BLOCK_ATTENTION,
    WHOLE = 1 << CLV_PLAN_BLOCK_GPT | 1 << CLV_PLAN_BLOCK_LLAMA
};

typedef struct size_option {
    const char *field;
    int64_t given, most;
    unsigned blocks; /* that have it; 0: it is not a block's, or not alone */
} size_option;

static clv_status fail_unused_size(const size_option *size, const clv_plan_options *o, clv_error *err)
{
    char blocks[64] = "";
    for (int i = 0, used = 0; i < N_BLOCKS; i++)
        if (size->blocks & 1U << i)
            used += snprintf(blocks + used, sizeof blocks - (size_t)used, "%s%s", used ? ", " : "", block_names[i]);
    if (o->model)
        return clv_fail(err, CLV_EINVAL, "%s is for a block (%s); a model is as its config.json says", size->field,
                        blocks);
    return clv_fail(err, CLV_EINVAL, "%s is for the blocks %s; %s has no use for it", size->field, blocks,
                    block_names[o->block]);
}

/* Numbers are in their range, and none is passed over where it says nothing. */
static clv_status check_sizes(const clv_plan_options *o, clv_error *err)
{
    const size_option sizes[] = {{"hidden", o->hidden, 1 << 24, FFN | ATTENTION | WHOLE},
                                 {"heads", o->heads, 1 << 20, ATTENTION | WHOLE},
                                 {"kv_heads", o->kv_heads, 1 << 20, ATTENTION | WHOLE},
                                 {"head_dim", o->head_dim, 1 << 20, ATTENTION | WHOLE},
                                 {"ffn", o->ffn, 1 << 26, FFN | WHOLE},
                                 {"bias", o->bias, 1, FFN | ATTENTION | WHOLE},
                                 {"batch", o->batch, 1 << 30, 0},
                                 {"seq", o->seq, 1 << 30, 0},
                                 {"max_implicit_bytes", o->compile.max_implicit_bytes, INT64_MAX, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].given < 0 || sizes[i].given > sizes[i].most)
            return clv_fail(err, CLV_EINVAL, "%s is %lld; valid: 0 (its default) to %lld", sizes[i].field,
                            (long long)sizes[i].given, (long long)sizes[i].most);
        if (sizes[i].given && sizes[i].blocks && !(sizes[i].blocks & 1U << o->block))
            return fail_unused_size(&sizes[i], o, err);
    }
    return CLV_OK;
}

static clv_status check_parts(const clv_plan_options *o, clv_error *err)
{
    const int64_t batch = o->batch ? o->batch : CLV_PLAN_BATCH;
    if ((o->dropout != 0 || o->attention_dropout != 0) && (!o->model || generates(o)))
        return clv_fail(err, CLV_EINVAL, "dropout is for a training step: train of a model");
    if (o->accumulate > 1 && (!o->model || generates(o)))
        return clv_fail(err, CLV_EINVAL, "accumulate is for a training step: train of a model");
    if (o->accumulate < 0 || (o->accumulate > 1 && batch % o->accumulate != 0))
        return clv_fail(err, CLV_EINVAL, "accumulate %lld does not divide the batch, %lld", (long long)o->accumulate,
                        (long long)batch);
    if (o->no_sync && o->accumulate <= 1)
        return clv_fail(err, CLV_EINVAL, "no_sync is for gradient accumulation; valid: with accumulate > 1");
    return CLV_OK;
}

static clv_status check(const clv_plan_options *o, clv_error *err)
{
    if ((unsigned)o->block >= N_BLOCKS || (unsigned)o->mode > CLV_PLAN_MODE_DECODE)
        return clv_fail(err, CLV_EINVAL, "block %d, mode %d; valid: those of clv_plan_block and clv_plan_mode",
                        (int)o->block, (int)o->mode);
    CLV_TRY(check_mode(o, err));
    if (!clv_dtype_is_float(o->dtype))
        return clv_fail(err, CLV_EDTYPE, "a plan of dtype %s; valid: f32, bf16, f64, f16", clv_dtype_name(o->dtype));
    CLV_TRY(check_parts(o, err));
    return check_sizes(o, err);
}

static void set_defaults(clv_plan_options *o)
{
    o->batch = o->batch ? o->batch : CLV_PLAN_BATCH;
    o->seq = o->seq ? o->seq : CLV_PLAN_SEQ;
    o->hidden = o->hidden ? o->hidden : CLV_PLAN_HIDDEN;
    o->heads = o->heads ? o->heads : CLV_PLAN_HEADS;
    o->kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    o->ffn = o->ffn ? o->ffn : 4 * o->hidden;
}

/* ---- a block ---- */

static clv_block_options block_options(const clv_plan_options *p)
{
    bool llama = p->block == CLV_PLAN_BLOCK_LLAMA;
    clv_block_options o = clv_block_defaults(llama ? CLV_BLOCK_LLAMA : CLV_BLOCK_GPT, p->heads, p->kv_heads, p->ffn);
    o.norm_bias = false;
    o.attention.head_dim = p->head_dim;
    o.attention.bias = o.attention.output_bias = o.mlp.bias = p->bias;
    o.mlp.activation = llama ? CLV_SILU : CLV_GELU;
    return o;
}

static clv_value block(clv_graph *graph, clv_value x, const clv_plan_options *p)
{
    clv_block_options o = block_options(p);
    if (p->block == CLV_PLAN_BLOCK_FFN)
        return clv_parallel_mlp(graph, x, p->rules, &o.mlp);
    if (p->block == CLV_PLAN_BLOCK_ATTENTION)
        return clv_parallel_attention(graph, x, p->rules, &o.attention);
    return clv_transformer_block(graph, x, p->rules, &o);
}

/* Gradients of the weights and of x, each in its own layout, for a cotangent in the layout of the output. */
static void add_block_gradients(clv_graph *graph, clv_value x, clv_value y, const clv_plan_options *p)
{
    enum { MOST = 32 };
    clv_value wrt[MOST + 1], d[MOST + 1];
    clv_type type = clv_graph_type(graph, y);
    clv_value seed = clv_residual_input(graph, "dy", type.dtype, type.rank, type.shape, p->rules);
    int n = clv_graph_parameters(graph, wrt, MOST);
    wrt[n] = x;
    clv_gradients_widened(graph, y, seed, wrt, n + 1, p->f32_gradients, d);
    for (int i = 0; i <= n; i++) {
        char name[300];
        snprintf(name, sizeof name, "d.%s", clv_value_name(graph, wrt[i]));
        clv_output(graph, name, d[i], NULL);
    }
}

static void build_block(clv_graph *graph, const clv_plan_options *p)
{
    clv_layout layout = clv_residual_layout(graph, p->rules, 3);
    clv_value x = clv_residual_input(graph, "x", p->dtype, 3, (int64_t[]){p->batch, p->seq, p->hidden}, p->rules);
    clv_value y = block(graph, x, p);
    if (p->mode == CLV_PLAN_MODE_GRAD)
        add_block_gradients(graph, x, y, p);
    clv_output(graph, "y", y, &layout);
}

/* ---- a model ---- */

static clv_status check_model(const clv_plan_options *o, const clv_model_info *info, clv_error *err)
{
    if (o->seq > info->max_positions)
        return clv_fail(err, CLV_EINVAL, "seq %lld; the model takes 1 to %lld positions", (long long)o->seq,
                        (long long)info->max_positions);
    if (o->mode == CLV_PLAN_MODE_DECODE && info->bidirectional)
        return clv_fail(err, CLV_EINVAL, "decode: %s attends both ways and generates nothing; valid: train, prefill",
                        info->family);
    if (generates(o) && o->sp && !info->bidirectional)
        return clv_fail(err, CLV_EINVAL, "sp: a sequence that is generated stays whole on all ranks; valid with train");
    return CLV_OK;
}

static clv_status add_model(clv_graph *graph, const clv_plan_options *o, const clv_model *model, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    clv_model_graph_options how = {.size = sizeof how,
                                   .batch = o->batch,
                                   .seq = o->seq,
                                   .dropout = o->dropout,
                                   .attention_dropout = o->attention_dropout};
    CLV_TRY(clv_model_get_info(model, &info, err));
    CLV_TRY(check_model(o, &info, err));
    if (generates(o) && !info.bidirectional) {
        how.context = o->seq;
        how.seq = o->mode == CLV_PLAN_MODE_DECODE ? 1 : o->seq;
        how.last_logits = how.split_logits = 1;
    }
    if (generates(o))
        clv_model_inference(graph, model, &how);
    else
        clv_model_train_step(
            graph, model, &how,
            &(clv_update_options){
                .size = sizeof(clv_update_options), .clip = 1, .accumulate = o->accumulate, .no_sync = o->no_sync});
    return clv_graph_status(graph, err);
}

/* How its weights are held: as asked for, or as its folder has them. */
static clv_status choose_quant(clv_quant *how, const clv_plan_options *o, clv_error *err)
{
    clv_model *model;
    clv_quant stored = CLV_QUANT_NONE;
    CLV_TRY(clv_model_open(&model, o->model, &(clv_model_options){.size = sizeof(clv_model_options), .config_only = 1},
                           err));
    clv_status status = clv_model_checkpoint_quant(&stored, model, err);
    clv_model_close(model);
    CLV_TRY(status);
    return clv_quant_resolve(how, o->model, stored, err);
}

static clv_status open_model(clv_model **out, const clv_plan_options *o, clv_error *err)
{
    clv_quant quant = o->quant;
    CLV_TRY(choose_quant(&quant, o, err));
    const clv_model_options options = {.size = sizeof options,
                                       .mesh = o->mesh,
                                       .rules = o->rules,
                                       .dtype = o->dtype,
                                       .compile = {.machine = o->compile.machine,
                                                   .memory_limit = o->compile.memory_limit,
                                                   .schedule = o->compile.schedule},
                                       .config_only = 1,
                                       .lora = o->lora,
                                       .f32_gradients = o->f32_gradients,
                                       .quant = quant};
    return clv_model_open(out, o->model, &options, err);
}

static clv_status build_model(clv_graph *graph, const clv_plan_options *o, clv_plan_part part, clv_error *err)
{
    clv_model *model;
    CLV_TRY(open_model(&model, o, err));
    clv_model_truncate(model, part.layers, part.vocab);
    clv_status status = add_model(graph, o, model, err);
    clv_model_close(model);
    return status;
}

/* ---- both ---- */

static clv_status check_mesh(const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_mesh_check(mesh, err));
    if (clv_mesh_rank_count(mesh) <= CLV_PLAN_MAX_RANKS)
        return CLV_OK;
    return clv_fail(err, CLV_ELIMIT, "%lld ranks; valid: at most %d", (long long)clv_mesh_rank_count(mesh),
                    CLV_PLAN_MAX_RANKS);
}

static clv_status build(clv_graph **out, const clv_plan_options *o, clv_plan_part part, clv_error *err)
{
    CLV_TRY(clv_graph_new(out, o->mesh, err));
    if (!o->model)
        build_block(*out, o);
    clv_status status = o->model ? build_model(*out, o, part, err) : clv_graph_status(*out, err);
    if (status != CLV_OK)
        clv_graph_free(*out);
    return status;
}

clv_status clv_plan_parse_options(clv_plan_options *out, const clv_plan_options *given, const char *call,
                                  clv_error *err)
{
    CLV_TRY(clv_options_copy_in(out, sizeof *out, sizeof *out, given, call, err));
    out->compile.size = sizeof out->compile;
    return CLV_OK;
}

/* What is asked for, with its defaults; `rules` and `alone` hold those that are not given. */
static clv_status take_options(clv_plan_options *o, clv_axis_rules *rules, const clv_mesh *alone,
                               const clv_plan_options *options, const char *call, clv_error *err)
{
    CLV_TRY(clv_plan_parse_options(o, options, call, err));
    CLV_TRY(check(o, err));
    o->mesh = o->mesh ? o->mesh : alone;
    CLV_TRY(check_mesh(o->mesh, err));
    if (o->block && clv_mesh_is_split_over(o->mesh, "pipe"))
        return clv_fail(err, CLV_EINVAL,
                        "a block has no layers for an axis pipe; valid for a block: a mesh without it");
    if (!o->rules)
        CLV_TRY(clv_axis_rules_preset(rules, o->sp ? "megatron-sp" : NULL, o->mesh, err));
    o->rules = o->rules ? o->rules : rules;
    set_defaults(o);
    return CLV_OK;
}

clv_status clv_plan_graph(clv_graph **out, const clv_plan_options *options, clv_error *err)
{
    const clv_mesh alone = {0};
    clv_axis_rules rules;
    clv_plan_options o;
    clv_graph *graph;
    CLV_TRY(clv_require(out && options, __func__, "out and options", err));
    CLV_TRY(take_options(&o, &rules, &alone, options, __func__, err));
    CLV_TRY(build(&graph, &o, (clv_plan_part){0}, err));
    *out = graph;
    return CLV_OK;
}

clv_status clv_plan_fit_stages(clv_axis_rules *out, const clv_plan_options *o, clv_try_stages *attempt, void *arg,
                               clv_error *err)
{
    clv_model *model;
    CLV_TRY(open_model(&model, o, err));
    clv_status status = clv_model_fit_stages(out, model, attempt, arg, err);
    clv_model_close(model);
    return status;
}

typedef struct compilation {
    const clv_plan_options *options;
    clv_plan_part part;
    bool is_priced; /* clv_compile_to_price, with these */
    clv_reshard_cache *reshards;
    clv_program *program;
} compilation;

static clv_status compile_by_rules(compilation *c, const clv_axis_rules *rules, clv_plan_schedule schedule,
                                   clv_error *err)
{
    clv_plan_options o = *c->options;
    clv_graph *graph;
    o.rules = rules;
    o.compile.schedule = schedule;
    clv_program_free(c->program);
    c->program = NULL;
    CLV_TRY(build(&graph, &o, c->part, err));
    clv_status status = c->is_priced ? clv_compile_to_price(&c->program, graph, &o.compile, c->reshards, err)
                                     : clv_compile(&c->program, graph, &o.compile, err);
    clv_graph_free(graph);
    return status;
}

static clv_status try_stages(clv_stage_needs *needs, void *arg, const clv_axis_rules *rules, clv_plan_schedule schedule,
                             clv_error *err)
{
    compilation *c = arg;
    CLV_TRY(compile_by_rules(c, rules, schedule, err));
    return clv_stage_needs_read(needs, c->program, c->options->compile.machine, err);
}

/* As *c asks, its options those of the caller. */
static clv_status compile_part(clv_program **out, compilation *c, clv_error *err)
{
    static const char call[] = "clv_plan_compile";
    const clv_mesh alone = {0};
    clv_axis_rules rules, fitted;
    clv_plan_options o;
    CLV_TRY(clv_require(out && c->options, call, "out and options", err));
    CLV_TRY(take_options(&o, &rules, &alone, c->options, call, err));
    c->options = &o;
    const bool fits_stages = o.model && !generates(&o) && c->part.layers == 0 &&
                             clv_axis_rules_stage_axis(o.rules) >= 0 && o.rules->n_stage_layers == 0;
    clv_status status = fits_stages ? clv_plan_fit_stages(&fitted, &o, try_stages, c, err)
                                    : compile_by_rules(c, o.rules, o.compile.schedule, err);
    if (status == CLV_OK && c->part.layers == 0) /* not of a part */
        status = clv_program_check_expert_capacity(c->program, o.compile.expert_rank_capacity_factor, err);
    if (status == CLV_OK)
        *out = c->program;
    else
        clv_program_free(c->program);
    return status;
}

clv_status clv_plan_compile(clv_program **out, const clv_plan_options *options, clv_error *err)
{
    return compile_part(out, &(compilation){.options = options}, err);
}

clv_status clv_plan_compile_to_price(clv_program **out, const clv_plan_options *options, clv_plan_part part,
                                     clv_reshard_cache *reshards, clv_error *err)
{
    return compile_part(out, &(compilation){options, part, true, reshards, NULL}, err);
}
