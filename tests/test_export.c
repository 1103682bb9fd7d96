/* test_export.c - graphs as StableHLO text: what is written is read back, and has the same values on the same mesh. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/export.h"
#include "cleave/import.h"
#include "cleave/plan.h"
#include "golden_path.h"
#include "must.h"
#include "ops/builtin_ops.h"
#include "unit_test.h"

enum { MOST = 512, SEED = 7 };

/* ---- a program with its values ---- */

typedef struct tensor {
    const char *name; /* of state and results that are state "new.<name>" */
    clv_type type;
    void *data;
} tensor;

typedef struct running {
    clv_program *program;
    clv_session *session;
    int n_in, n_out;
    tensor in[MOST], out[MOST];
} running;

static void *make_room(const clv_type *type)
{
    return calloc((size_t)clv_type_elems(type) + 1, clv_dtype_size(type->dtype));
}

static double random_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24);
}

/* Floats in [-1/2, 1/2); second moments are above 0.1; whole numbers 1 to 3; 0 or 1 of bytes. */
static void *make_up(const char *name, const clv_type *type, uint32_t *state)
{
    void *data = make_room(type);
    size_t length = strlen(name);
    const bool positive = length > 2 && strcmp(name + length - 2, ".v") == 0;
    for (int64_t i = 0; i < clv_type_elems(type); i++) {
        double x = random_number(state) - 0.5;
        if (type->dtype == CLV_U8 || type->dtype == CLV_BOOL)
            x = x > 0;
        else if (!clv_dtype_is_float(type->dtype))
            x = floor((x + 0.5) * 3) + 1;
        clv_dtype_store(type->dtype, data, i, positive ? fabs(x) + 0.1 : x);
    }
    return data;
}

static void start(running *r, const clv_graph *graph, clv_state_source *source, void *arg)
{
    clv_error err = {0};
    const clv_session_options options = {
        .size = sizeof options, .no_pinning = 1, .seed = SEED, .source = source, .source_arg = arg};
    memset(r, 0, sizeof *r);
    must(clv_compile(&r->program, graph, NULL, &err), &err);
    must(clv_session_new(&r->session, clv_program_mesh(r->program), &options, &err), &err);
    must(clv_session_load(r->session, r->program, &err), &err);
}

/* Inputs, and state unless it has values of its own, made up; outputs, and that state afterwards. */
static void run(running *r, bool has_state)
{
    clv_error err = {0};
    clv_program_tensor t = {.size = sizeof t};
    clv_state_info s = {.size = sizeof s};
    clv_input_binding inputs[MOST];
    clv_output_binding outputs[MOST];
    uint32_t random = SEED;
    int n_inputs = 0, n_outputs = 0;
    for (int i = 0; clv_program_tensor_at(r->program, i, &t, NULL) == CLV_OK && t.name; i++) {
        if (t.kind == CLV_NAMED_STATE)
            continue;
        assert_true(r->n_in < MOST && r->n_out < MOST);
        if (t.kind == CLV_NAMED_INPUT) {
            r->in[r->n_in] = (tensor){t.name, t.type, make_up(t.name, &t.type, &random)};
            inputs[n_inputs++] = (clv_input_binding){t.name, r->in[r->n_in++].data};
        } else {
            r->out[r->n_out] = (tensor){t.name, t.type, make_room(&t.type)};
            outputs[n_outputs++] = (clv_output_binding){t.name, r->out[r->n_out++].data};
        }
    }
    for (int i = 0; !has_state && clv_session_state(r->session, i, &s, NULL) == CLV_OK && s.name; i++) {
        r->in[r->n_in] = (tensor){s.name, s.type, make_up(s.name, &s.type, &random)};
        must(clv_session_write(r->session, s.name, NULL, r->in[r->n_in++].data, &err), &err);
    }
    must(clv_session_run(r->session, r->program, inputs, n_inputs, outputs, n_outputs, &err), &err);
    for (int i = 0; !has_state && clv_session_state(r->session, i, &s, NULL) == CLV_OK && s.name; i++) {
        r->out[r->n_out] = (tensor){s.name, s.type, make_room(&s.type)};
        must(clv_session_read(r->session, s.name, NULL, r->out[r->n_out++].data, &err), &err);
    }
}

