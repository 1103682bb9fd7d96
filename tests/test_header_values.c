/* test_header_values.c - values that the public headers state: names of enums, defaults, limits, what is returned for
 * nothing. (Statuses for paths are in test_path_errors.c, for NULL in test_api_misuse.c, sizes of structs in
 * test_versioned_structs.c.)
 */
#include <math.h>
#include <string.h>

#include "must.h"
#include "op_cases.h"

#include "cleave/cleave.h"

static clv_error err;

/* A call, whose last argument is &err, fails with this status and these words. */
static void check_failure(clv_status got, clv_status want, const char *words, const char *call)
{
    if (got != want || err.code != want || !strstr(err.message, words))
        fail_msg("%s: %s '%s', not %s '%s'", call, clv_status_name(got), err.message, clv_status_name(want), words);
}
#define FAILS(status, words, call) (err = (clv_error){0}, check_failure(call, status, words, #call))
#define MUST(call)                 (err = (clv_error){0}, must(call, &err))

/* ---- names of enums ---- */

/* Each name in order, "unknown" outside of the enum, and back, unless `parse` is 0. */
#define NAMES(type, name_of, parse, code, ...)                                                                         \
    do {                                                                                                               \
        static const char *const names[] = {__VA_ARGS__};                                                              \
        const int n = sizeof names / sizeof *names;                                                                    \
        clv_status (*const parse_name)(type *, const char *, clv_error *) = (parse);                                   \
        const char *(*const name_of_value)(type) = (name_of);                                                          \
        for (int i = -1; i <= n; i++) {                                                                                \
            type value = (type)99;                                                                                     \
            const char *name = i < 0 || i == n ? "unknown" : names[i];                                                 \
            err = (clv_error){0};                                                                                      \
            if (name_of_value)                                                                                         \
                assert_string_equal(name_of_value((type)i), name);                                                     \
            clv_status status = parse_name ? parse_name(&value, name, &err) : CLV_OK;                                  \
            if (parse_name &&                                                                                          \
                (status != (i < 0 || i == n ? (code) : CLV_OK) || (status == CLV_OK && (int)value != i)))              \
                fail_msg("%s '%s': %s %d", #parse, name, clv_status_name(status), (int)value);                         \
            for (int k = 0; status != CLV_OK && k < n; k++) /* the message lists the valid names */                    \
                if (!strstr(err.message, names[k]))                                                                    \
                    fail_msg("%s: '%s' lacks %s", #parse, err.message, names[k]);                                      \
        }                                                                                                              \
    } while (0)

static void test_names(void **state)
{
    (void)state;
    NAMES(clv_status, clv_status_name, NULL, CLV_OK, "ok", "invalid", "shape", "dtype", "syntax", "axis", "limit",
          "memory", "io", "format", "not-found", "exists", "unsupported", "peer", "timeout", "not-finite", "check",
          "cancelled");
    NAMES(clv_dtype, clv_dtype_name, clv_dtype_parse, CLV_EDTYPE, "f32", "bf16", "f64", "f16", "i32", "i64", "u8",
          "bool");
    NAMES(clv_comm_dtype, clv_comm_dtype_name, clv_comm_dtype_parse, CLV_EDTYPE, "f32", "bf16", "f16", "q8");
    NAMES(clv_quant, clv_quant_name, clv_quant_parse, CLV_EDTYPE, "none", "q8", "q4");
    NAMES(clv_plan_block, clv_plan_block_name, NULL, CLV_OK, "none", "ffn", "attention", "gpt", "llama");
    NAMES(clv_recompute, clv_recompute_name, clv_recompute_parse, CLV_EINVAL, "none", "selective", "full");
    NAMES(clv_candidate_verdict, clv_candidate_verdict_name, NULL, CLV_OK, "chosen", "costlier", "moves_stationary",
          "illegal");
    NAMES(clv_optimizer, clv_optimizer_name, clv_optimizer_parse, CLV_EINVAL, "adamw", "sgd", "lion");
    NAMES(clv_flight_kind, clv_flight_kind_name, NULL, CLV_OK, "failed", "differs", "missing", "straggler", "lost",
          "waits", "reported");
    NAMES(clv_lr_schedule_shape, NULL, clv_lr_schedule_shape_parse, CLV_EINVAL, "cosine", "linear", "constant", "wsd");
    NAMES(clv_on_nan, NULL, clv_on_nan_parse, CLV_EINVAL, "stop", "skip");
    assert_string_equal(clv_status_text((clv_status)-1), "not a status of this library");
    assert_string_equal(clv_status_text(CLV_ECANCELLED), "the caller cancelled the call");
}

/* ---- defaults of builders ---- */

static clv_value make_attention(clv_graph *graph, const clv_attention_options *o)
{
    clv_value q = input(graph, "q", CLV_F32, DIMS(1, 4, 2, 16)), kv = input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 16));
    return clv_attention(graph, q, kv, o);
}

