#include "cli/plan_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/model.h"
#include "cleave/nn.h"
#include "cleave/status.h"

enum { NOT_GIVEN = -1, HIDDEN = 256, HEADS = 8 };

const clv_plan_graph clv_plan_graph_defaults = {.hidden = NOT_GIVEN,
                                                .heads = NOT_GIVEN,
                                                .kv_heads = NOT_GIVEN,
                                                .ffn = NOT_GIVEN,
                                                .batch = 8,
                                                .seq = 128,
                                                .dtype = "f32",
                                                .mesh = {.tp = 1}};

/* ---- a block ---- */

static clv_plan_graph with_sizes(const clv_plan_graph *given)
{
    clv_plan_graph g = *given;
    g.hidden = g.hidden == NOT_GIVEN ? HIDDEN : g.hidden;
    g.heads = g.heads == NOT_GIVEN ? HEADS : g.heads;
    g.kv_heads = g.kv_heads > 0 ? g.kv_heads : g.heads;
    g.ffn = g.ffn > 0 ? g.ffn : 4 * g.hidden;
    return g;
}

static clv_block_options block_options(const clv_plan_graph *g)
{
    bool llama = g->block[0] == 'l';
    clv_block_options o = clv_block_defaults(llama ? CLV_BLOCK_LLAMA : CLV_BLOCK_GPT, g->heads, g->kv_heads, g->ffn);
    o.norm_bias = false;
    o.attention.bias = o.attention.output_bias = o.mlp.bias = g->bias;
    o.mlp.activation = llama ? CLV_SILU : CLV_GELU;
    return o;
}

static clv_value block(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_plan_graph *g)
{
    clv_block_options o = block_options(g);
    if (g->block[0] == 'f')
        return clv_parallel_mlp(graph, x, rules, &o.mlp);
    if (g->block[0] == 'a')
        return clv_parallel_attention(graph, x, rules, &o.attention);
    return clv_transformer_block(graph, x, rules, &o);
}

/* Gradients of the weights and of x, each in its own layout, for a cotangent in the layout of the output. */
static void add_block_gradients(clv_graph *graph, clv_value x, clv_value y, const clv_axis_rules *rules)
{
    enum { MOST = 32 };
    clv_value wrt[MOST + 1], d[MOST + 1];
    clv_type type = clv_graph_type(graph, y);
    clv_value seed = clv_residual_input(graph, "dy", type.dtype, type.rank, type.shape, rules);
    int n = clv_parameters(graph, wrt, MOST);
    wrt[n] = x;
    clv_gradients(graph, y, seed, wrt, n + 1, d);
    for (int i = 0; i <= n; i++) {
        char name[300];
        snprintf(name, sizeof name, "d.%s", clv_value_name(graph, wrt[i]));
        clv_output(graph, name, d[i], NULL);
    }
}

static void build_block(clv_graph *graph, const clv_plan_graph *given, const clv_axis_rules *rules, clv_dtype dtype)
{
    const clv_plan_graph sized = with_sizes(given), *g = &sized;
    clv_layout layout = clv_residual_layout(graph, rules, 3);
    clv_value x = clv_residual_input(graph, "x", dtype, 3, (int64_t[]){g->batch, g->seq, g->hidden}, rules);
    clv_value y = block(graph, x, rules, g);
    if (g->gradient)
        add_block_gradients(graph, x, y, rules);
    clv_output(graph, "y", y, &layout);
}

/* ---- a model ---- */

static clv_status check_model(const clv_plan_graph *g, const clv_model_info *info, clv_error *err)
{
    if (g->seq > info->max_positions)
        return clv_fail(err, CLV_EINVAL, "--seq %lld; the model takes 1 to %lld positions", (long long)g->seq,
                        (long long)info->max_positions);
    if (g->decode && info->bidirectional)
        return clv_fail(err, CLV_EINVAL,
                        "--decode: %s attends both ways and generates nothing; valid: --train, --prefill",
                        info->family);
    if ((g->prefill || g->decode) && g->mesh.sp && !info->bidirectional)
        return clv_fail(err, CLV_EINVAL,
                        "--sp: a sequence that is generated stays whole on all ranks; valid with --train");
    return CLV_OK;
}