static void stop(running *r)
{
    for (int i = 0; i < r->n_in; i++)
        free(r->in[i].data);
    for (int i = 0; i < r->n_out; i++)
        free(r->out[i].data);
    clv_session_free(r->session);
    clv_program_free(r->program);
}

static const tensor *find(const tensor *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    fail_msg("there is no '%s'", name);
    return NULL;
}

/* ---- there and back ---- */

/* |got - want| <= tolerance of the largest element. */
static void compare(const char *what, double tolerance, const char *name, const clv_type *type, const void *got,
                    const void *want)
{
    double most = 1e-2;
    for (int64_t i = 0; i < clv_type_elems(type); i++)
        if (isfinite(clv_dtype_load(type->dtype, want, i)))
            most = fmax(most, fabs(clv_dtype_load(type->dtype, want, i)));
    for (int64_t i = 0; i < clv_type_elems(type); i++) {
        double a = clv_dtype_load(type->dtype, got, i), b = clv_dtype_load(type->dtype, want, i);
        if (!(fabs(a - b) <= tolerance * most) && a != b && !(isnan(a) && isnan(b)))
            fail_msg("%s: %s, element %lld: %.9g, the graph has %.9g", what, name, (long long)i, a, b);
    }
}

/* Runs the text with the graph's values, and compares every result. Returns the number of results. */
static int run_text(const char *what, const char *text, const running *graph, double tolerance)
{
    static running again;
    clv_import *read = NULL;
    clv_error err = {0};
    clv_graph *made;
    clv_program_tensor t = {.size = sizeof t};
    clv_input_binding inputs[MOST];
    clv_output_binding outputs[MOST];
    int n_inputs = 0, n_outputs = 0;
    must(clv_import_parse(&read, text, strlen(text), what, &err), &err);
    must(clv_graph_new(&made, clv_program_mesh(graph->program), &err), &err);
    if (clv_import_stablehlo(made, read, NULL, &err) != CLV_OK)
        fail_msg("%s: %s", what, err.message);
    start(&again, made, clv_import_state_source, read);
    for (int i = 0; clv_program_tensor_at(again.program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (t.kind == CLV_NAMED_INPUT)
            inputs[n_inputs++] = (clv_input_binding){t.name, find(graph->in, graph->n_in, t.name)->data};
        else if (t.kind == CLV_NAMED_OUTPUT) {
            again.out[n_outputs] = (tensor){t.name, t.type, make_room(&t.type)};
            outputs[n_outputs] = (clv_output_binding){t.name, again.out[n_outputs].data};
            n_outputs++;
        }
    again.n_out = n_outputs;
    must(clv_session_run(again.session, again.program, inputs, n_inputs, outputs, n_outputs, &err), &err);
    for (int i = 0; i < n_outputs; i++) {
        const char *name = again.out[i].name;
        const tensor *want = find(graph->out, graph->n_out, strncmp(name, "new.", 4) == 0 ? name + 4 : name);
        assert_true(clv_type_equal(&want->type, &again.out[i].type));
        compare(what, tolerance, name, &want->type, again.out[i].data, want->data);
    }
    stop(&again);
    clv_graph_free(made);
    clv_import_free(read);
    return n_outputs;
}

static int round_trip_within(double tolerance, const char *what, clv_graph *graph)
{
    static running ours;
    clv_error err = {0};
    char *text = NULL;
    size_t size = 0;
    must(clv_graph_status(graph, &err), &err);
    if (clv_export_stablehlo(&text, &size, graph, NULL, NULL, &err) != CLV_OK)
        fail_msg("%s: %s", what, err.message);
    assert_int_equal(size, strlen(text));
    start(&ours, graph, NULL, NULL);
    run(&ours, false);
    int n = run_text(what, text, &ours, tolerance);
    stop(&ours);
    free(text);
    clv_graph_free(graph);
    return n;
}

static int round_trip(const char *what, clv_graph *graph)
{
    return round_trip_within(1e-5, what, graph);
}

/* ---- models and blocks ---- */

static clv_graph *planned(clv_plan_options how, const char *mesh_text, const char *preset)
{
    clv_graph *graph = NULL;
    clv_axis_rules rules;
    clv_mesh mesh;
    clv_error err = {0};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    how.size = sizeof how;
    how.mesh = &mesh;
    how.rules = &rules;
    must(clv_plan_graph(&graph, &how, &err), &err);
    return graph;
}

static void test_blocks(void **state)
{
    static const char *const presets[] = {"megatron", "megatron-sp", "fsdp+megatron-sp"};
    for (int p = 0; p < 3; p++)
        for (int b = CLV_PLAN_BLOCK_FFN; b <= CLV_PLAN_BLOCK_LLAMA; b++) {
            clv_plan_options how = {.block = (clv_plan_block)b, .mode = CLV_PLAN_MODE_GRAD, .batch = 2, .seq = 6};
            how.hidden = 24;
            how.heads = b == CLV_PLAN_BLOCK_FFN ? 0 : 4;
            how.kv_heads = b == CLV_PLAN_BLOCK_LLAMA ? 2 : 0;
            how.bias = true;
            assert_true(round_trip(clv_plan_block_name(how.block), planned(how, "data=2,model=2", presets[p])) >= 5);
        }
}

static void test_models(void **state)
{
    static const char *const models[] = {"llama", "llama_scaled", "qwen2",     "gpt2",     "bert",
                                         "esm",   "mixtral",      "qwen2_moe", "qwen3_moe"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        clv_plan_options how = {.model = golden_path("%s", models[m]), .batch = 2, .seq = 6};
        assert_true(round_trip(models[m], planned(how, "data=2,model=2", "zero1+megatron-sp")) > 30);
    }
    clv_plan_options step = {.model = golden_path("%s", "llama"), .batch = 4, .seq = 6, .accumulate = 2};
    round_trip("accumulation", planned(step, "data=2", "fsdp"));
    for (int m = 0; m < 4; m += 3) { /* rotary and learned positions */
        clv_plan_options decode = {.model = golden_path("%s", models[m]), .batch = 2, .seq = 8};
        decode.mode = CLV_PLAN_MODE_DECODE;
        round_trip("decoding", planned(decode, "model=2", "megatron"));
    }
    clv_plan_options half = {.model = golden_path("%s", "llama"), .batch = 2, .seq = 6, .dtype = CLV_BF16};
    round_trip_within(2e-2, "bf16", planned(half, "data=2", "zero1"));
}

/* ---- ops ---- */

static clv_value named(clv_graph *g, const char *name, clv_dtype dtype, int rank, const int64_t *shape)
{
    return clv_input(g, name, dtype, rank, shape, NULL);
}

#define SHAPE(...)                                                                                                     \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[])                                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* The value, and gradients by n others, as outputs. */
static void put(clv_graph *g, const char *name, clv_value y, const clv_value *wrt, int n)
{
    clv_value d[4];
    char text[64];
    clv_output(g, name, y, NULL);
    clv_gradients(g, clv_reduce(g, CLV_SUM, clv_mul(g, y, y), (int[]){0, 1, 2, 3, 4}, clv_graph_type(g, y).rank, false),
                  CLV_NONE, wrt, n, d);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "d%d.%s", i, name);
        clv_output(g, text, d[i], NULL);
    }
}