static clv_value make_adamw(clv_graph *graph, const clv_adamw_options *o)
{
    clv_value w = clv_state(graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_adamw(graph, w, input(graph, "g", CLV_F32, DIMS(4)), scalar(graph, "lr", CLV_F32),
              scalar(graph, "step", CLV_I32), o);
    return w;
}

static clv_value make_sgd(clv_graph *graph, const clv_sgd_options *o)
{
    clv_value w = clv_state(graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_sgd(graph, w, input(graph, "g", CLV_F32, DIMS(4)), scalar(graph, "lr", CLV_F32), o);
    return w;
}

static clv_value make_lion(clv_graph *graph, const clv_lion_options *o)
{
    clv_value w = clv_state(graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_lion(graph, w, input(graph, "g", CLV_F32, DIMS(4)), scalar(graph, "lr", CLV_F32), o);
    return w;
}

static clv_value stream(clv_graph *graph)
{
    return input(graph, "x", CLV_F32, DIMS(1, 4, 8));
}

static const clv_axis_rules rules = {.n = 2, .rule = {{CLV_MLP, 1, {0}}, {CLV_HEADS, 1, {0}}}};

static clv_value make_column(clv_graph *graph, const clv_linear_options *o)
{
    return clv_column_parallel_linear(graph, stream(graph), 6, &rules, o);
}

static clv_value make_row(clv_graph *graph, const clv_linear_options *o)
{
    return clv_row_parallel_linear(graph, stream(graph), 6, &rules, o);
}

static clv_value make_self_attention(clv_graph *graph, const clv_self_attention_options *o)
{
    return clv_parallel_attention(graph, stream(graph), &rules, o);
}

static clv_value make_block(clv_graph *graph, const clv_block_options *o)
{
    return clv_transformer_block(graph, stream(graph), &rules, o);
}

static char *text_of(clv_graph *graph)
{
    err = (clv_error){0};
    must(clv_graph_status(graph, &err), &err);
    size_t size = clv_graph_print(NULL, 0, graph) + 1;
    char *text = malloc(size);
    clv_graph_print(text, size, graph);
    clv_graph_free(graph);
    return text;
}

/* Two structs of options (or NULL) of a builder make the same graph, or not. */
#define SAME(make, a, b)                                                                                               \
    do {                                                                                                               \
        clv_graph *of_a = new_graph(), *of_b = new_graph();                                                            \
        make(of_a, a);                                                                                                 \
        make(of_b, b);                                                                                                 \
        char *text_a = text_of(of_a), *text_b = text_of(of_b);                                                         \
        assert_string_equal(text_a, text_b);                                                                           \
        free(text_a);                                                                                                  \
        free(text_b);                                                                                                  \
    } while (0)
#define DIFFER(make, a, b)                                                                                             \
    do {                                                                                                               \
        clv_graph *of_a = new_graph(), *of_b = new_graph();                                                            \
        make(of_a, a);                                                                                                 \
        make(of_b, b);                                                                                                 \
        char *text_a = text_of(of_a), *text_b = text_of(of_b);                                                         \
        assert_string_not_equal(text_a, text_b);                                                                       \
        free(text_a);                                                                                                  \
        free(text_b);                                                                                                  \
    } while (0)
#define ATTENTION(...) (&(clv_attention_options){__VA_ARGS__})
#define ADAMW(...)     (&(clv_adamw_options){__VA_ARGS__})
#define SGD(...)       (&(clv_sgd_options){__VA_ARGS__})
#define LION(...)      (&(clv_lion_options){__VA_ARGS__})
#define LINEAR(...)    (&(clv_linear_options){__VA_ARGS__})
#define SELF(...)      (&(clv_self_attention_options){.heads = 2, __VA_ARGS__})

static void test_defaults_of_builders(void **state)
{
    (void)state;
    SAME(make_attention, NULL, ATTENTION(.causal = true));
    SAME(make_attention, ATTENTION(0), ATTENTION(.scale = 0.25)); /* 1/sqrt(16) */
    DIFFER(make_attention, ATTENTION(0), ATTENTION(.causal = true));
    SAME(make_adamw, NULL, ADAMW(.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0));
    SAME(make_adamw, NULL, ADAMW(0));
    DIFFER(make_adamw, ADAMW(0), ADAMW(.eps = 1e-8, .exact = true));
    SAME(make_adamw, ADAMW(.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8),
         ADAMW(.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .exact = true));
    SAME(make_sgd, NULL, SGD(.momentum = 0.9, .weight_decay = 0));
    DIFFER(make_sgd, SGD(0), SGD(.exact = true));
    SAME(make_lion, NULL, LION(.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0));
    DIFFER(make_lion, LION(0), LION(.exact = true));
    SAME(make_column, LINEAR(0), LINEAR(.name = "linear", .features = CLV_MLP));
    SAME(make_row, LINEAR(0), LINEAR(.name = "linear", .features = CLV_MLP));
    DIFFER(make_column, LINEAR(0), LINEAR(.features = CLV_HEADS));
    SAME(make_self_attention, SELF(0), SELF(.kv_heads = 2, .head_dim = 4));
    clv_block_options block = clv_block_defaults(CLV_BLOCK_GPT, 2, 2, 8), zero = block;
    assert_true(block.eps == 1e-5);
    zero.eps = 0;
    SAME(make_block, &block, &zero);
}

/* ---- what builders refuse ---- */

#define REFUSED(code, words, build)                                                                                    \
    do {                                                                                                               \
        clv_graph *graph = new_graph();                                                                                \
        clv_value x = stream(graph), q = input(graph, "q", CLV_F32, DIMS(1, 4, 2, 8));                                 \
        clv_value n = input(graph, "n", CLV_I32, DIMS(4));                                                             \
        build;                                                                                                         \
        (void)x, (void)q, (void)n;                                                                                     \
        FAILS(code, words, clv_graph_status(graph, &err));                                                             \
        clv_graph_free(graph);                                                                                         \
    } while (0)
#define ROPE(...)   clv_rope(graph, q, CLV_NONE, &(clv_rope_options){__VA_ARGS__})
#define MLP(...)    clv_parallel_mlp(graph, x, &rules, &(clv_mlp_options){__VA_ARGS__})
#define ATTEND(...) clv_parallel_attention(graph, x, &rules, &(clv_self_attention_options){__VA_ARGS__})

static void test_refused_builders(void **state)
{
    static const float slow[4] = {1, 0.1f, 0.01f, 0.001f}, endless[4] = {1, INFINITY, 1, 1};
    (void)state;
    REFUSED(CLV_EINVAL, "theta", ROPE(0));
    REFUSED(CLV_EINVAL, "dims", ROPE(.theta = 1e4, .dims = 3));
    REFUSED(CLV_EINVAL, "dims", ROPE(.theta = 1e4, .dims = 10));
    REFUSED(
        CLV_EINVAL, "1024",
        clv_rope(graph, clv_fill(graph, CLV_F32, DIMS(1, 4, 1, 1026), 0), CLV_NONE, &(clv_rope_options){.theta = 1e4}));
    REFUSED(CLV_ELIMIT, "1024",
            clv_attention(graph, clv_fill(graph, CLV_F32, DIMS(1, 4, 1, 1025), 0),
                          clv_fill(graph, CLV_F32, DIMS(1, 4, 2, 1, 1025), 0), NULL));
    REFUSED(CLV_EINVAL, "factor", ROPE(.theta = 1e4, .factor = -1));
    REFUSED(CLV_EINVAL, "original_positions", ROPE(.theta = 1e4, .low_frequency = 1, .high_frequency = 4));
    REFUSED(CLV_EINVAL, "frequency",
            ROPE(.theta = 1e4, .low_frequency = 4, .high_frequency = 1, .original_positions = 8));
    REFUSED(CLV_EINVAL, "inv_freq", ROPE(.theta = 1e4, .factor = 2, .inv_freq = slow));
    REFUSED(CLV_EINVAL, "inv_freq", ROPE(.theta = 1e4, .inv_freq = endless));
    REFUSED(CLV_EINVAL, "ffn", MLP(.activation = CLV_GELU));
    REFUSED(CLV_EINVAL, "there is no kind 0", MLP(.ffn = 8));
    REFUSED(CLV_EINVAL, "valid: CLV_SILU", MLP(.ffn = 8, .activation = CLV_TANH, .gated = true));
    REFUSED(CLV_EINVAL, "valid: CLV_SILU", MLP(.ffn = 8, .activation = CLV_EXP, .gated = true));
    REFUSED(CLV_EINVAL, "heads", ATTEND(0));
    REFUSED(CLV_EINVAL, "KV heads must divide", ATTEND(.heads = 4, .kv_heads = 3));
    REFUSED(CLV_EINVAL, "theta", ATTEND(.heads = 2, .rope.theta = -1));
    REFUSED(CLV_EINVAL, "window", ATTEND(.heads = 2, .window = -1));
    REFUSED(CLV_ESHAPE, "cache", ATTEND(.heads = 2, .context = -1));
    REFUSED(CLV_EINVAL, "dropout", ATTEND(.heads = 2, .dropout = 1));
    REFUSED(CLV_EINVAL, "dropout", clv_dropout(graph, x, 1, clv_key_seed(1), CLV_NONE));
    REFUSED(CLV_EINVAL, "dropout", clv_dropout(graph, x, -0.1, clv_key_seed(1), CLV_NONE));
    REFUSED(CLV_EINVAL, "clip", clv_clip_scale(graph, scalar(graph, "norm", CLV_F32), 0));
    REFUSED(CLV_EINVAL, "fill", clv_fill(graph, CLV_BOOL, 0, NULL, 2));
    REFUSED(CLV_EINVAL, "fill", clv_fill(graph, CLV_U8, 0, NULL, 256));
    REFUSED(CLV_EINVAL, "fill", clv_fill(graph, CLV_I32, 0, NULL, 0.5));
    REFUSED(CLV_EINVAL, "", clv_einsum(graph, "bsm,mf->bsf", x, CLV_NONE));
    REFUSED(CLV_EINVAL, "", clv_end_block(graph));
    REFUSED(CLV_EINVAL, "", clv_graph_pop_scope(graph));
}

/* ---- values of ops ---- */

static const clv_rope_options plain_rope = {.theta = 1e4}, same_rope = {.theta = 1e4, .dims = 4, .factor = 1};

/* X(name, the op of x, what it makes of x), on x = f32[1,1,1,4]. */
static void test_values_of_ops(void **state)
{
    static const double x_is[4] = {0, -1, 2, 3};
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(1, 1, 1, 4)), none = CLV_NONE;
    clv_value n = input(graph, "n", CLV_I32, DIMS(4)), zeros = clv_fill(graph, CLV_I32, DIMS(4), 0);
    clv_value table = input(graph, "table", CLV_F32, DIMS(3, 1)), norm = scalar(graph, "norm", CLV_F32), d[3];
    (void)state;
    struct {
        clv_value y;
        double want[4];
    } rows[] = {
        {clv_binary(graph, CLV_DIV, n, zeros), {0, INT32_MIN, INT32_MAX, INT32_MAX}},           /* integers saturate */
        {clv_binary(graph, CLV_DIV, n, clv_fill(graph, CLV_I32, DIMS(4), -2)), {0, 0, -1, -1}}, /* and are truncated */
        {clv_add(graph, clv_fill(graph, CLV_I32, DIMS(4), INT32_MAX), n),
         {INT32_MAX, INT32_MAX - 1, INT32_MIN + 1.0, INT32_MIN + 2.0}},
        {clv_cast(graph, clv_scale(graph, x, 0.9), CLV_I32), {0, 0, 1, 2}},
        {clv_equal(graph, x, clv_fill(graph, CLV_F32, DIMS(1, 1, 1, 1), 2)), {0, 0, 1, 0}},
        {clv_iota(graph, 4, none), {0, 1, 2, 3}},
        {clv_iota(graph, 4, clv_fill(graph, CLV_I32, 0, NULL, 5)), {5, 6, 7, 8}},
        {clv_embedding(graph, table, n), {10, 0, 30, 0}}, /* ids 0, -1, 2, 3 of 3 */
        {clv_pad(graph, n, (int64_t[]){1}, (int64_t[]){2}), {0, 0, -1, 2}},
        {clv_reduce(graph, CLV_MEAN, x, (int[]){3}, 1, true), {1}},
        {clv_clip_scale(graph, norm, 2), {2 / (8 + 1e-6)}},
        {clv_clip_scale(graph, norm, 20), {1}},
        {clv_clip_scale(graph, clv_scale(graph, norm, INFINITY), 2), {NAN}},
        {clv_clip_scale(graph, clv_scale(graph, norm, NAN), 2), {NAN}},
        {clv_dropout(graph, x, 0, clv_key_seed(1), none), {0, -1, 2, 3}},
        {clv_cross_entropy(graph, clv_fill(graph, CLV_F32, DIMS(4, 5), 1), zeros, 2),
         {1.6094379, 1.6094379, 1.6094379, 1.6094379}},
        {clv_cross_entropy(graph, clv_fill(graph, CLV_F32, DIMS(4, 5), 1), zeros, 0), {0, 0, 0, 0}},
        {clv_count_labels(graph, n, 2, CLV_F32), {3}},
        {clv_global_norm(graph, (clv_value[]){x, x}, 2), {5.2915026}}, /* sqrt(28) */
    };
    clv_value plain = clv_rope(graph, x, none, &plain_rope), same = clv_rope(graph, x, none, &same_rope);
    const clv_unary_kind kinds[3] = {CLV_SQRT, CLV_RSQRT, CLV_LOG};
    for (int k = 0; k < 3; k++)
        clv_gradients(graph, clv_unary(graph, kinds[k], x), x, &x, 1, &d[k]);
    must(clv_graph_status(graph, &err), &err);
    graph_eval *eval = graph_eval_new(graph, SEED);
    for (int i = 0; i < 4; i++) {
        graph_eval_set(eval, x, i, x_is[i]);
        graph_eval_set(eval, n, i, x_is[i]);
        if (i < 3)
            graph_eval_set(eval, table, i, 10 * (i + 1));
    }
    graph_eval_set(eval, norm, 0, 8);
    graph_eval_must_run(eval, -1);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        clv_type type = clv_graph_type(graph, rows[r].y);
        for (int i = 0; i < 4 && i < clv_type_elems(&type); i++) {
            double got = graph_eval_get(eval, rows[r].y, i), want = rows[r].want[i];
            if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 1e-6 * fabs(want)))
                fail_msg("row %zu, element %d: %.9g, not %.9g", r, i, got, want);
        }
    }
    assert_memory_equal(graph_eval_data(eval, plain), graph_eval_data(eval, same), 4 * sizeof(float));
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- layouts, rules, reshards ---- */