static clv_status add_model(clv_graph *graph, const clv_plan_graph *g, const clv_model *model, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    clv_model_graph how = {.size = sizeof how, .batch = g->batch, .seq = g->seq};
    CLV_TRY(clv_model_describe(model, &info, err));
    CLV_TRY(check_model(g, &info, err));
    bool cached = (g->prefill || g->decode) && !info.bidirectional;
    if (cached) {
        how.context = g->seq;
        how.seq = g->decode ? 1 : g->seq;
        how.last_logits = 1;
    }
    if (g->prefill || g->decode)
        clv_model_inference(graph, model, &how);
    else
        clv_model_train_step(graph, model, &how, NULL);
    return clv_graph_status(graph, err);
}

static clv_status build_model(clv_graph *graph, const clv_plan_graph *g, const clv_axis_rules *rules, clv_dtype dtype,
                              clv_error *err)
{
    clv_model *model;
    clv_model_options options = {
        .size = sizeof options, .mesh = clv_graph_mesh(graph), .rules = rules, .dtype = dtype, .config_only = 1};
    CLV_TRY(clv_model_open(&model, g->model, &options, err));
    clv_status status = add_model(graph, g, model, err);
    clv_model_close(model);
    return status;
}

/* ---- both ---- */

/* What says how a block is made is not passed over where it says nothing. */
static clv_status check_sizes(const clv_plan_graph *g, clv_error *err)
{
    const struct {
        const char *option;
        bool given;
        const char *blocks; /* that have it */
    } sizes[] = {{"--hidden", g->hidden != NOT_GIVEN, "ffn|attention|gpt|llama"},
                 {"--heads", g->heads != NOT_GIVEN, "attention|gpt|llama"},
                 {"--kv-heads", g->kv_heads != NOT_GIVEN, "attention|gpt|llama"},
                 {"--ffn", g->ffn != NOT_GIVEN, "ffn|gpt|llama"},
                 {"--bias", g->bias, "ffn|attention|gpt|llama"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].given && g->model)
            return clv_fail(err, CLV_EINVAL, "%s is for --block %s; a model is as its config.json says",
                            sizes[i].option, sizes[i].blocks);
        if (sizes[i].given && !strstr(sizes[i].blocks, g->block))
            return clv_fail(err, CLV_EINVAL, "%s is for --block %s; --block %s has no use for it", sizes[i].option,
                            sizes[i].blocks, g->block);
    }
    return CLV_OK;
}

static clv_status check(const clv_plan_graph *g, clv_error *err)
{
    if (!g->model == !g->block)
        return clv_fail(err, CLV_EINVAL, "give either -m PATH or --block ffn|attention|gpt|llama");
    if (g->forward + g->gradient > 1 || g->train + g->prefill + g->decode > 1)
        return clv_fail(err, CLV_EINVAL, "give one of --forward and --grad, or one of --train, --prefill and --decode");
    if (g->block && g->train + g->prefill + g->decode > 0)
        return clv_fail(err, CLV_EINVAL,
                        "--train, --prefill and --decode are for models; a block has --forward, --grad");
    if (g->model && g->forward + g->gradient > 0)
        return clv_fail(err, CLV_EINVAL,
                        "--forward and --grad are for blocks; a model has --train, --prefill, --decode");
    if (g->regather && (g->block ? !g->gradient : g->prefill || g->decode))
        return clv_fail(err, CLV_EINVAL, "--regather is for a backward pass: --grad of a block, --train of a model");
    return check_sizes(g, err);
}

clv_status clv_plan_graph_compile(clv_program **out, const clv_plan_graph *g, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_dtype dtype;
    clv_graph *graph;
    clv_compile_options options = {.size = sizeof options,
                                   .machine = g->machine,
                                   .regather = g->regather,
                                   .max_implicit_bytes = g->max_implicit_bytes,
                                   .explain = g->explain,
                                   .keep_assignment = g->keep_assignment};
    CLV_TRY(check(g, err));
    CLV_TRY(clv_mesh_option_read(&mesh, &g->mesh, err));
    if (clv_mesh_ranks(&mesh) > CLV_MAX_RANKS)
        return clv_fail(err, CLV_ELIMIT, "%lld ranks; valid: at most %d", (long long)clv_mesh_ranks(&mesh),
                        CLV_MAX_RANKS);
    CLV_TRY(clv_mesh_option_rules(&rules, &g->mesh, &mesh, err));
    CLV_TRY(clv_dtype_parse(&dtype, g->dtype, err));
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_status status = CLV_OK;
    if (g->block)
        build_block(graph, g, &rules, dtype);
    else
        status = build_model(graph, g, &rules, dtype, err);
    if (status == CLV_OK)
        status = clv_compile(out, graph, &options, err);
    clv_graph_free(graph);
    return status;
}