static void test_elementwise(void **state)
{
    static const clv_unary_kind unary[] = {CLV_EXP,  CLV_TANH, CLV_SIGMOID, CLV_GELU, CLV_GELU_TANH, CLV_SILU,
                                           CLV_RELU, CLV_NEG,  CLV_RSQRT,   CLV_LOG,  CLV_SQRT};
    static const clv_binary_kind binary[] = {CLV_ADD, CLV_SUB, CLV_MUL, CLV_DIV, CLV_MAXIMUM, CLV_MINIMUM};
    clv_graph *g = must_graph("x=2");
    clv_value a = named(g, "a", CLV_F32, SHAPE(2, 3, 4)), b = named(g, "b", CLV_F32, SHAPE(3, 1));
    clv_value mask = named(g, "mask", CLV_U8, SHAPE(2, 3, 4));
    clv_value positive = clv_add(g, clv_mul(g, a, a), clv_fill(g, CLV_F32, 0, NULL, 0.5));
    char name[64];
    for (int i = 0; i < 11; i++) {
        snprintf(name, sizeof name, "unary%d", i);
        put(g, name, clv_unary(g, unary[i], i < 8 ? a : positive), &a, 1);
    }
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "binary%d", i);
        put(g, name, clv_binary(g, binary[i], a, b), (clv_value[]){a, b}, 2);
    }
    put(g, "tie", clv_binary(g, CLV_MAXIMUM, a, a), &a, 1);
    put(g, "where", clv_where(g, mask, a, b), (clv_value[]){a, b}, 2);
    put(g, "scaled", clv_scale(g, a, -2.5), &a, 1);
    put(g, "biased", clv_bias_gelu(g, a, named(g, "bias", CLV_F32, SHAPE(4)), CLV_GELU), &a, 1);
    clv_value pair = named(g, "pair", CLV_F32, SHAPE(3, 2, 4));
    put(g, "swiglu", clv_gated(g, pair, CLV_SILU), &pair, 1);
    put(g, "geglu", clv_gated(g, pair, CLV_GELU_TANH), &pair, 1);
    clv_output(g, "cast", clv_cast(g, clv_cast(g, a, CLV_BF16), CLV_F64), NULL);
    clv_output(g, "truth", clv_cast(g, a, CLV_BOOL), NULL);
    assert_true(round_trip("elementwise", g) > 50);
}