static void test_layouts(void **state)
{
    static const clv_logical_axis ffn[2] = {CLV_UNNAMED, CLV_MLP}, misspelt[2] = {"1st", CLV_MLP};
    const clv_subaxis other = {.axis = 3, .pre = 1, .size = 2};
    clv_axis_rules of_y = {0}, taken = {0}, many = {.n = CLV_MAX_RULES};
    clv_mesh mesh, wide, one;
    clv_layout layout = clv_layout_replicated(2), full, partial;
    clv_subaxis all[2 * CLV_MAX_SUBAXES + 1] = {0};
    clv_reshard *reshard;
    char text[CLV_LAYOUT_TEXT];
    (void)state;
    MUST(clv_mesh_parse(&mesh, "x=2,y=4", &err));
    MUST(clv_mesh_parse(&one, "x=2", &err));
    MUST(clv_mesh_parse(&wide, "a=1073741824", &err)); /* 2^30: more sub-axes than a layout has */
    /* layout.h */
    FAILS(CLV_EAXIS, "", clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_SUM, other, &err));
    FAILS(CLV_EINVAL, "",
          clv_layout_add_partial(&layout, &mesh, CLV_REDUCTION_MIN, clv_mesh_whole_axis(&mesh, 0), &err));
    for (int i = 0; i < CLV_MAX_SUBAXES; i++)
        all[i] = (clv_subaxis){.axis = 0, .pre = 1 << (CLV_MAX_SUBAXES - 1 - i), .size = 2};
    FAILS(CLV_ELIMIT, "30", clv_layout_set_dim(&layout, &wide, 0, all, 2 * CLV_MAX_SUBAXES + 1, 1, &err));
    full = layout;
    for (int i = 0; i < CLV_MAX_SUBAXES; i++) /* from the last on, so that no two are merged */
        MUST(clv_layout_shard_dim(&full, &wide, 0, all[i], &err));
    assert_int_equal(clv_layout_axes(&(const clv_subaxis *){NULL}, &full, 0), CLV_MAX_SUBAXES);
    MUST(clv_layout_parse(&partial, "_ + sum{x}", &mesh, 1, &err));
    FAILS(CLV_EINVAL, "",
          clv_layout_add_partial(&partial, &mesh, CLV_REDUCTION_MAX, clv_mesh_whole_axis(&mesh, 1), &err));
    clv_index_print(text, sizeof text, 3, (int64_t[]){2, 3, 8}, 31);
    assert_string_equal(text, "[1,0,7]");
    clv_index_print(text, sizeof text, 0, NULL, 0);
    assert_string_equal(text, "");
    assert_int_equal(clv_layout_block_count(&layout, 0), 1);
    assert_int_equal(clv_shard_elems(&(clv_shard){0}), 1);
    /* rules.h */
    MUST(clv_axis_rules_add(&of_y, CLV_MLP, "y", &mesh, &err));
    FAILS(CLV_EAXIS, "x", clv_axis_rules_add(&taken, CLV_MLP, "z", &mesh, &err));
    FAILS(CLV_EUNSUPPORTED, "layers", clv_axis_rules_add(&taken, CLV_LAYERS, "x,y", &mesh, &err));
    FAILS(CLV_EINVAL, "1st", clv_axis_rules_add(&taken, "1st", "x", &mesh, &err));
    for (int i = 0; i < CLV_MAX_RULES; i++)
        many.rule[i] = (clv_axis_rule){.name = CLV_MLP};
    FAILS(CLV_ELIMIT, "32", clv_axis_rules_add(&many, CLV_MLP, "", &mesh, &err));
    assert_int_equal(taken.n, 0);
    FAILS(CLV_EAXIS, "", clv_axis_rules_layout(&layout, &of_y, &one, 2, ffn, &err));
    FAILS(CLV_EINVAL, "1st", clv_axis_rules_layout(&layout, &of_y, &mesh, 2, misspelt, &err));
    of_y.n_optimizer = 1;
    of_y.optimizer[0] = 1;
    layout = clv_layout_replicated(2);
    FAILS(CLV_EAXIS, "", clv_axis_rules_optimizer_layout(&partial, &of_y, &one, &layout, (int64_t[]){4, 4}, &err));
    MUST(clv_mesh_parse(&one, "X=2,Y=4", &err));
    FAILS(CLV_EAXIS, "gspmd-2d", clv_axis_rules_preset(&taken, "megatron", &one, &err));
    FAILS(CLV_EINVAL, "megatron-sp", clv_axis_rules_preset(&taken, "megatron_sp", &mesh, &err));
    static const char *const bad[][2] = {{"{\"rules\": 7}", "rules"},
                                         {"{\"rules\": [[\"mlp\", \"z\"]]}", "z"},
                                         {"{\"rules\": [[\"mlp\", [\"x\", \"x\"]]]}", "twice"},
                                         {"{\"rules\": [[\"1st\", \"x\"]]}", "1st"}};
    const clv_status codes[] = {CLV_EFORMAT, CLV_EAXIS, CLV_EAXIS, CLV_EINVAL};
    for (int i = 0; i < 4; i++)
        FAILS(codes[i], bad[i][1], clv_axis_rules_parse(&taken, bad[i][0], strlen(bad[i][0]), &mesh, "here", &err));
    /* reshard.h */
    MUST(clv_layout_parse(&full, "x,_", &mesh, 2, &err));
    MUST(clv_layout_parse(&partial, "x*2,_", &mesh, 2, &err));
    FAILS(CLV_ESHAPE, "", clv_reshard_new(&reshard, &mesh, &partial, &full, (int64_t[]){5, 4}, CLV_F32, &err));
    FAILS(CLV_EDTYPE, "", clv_reshard_new(&reshard, &mesh, &full, &full, (int64_t[]){4, 4}, (clv_dtype)99, &err));
    full.axes[0].axis = 2;
    FAILS(CLV_EAXIS, "", clv_reshard_new(&reshard, &mesh, &full, &layout, (int64_t[]){4, 4}, CLV_F32, &err));
    MUST(clv_reshard_new(&reshard, &mesh, &partial, &partial, (int64_t[]){4, 4}, CLV_F32, &err));
    assert_int_equal(clv_reshard_step_count(reshard), 0);
    assert_true(clv_reshard_bytes(reshard) == 0 && clv_reshard_lower_bound_bytes(reshard) == 0);
    clv_reshard_free(reshard);
    /* dtype.h */
    FAILS(CLV_EDTYPE, "", clv_shape_check((int64_t[]){4}, 1, (clv_dtype)99, &err));
}