static void test_shapes_and_sums(void **state)
{
    clv_graph *g = must_graph("x=2");
    clv_value a = named(g, "a", CLV_F32, SHAPE(2, 3, 4)), b = named(g, "b", CLV_F32, SHAPE(4, 3, 5));
    clv_value both[] = {a, b};
    put(g, "dot", clv_einsum(g, "bsm,msf->fsb", a, b), both, 2);
    put(g, "outer", clv_einsum(g, "bsm,mtf->bsft", a, b), both, 2);
    put(g, "sum", clv_reduce(g, CLV_SUM, a, (int[]){1}, 1, false), &a, 1);
    put(g, "mean", clv_reduce(g, CLV_MEAN, a, (int[]){0, 2}, 2, true), &a, 1);
    put(g, "max", clv_reduce(g, CLV_MAX, a, (int[]){2}, 1, false), &a, 1);
    put(g, "softmax", clv_softmax(g, a), &a, 1);
    put(g, "reshape", clv_reshape(g, a, SHAPE(6, 4)), &a, 1);
    put(g, "transpose", clv_transpose(g, a, (int[]){2, 0, 1}), &a, 1);
    put(g, "slice", clv_slice(g, a, (int64_t[]){0, 1, 1}, (int64_t[]){2, 3, 3}), &a, 1);
    put(g, "pad", clv_pad(g, a, (int64_t[]){0, 1, 2}, (int64_t[]){1, 0, 0}), &a, 1);
    put(g, "concat", clv_concat(g, (clv_value[]){a, a, a}, 3, 1), &a, 1);
    clv_output(g, "norm", clv_global_norm(g, both, 2), NULL);
    clv_output(g, "clip", clv_clip_scale(g, clv_global_norm(g, both, 2), 0.5), NULL);
    assert_true(round_trip("shapes and sums", g) > 20);
}

/* A permute between ranks without pairs; one beside a dimension of unequal parts is written as slices. */
static void test_permutes(void **state)
{
    static const struct {
        int64_t columns;
        const char *has, *lacks;
    } cases[] = {{4, "source_target_pairs = dense<> : tensor<0x2xi64>", "stablehlo.concatenate"},
                 {3, "stablehlo.concatenate", "collective_permute"}};
    for (int i = 0; i < 2; i++) {
        clv_graph *g = must_graph("x=2,y=2");
        clv_layout split;
        char *text = NULL;
        clv_error err = {0};
        must(clv_layout_parse(&split, "x,y", clv_graph_mesh(g), 2, &err), &err);
        clv_value a = clv_constrain(g, named(g, "a", CLV_F32, SHAPE(2, cases[i].columns)), &split);
        clv_output(g, "gone", clv_constrain(g, clv_permute(g, a, 0, (int[]){-1, -1}), &split), NULL);
        must(clv_export_stablehlo(&text, NULL, g, NULL, NULL, &err), &err);
        if (!strstr(text, cases[i].has) || strstr(text, cases[i].lacks))
            fail_msg("%s", text);
        free(text);
        assert_int_equal(round_trip("permute", g), 1);
    }
}

static void test_order(void **state)
{
    clv_graph *g = must_graph("x=2");
    clv_value a = named(g, "a", CLV_F32, SHAPE(2, 3, 4)), ids = named(g, "ids", CLV_I32, SHAPE(3, 6));
    clv_value step = named(g, "step", CLV_I32, 0, NULL), values, index;
    static const clv_fold_kind kinds[] = {CLV_FOLD_SUM, CLV_FOLD_PRODUCT, CLV_FOLD_MAX, CLV_FOLD_MIN};
    char name[64];
    for (int i = 0; i < 6; i++) {
        clv_sort(g, i < 4 ? a : ids, i % 2 + 0, i % 3 == 0, &values, &index);
        snprintf(name, sizeof name, "values%d", i);
        clv_output(g, name, values, NULL);
        snprintf(name, sizeof name, "index%d", i);
        clv_output(g, name, index, NULL);
    }
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "cumulative%d", i);
        clv_output(g, name, clv_cumulative(g, kinds[i / 2], a, i % 3, i % 2), NULL);
    }
    clv_output(g, "counted", clv_cumulative(g, CLV_FOLD_SUM, ids, 1, false), NULL);
    put(g, "dropout", clv_dropout(g, a, 0.5, clv_key_seed(7), CLV_NONE), &a, 1);
    put(g, "of a step", clv_dropout(g, a, 0.1, clv_key_seed(9), step), &a, 1);
    clv_output(g, "half", clv_dropout(g, clv_cast(g, a, CLV_BF16), 0.3, clv_key_seed(1), step), NULL);
    assert_true(round_trip("order and dropout", g) > 20);
}

static void test_layers(void **state)
{
    clv_graph *g = must_graph("x=2");
    clv_value x = named(g, "x", CLV_F32, SHAPE(2, 3, 4)), gain = named(g, "gain", CLV_F32, SHAPE(4));
    clv_value bias = named(g, "bias", CLV_F32, SHAPE(4)), table = named(g, "table", CLV_F32, SHAPE(3, 4));
    clv_value ids = named(g, "ids", CLV_I32, SHAPE(2, 3)), offset = named(g, "offset", CLV_I32, SHAPE(2));
    clv_value three[] = {x, gain, bias};
    put(g, "rms", clv_rms_norm(g, x, gain, 1e-5), three, 2);
    put(g, "layer", clv_layer_norm(g, x, gain, bias, 1e-5), three, 3);
    put(g, "embedding", clv_embedding(g, table, ids), &table, 1); /* id 3 is outside */
    put(g, "loss", clv_cross_entropy(g, x, ids, 2), &x, 1);
    clv_output(g, "labels", clv_count_labels(g, ids, 2, CLV_F32), NULL);
    clv_value q = named(g, "q", CLV_F32, SHAPE(2, 3, 4, 6)), kv = named(g, "kv", CLV_F32, SHAPE(2, 5, 2, 2, 6));
    clv_value mask = named(g, "mask", CLV_U8, SHAPE(2, 5)), heads[] = {q, kv};
    put(g, "attention", clv_attention(g, q, kv, &(clv_attention_options){0}), heads, 2);
    put(g, "causal", clv_attention(g, q, kv, &(clv_attention_options){.causal = true, .offset = offset}), heads, 2);
    put(g, "window", clv_attention(g, q, kv, &(clv_attention_options){.window = 2, .causal = true, .mask = mask}),
        heads, 2);
    put(g, "half", clv_rope(g, q, offset, &(clv_rope_options){.theta = 100, .dims = 4}), &q, 1);
    put(g, "pairs", clv_rope(g, q, CLV_NONE, &(clv_rope_options){.theta = 100, .interleaved = true}), &q, 1);
    put(g, "given", clv_rope(g, q, CLV_NONE, &(clv_rope_options){.inv_freq = (float[]){1, 0.5F, 0.25F}}), &q, 1);
    put(g, "keys", clv_rope(g, kv, offset, &(clv_rope_options){.theta = 100, .factor = 2}), &kv, 1);
    clv_value pairs[] = {q, named(g, "cos", CLV_F32, SHAPE(1, 3, 1, 3)), named(g, "sin", CLV_F32, SHAPE(1, 3, 1, 3))};
    clv_value wide[] = {q, named(g, "wide_cos", CLV_F32, SHAPE(2, 1, 4, 6)),
                        named(g, "wide_sin", CLV_F32, SHAPE(2, 1, 4, 6))};
    put(g, "rotated", clv_rotate(g, q, pairs[1], pairs[2], false), pairs, 3);
    put(g, "rotated_pairs", clv_rotate(g, q, pairs[1], pairs[2], true), pairs, 3);
    put(g, "rotated_wide", clv_rotate(g, q, wide[1], wide[2], false), wide, 3);
    clv_value cache = named(g, "cache", CLV_F32, SHAPE(2, 8, 2, 2, 6));
    clv_output(g, "cached", clv_cache_update(g, cache, kv, offset), NULL);
    assert_true(round_trip("layers", g) > 37);
}