/* ---- texts and numbers ---- */

static void test_plain_values(void **state)
{
    static const char *const presets[] = {"dp",       "fsdp",  "megatron",         "megatron-sp", "fsdp+megatron-sp",
                                          "gspmd-2d", "zero1", "zero1+megatron-sp"};
    clv_subaxis subs[] = {{0, 1, 1}, {0, 1, 2}, {0, 2, 2}, {0, 4, 1}};
    clv_mesh mesh;
    char text[CLV_TYPE_TEXT];
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_string_equal(clv_axis_rules_preset_name(i), presets[i]);
    assert_null(clv_axis_rules_preset_name(8));
    assert_int_equal(clv_type_print(text, sizeof text, &(clv_type){CLV_F32, 3, {4, 16, 64}}), 12);
    assert_string_equal(text, "f32[4,16,64]");
    const clv_type longest = {CLV_BF16,
                              CLV_MAX_RANK,
                              {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    assert_true(clv_type_print(text, sizeof text, &longest) < CLV_TYPE_TEXT);
    MUST(clv_mesh_parse(&mesh, "model=8", &err));
    assert_int_equal(clv_subaxis_print(text, sizeof text, (clv_subaxis){0, 1, 8}, &mesh), 5);
    assert_string_equal(text, "model");
    assert_int_equal(clv_subaxis_print(text, sizeof text, (clv_subaxis){0, 2, 2}, &mesh), 10);
    assert_string_equal(text, "model:(2)2");
    assert_int_equal(clv_subaxes_normalize(subs, 4), 1); /* sizes of 1 go, neighbours are one */
    assert_true(subs[0].axis == 0 && subs[0].pre == 1 && subs[0].size == 4);
    for (int d = 0; d < CLV_DTYPE_COUNT; d++) {
        const bool is_float = clv_dtype_is_float((clv_dtype)d);
        unsigned char bytes[3 * 8] = {0};
        assert_int_equal(clv_dtype_first_nonfinite((clv_dtype)d, bytes, 3), -1);
        clv_dtype_store((clv_dtype)d, bytes, 2, -INFINITY);
        assert_int_equal(clv_dtype_first_nonfinite((clv_dtype)d, bytes, 3), is_float ? 2 : -1);
        clv_dtype_store((clv_dtype)d, bytes, 1, NAN);
        assert_int_equal(clv_dtype_first_nonfinite((clv_dtype)d, bytes, 3), is_float ? 1 : -1);
    }
    assert_true(clv_key_seed((UINT64_C(1) << 32) + 5).word[0] == 0 &&
                clv_key_seed((UINT64_C(1) << 32) + 5).word[1] == 5);
}

/* ---- machines, programs, sessions ---- */

static void test_machines(void **state)
{
    static const char begin_of_profile[] =
        "{\"name\":\"n\",\"ranks_per_host\":1,\"hosts\":1,\"memory_bytes\":1e9,\"flops_per_s\":{\"f32\":1e9},"
        "\"memory_bytes_per_s\":1e8,\"efficiency\":1,\"instruction_s\":1e-6,\"host\":{\"alpha_s\":1e-6,\"bytes_per_s\":"
        "1e7}";
    clv_machine_info info = {.size = sizeof info};
    clv_machine *machine;
    char text[1 << 14];
    (void)state;
    MUST(clv_machine_get_info(NULL, &info, &err));
    assert_true(info.memory_bytes_per_s == 20e9 && info.host.alpha_s == 5e-6 && info.host.bytes_per_s == 4e9);
    snprintf(text, sizeof text, "%s}", begin_of_profile);
    MUST(clv_machine_parse(&machine, text, strlen(text), "here", &err));
    assert_true(clv_machine_flops(machine, CLV_F64) == 1e9); /* f32's */
    clv_machine_free(machine);
    snprintf(text, sizeof text, "%s,\"ops\":{\"map\":{\"f33\":[[1,1]]}}}", begin_of_profile);
    FAILS(CLV_EFORMAT, "here: \"map\": dtype 'f33'", clv_machine_parse(&machine, text, strlen(text), "here", &err));
    int n = snprintf(text, sizeof text, "%s,\"ops\":{\"map\":{\"f32\":[[1,1]]}", begin_of_profile);
    for (int i = 0; i < 256; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"op%d\":{\"f32\":[[1,1]]}", i);
    snprintf(text + n, sizeof text - (size_t)n, "}}");
    FAILS(CLV_ELIMIT, "here", clv_machine_parse(&machine, text, strlen(text), "here", &err));
    FAILS(CLV_EINVAL, "", clv_machine_measure(&machine, &(clv_measure_options){.ranks = -1}, &err));
}

static void test_programs_and_sessions(void **state)
{
    clv_mesh two = {1, {{"model", 2}}}, three = {1, {{"model", 3}}};
    const clv_plan_options gpt = {.block = CLV_PLAN_BLOCK_GPT, .mesh = &two, .mode = CLV_PLAN_MODE_GRAD, .sp = true};
    clv_program_tensor tensor = {.size = sizeof tensor, .name = "x"};
    clv_state_info info = {.size = sizeof info, .name = "x"};
    clv_session_stats stats = {.size = sizeof stats};
    clv_memory m = {.size = sizeof m};
    clv_prediction prediction = {.size = sizeof prediction};
    clv_program *program;
    clv_session *session, *none;
    (void)state;
    MUST(clv_plan_compile(&program, &gpt, &err));
    MUST(clv_program_tensor_at(program, 1 << 20, &tensor, &err));
    assert_null(tensor.name);
    assert_int_equal(clv_program_candidate_count(program), 0);
    assert_int_equal(clv_program_decision_count(program), 0);
    MUST(clv_program_memory(program, &m, &err));
    assert_int_equal(m.region, m.gradients + m.activations + m.gathered + m.inputs + m.communication + m.temporaries +
                                   m.workspace + m.fragments);
    assert_int_equal(m.total, m.region + m.parameters + m.optimizer + m.cache + m.other_state);
    assert_int_equal(clv_program_region_bytes(program), m.region);
    MUST(clv_program_predict(program, NULL, &prediction, &err));
    clv_machine_info host = {.size = sizeof host};
    MUST(clv_machine_get_info(NULL, &host, &err));
    double seconds = 0, bytes = 0;
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_instruction_info at = {.size = sizeof at};
        clv_collective of = {.size = sizeof of};
        MUST(clv_program_instruction(program, i, &at, &err));
        double predicted = clv_program_predict_instruction(program, NULL, i), stated;
        if (at.collective < 0) /* the formulas of clv_prediction */
            stated = host.instruction_s + fmax(at.flops / (1e11 * host.efficiency), at.bytes / host.memory_bytes_per_s);
        else
            stated = at.moves ? host.host.alpha_s + at.bytes / host.host.bytes_per_s : predicted;
        if (!(fabs(predicted - stated) <= 1e-9 * stated))
            fail_msg("%s %s: %g s, by the formula %g", at.name, at.kind, predicted, stated);
        seconds += predicted;
        if (at.collective < 0)
            continue;
        MUST(clv_program_collective(program, at.collective, &of, &err));
        assert_true(of.instruction == i && of.completes_at == i && of.n_chunks == 0 && of.bytes == at.bytes);
        bytes += of.bytes;
        if (strcmp(of.kind, "all_reduce") == 0) /* 2 (n-1)/n times what it sums */
            assert_true(of.bytes == 1.0 * (double)clv_type_elems(&of.type) * 4);
    }
    assert_true(bytes > 0 && fabs(seconds - prediction.seconds) <= 1e-9 * seconds && prediction.overlapped == 0);

    MUST(clv_session_new(&session, &two, NULL, &err));
    FAILS(CLV_EINVAL, "", clv_session_new(&none, &three, &(clv_session_options){.transport = "mpi"}, &err));
    FAILS(CLV_EINVAL, "threads", clv_session_new(&none, &two, &(clv_session_options){.transport = "no"}, &err));
    FAILS(CLV_EINVAL, "cpu", clv_session_new(&none, &two, &(clv_session_options){.device = "no"}, &err));
    FAILS(CLV_ELIMIT, "16384",
          clv_session_new(&none, &(clv_mesh){1, {{"x", 17}}}, &(clv_session_options){.threads_per_rank = 1000}, &err));
    FAILS(CLV_EINVAL, "60000", clv_session_new(&none, &two, &(clv_session_options){.timeout_ms = -1}, &err));
    MUST(clv_session_load(session, program, &err));
    assert_int_equal(clv_session_rank_bytes(session), m.total);
    assert_true(clv_session_instruction_seconds(session, program, 0) == 0);
    MUST(clv_session_state(session, 1 << 20, &info, &err));
    assert_null(info.name);
    MUST(clv_session_take_stats(session, NULL, &err));
    MUST(clv_session_take_stats(session, &stats, &err));
    assert_true(stats.runs == 0 && stats.seconds == 0);
    clv_session_unload(session, program);
    clv_session_unload(session, program); /* does nothing */
    clv_session_free(session);
    clv_program_free(program);
}

/* ---- op.h ---- */

static clv_status no_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *why)
{
    (void)op, (void)why;
    out[0] = in[0];
    return CLV_OK;
}

static int last_factor, one_too_many;

static void many_factors(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    (void)op, (void)in, (void)out;
    for (int i = 0; i < CLV_MAX_FACTORS; i++)
        last_factor = clv_rule_add_factor(rule, 1, CLV_REDUCTION_NONE);
    one_too_many = clv_rule_add_factor(rule, 1, CLV_REDUCTION_NONE);
}

static clv_status no_run(const clv_call *call, clv_error *why)
{
    (void)call, (void)why;
    return CLV_OK;
}

static void test_ops(void **state)
{
    static const clv_op_def tableless = {.name = "test.tableless",
                                         .min_in = 1,
                                         .max_in = 1,
                                         .n_out = 1,
                                         .attrs_size = 8,
                                         .shape = no_shape,
                                         .rule = many_factors,
                                         .run = no_run};
    static const char text[] = "graph on x=2\n%1 f32[2] = input \"x\"\n%2 f32[2] = test.tableless \"y\" (%1)";
    const clv_call alone = {0};
    clv_graph *graph = new_graph(), *parsed;
    clv_value x = input(graph, "x", CLV_F32, DIMS(2)), y = {7};
    (void)state;
    clv_emit(graph, &tableless, &(int64_t){0}, &x, 1, &y);
    FAILS(CLV_ELIMIT, "16", clv_graph_status(graph, &err));
    assert_true(last_factor == CLV_MAX_FACTORS - 1 && one_too_many == -1 && y.id == 0);
    clv_graph_free(graph);
    FAILS(CLV_EUNSUPPORTED, "test.tableless", clv_graph_parse(&parsed, text, &err));
    assert_true(clv_call_rank(&alone) == 0 && clv_call_threads(&alone) == 1 && clv_call_cancelled(&alone) == 0);
    assert_true(clv_view_elems(&(clv_view){0}) == 1 && clv_view_elems(&(clv_view){.rank = 1}) == 0);
    assert_null(clv_op_find("test.nothing"));
    assert_string_equal(clv_op_display_name(clv_op_find("test.tableless")), "test.tableless");
    const clv_op_def *last = NULL;
    for (const clv_op_def *op; (op = clv_op_next(last)) != NULL; last = op)
        assert_true(last != NULL || op == clv_op_find(op->name));
    assert_ptr_equal(last, clv_op_find("test.tableless"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_defaults_of_builders),
        cmocka_unit_test(test_values_of_ops),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_refused_builders),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_plain_values),
        cmocka_unit_test(test_programs_and_sessions),
        cmocka_unit_test(test_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