static void test_optimizers(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16};
    for (int i = 0; i < 2; i++) {
        clv_graph *g = must_graph("x=2");
        const clv_init init = {0};
        clv_value lr = named(g, "lr", CLV_F32, 0, NULL), step = named(g, "step", CLV_I32, 0, NULL), p[3], d;
        static const char *const names[] = {"adamw", "sgd", "lion"};
        clv_value scale = named(g, "scale", CLV_F32, 0, NULL);
        for (int k = 0; k < 3; k++)
            p[k] = clv_state(g, names[k], dtypes[i], SHAPE(3, 4), NULL, init);
        d = named(g, "d", dtypes[i], SHAPE(3, 4));
        clv_adamw(g, p[0], d, lr, step, &(clv_adamw_options){.weight_decay = 0.1, .grad_scale = scale});
        clv_sgd(g, p[1], d, lr, &(clv_sgd_options){.weight_decay = 0.1});
        clv_lion(g, p[2], d, lr, &(clv_lion_options){.grad_scale = scale});
        assert_true(round_trip_within(i ? 1e-2 : 1e-5, "optimizers", g) >= 7);
    }
}

/* Programs of JAX and PyTorch: read, written and read again. Constants are written in place. */
static void test_programs(void **state)
{
    static const char *const programs[] = {"stablehlo/mlp.mlir",        "stablehlo/gpt2.mlir",
                                           "stablehlo/llama.mlir",      "stablehlo/esm.mlir",
                                           "stablehlo/scan_remat.mlir", "stablehlo/nnx_layers.mlir",
                                           "stablehlo/moe.mlir",        "stablehlo/fsdp.mlir",
                                           "stablehlo/dropout.mlir",    "stablehlo/shard_map_collectives.mlir",
                                           "torch_export/gpt2.pt2",     "torch_export/llama_core.pt2"};
    static running ours;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        clv_import *read = NULL;
        clv_error err = {0};
        char *text;
        clv_graph *g = must_graph("data=2,model=2");
        must(clv_import_read(&read, golden_path("%s", programs[i]), &err), &err);
        must(clv_import_stablehlo(g, read, NULL, &err), &err);
        must(clv_export_stablehlo(&text, NULL, g, clv_import_state_source, read, &err), &err);
        start(&ours, g, clv_import_state_source, read);
        run(&ours, true);
        assert_int_equal(run_text(programs[i], text, &ours, 1e-5), ours.n_out);
        stop(&ours);
        free(text);
        clv_graph_free(g);
        clv_import_free(read);
    }
}

static void refuse(clv_graph *g, const char *text)
{
    clv_error err = {0};
    char *out = NULL;
    must(clv_graph_status(g, &err), &err);
    clv_status status = clv_export_stablehlo(&out, NULL, g, NULL, NULL, &err);
    if (status != CLV_EUNSUPPORTED || !strstr(err.message, text) || out)
        fail_msg("%s '%s'; expected one with '%s'", clv_status_name(status), err.message, text);
    clv_graph_free(g);
}

static void test_refused(void **state)
{
    clv_graph *g = must_graph("x=2");
    clv_value x = named(g, "x", CLV_F32, SHAPE(2, 4)), weights, ids;
    clv_router(g, x, &(clv_router_options){.top_k = 1, .groups = 2, .top_groups = 1}, &weights, &ids);
    clv_output(g, "y", weights, NULL);
    refuse(g, "router: an op 'router' of groups of experts is not among those that are written as StableHLO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_shapes_and_sums), cmocka_unit_test(test_order),
        cmocka_unit_test(test_permutes),    cmocka_unit_test(test_layers),          cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_blocks),      cmocka_unit_test(test_models),          cmocka_unit_test(test_programs),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
