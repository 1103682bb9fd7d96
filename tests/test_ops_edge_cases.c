/* test_ops_edge_cases.c - ops where it is easy to go wrong: tensors without elements, forward and gradient; values in
 * 32 and 16 bits against f64 on the same rounded operands; ties of max and min; what is not a number stays so. */
#include "op_cases.h"

/* ---- tensors without elements ---- */

typedef clv_value (*maker)(clv_graph *graph, clv_value x);

static clv_value make_map(clv_graph *graph, clv_value x)
{
    return clv_unary(graph, CLV_GELU, x);
}

static clv_value make_combine(clv_graph *graph, clv_value x)
{
    return clv_binary(graph, CLV_MAXIMUM, clv_mul(graph, x, x), x);
}

static clv_value make_where(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    return clv_where(graph, input(graph, "c", CLV_U8, type.rank, type.shape), x, clv_scale(graph, x, 2));
}

static clv_value make_cast(clv_graph *graph, clv_value x)
{
    return clv_cast(graph, clv_cast(graph, x, CLV_F32), CLV_F64);
}

static clv_value make_sum(clv_graph *graph, clv_value x)
{
    return clv_reduce(graph, CLV_SUM, x, (int[]){1}, 1, true);
}

static clv_value make_transpose(clv_graph *graph, clv_value x)
{
    return clv_transpose(graph, x, (int[]){2, 0, 1});
}

static clv_value make_slice(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t begin[3] = {0, 0, 1};
    if (type.shape[2] < 1)
        begin[2] = 0;
    return clv_slice(graph, x, begin, type.shape);
}

static clv_value make_pad(clv_graph *graph, clv_value x)
{
    return clv_pad(graph, x, (int64_t[]){0, 1, 0}, (int64_t[]){1, 0, 0});
}

static clv_value make_concat(clv_graph *graph, clv_value x)
{
    return clv_concat(graph, (clv_value[]){x, x}, 2, 1);
}

static clv_value make_softmax(clv_graph *graph, clv_value x)
{
    return clv_softmax(graph, x);
}

static clv_value make_rms_norm(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    return clv_rms_norm(graph, x, input(graph, "gain", CLV_F64, 1, &type.shape[2]), 1e-5);
}

static clv_value make_product(clv_graph *graph, clv_value x)
{
    clv_type type = clv_graph_type(graph, x);
    return clv_einsum(graph, "abm,mf->abf", x, input(graph, "w", CLV_F64, DIMS(type.shape[2], 5)));
}

static clv_value make_dropout(clv_graph *graph, clv_value x)
{
    return clv_dropout(graph, x, 0.5, clv_key_seed(1), CLV_NONE);
}

static const struct {
    const char *name;
    maker make;
} makers[] = {{"map", make_map},         {"combine", make_combine},   {"where", make_where},
              {"cast", make_cast},       {"sum", make_sum},           {"transpose", make_transpose},
              {"slice", make_slice},     {"pad", make_pad},           {"concat", make_concat},
              {"softmax", make_softmax}, {"rms_norm", make_rms_norm}, {"product", make_product},
              {"dropout", make_dropout}};

/* Each dimension empty in turn: shapes follow, nothing is touched, sums of nothing are zero, gradients have the shape.
 */
static void test_empty(void **state)
{
    static const int64_t shapes[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}};
    for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            clv_error err = {0};
            clv_graph *graph = new_graph();
            clv_value x = input(graph, "x", CLV_F64, 3, shapes[s]), y = makers[m].make(graph, x), d;
            clv_type type = clv_graph_type(graph, y);
            clv_value seed = input(graph, "seed", CLV_F64, type.rank, type.shape);
            clv_gradients(graph, y, seed, &x, 1, &d);
            if (clv_graph_status(graph, &err) != CLV_OK)
                fail_msg("%s of an empty tensor: %s", makers[m].name, err.message);
            clv_type of_d = clv_graph_type(graph, d), of_x = clv_graph_type(graph, x);
            assert_true(clv_type_equal(&of_d, &of_x));
            graph_eval *eval = graph_eval_new(graph, SEED);
            graph_eval_must_run(eval, -1);
            bool sums_nothing =
                makers[m].make == make_sum || makers[m].make == make_product || makers[m].make == make_pad;
            for (int64_t i = 0; sums_nothing && i < clv_type_elems(&type); i++)
                assert_true(graph_eval_get(eval, y, i) == 0);
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

static void test_reductions_of_nothing(void **state)
{
    for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtypes[t], DIMS(2, 0));
        clv_value most = clv_reduce(graph, CLV_MAX, x, (int[]){1}, 1, false);
        clv_value sum = clv_reduce(graph, CLV_SUM, x, (int[]){1}, 1, false);
        clv_value product = clv_einsum(graph, "ik,kj->ij", x, input(graph, "w", dtypes[t], DIMS(0, 3)));
        graph_eval *eval = graph_eval_new(graph, SEED);
        for (int i = 0; i < 6; i++) /* K = 0 must write zeros, not leave what was there */
            graph_eval_set(eval, product, i, 7);
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < 2; i++) {
            assert_true(graph_eval_get(eval, most, i) == -INFINITY);
            assert_true(graph_eval_get(eval, sum, i) == 0);
        }
        for (int i = 0; i < 6; i++)
            assert_true(graph_eval_get(eval, product, i) == 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* ---- narrow dtypes ---- */

/* The same graph in f64, fed the operands as the narrow dtype rounded them. */
static void test_narrow_values(void **state)
{
    for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++) {
        if (makers[m].make == make_cast || makers[m].make == make_dropout || makers[m].make == make_rms_norm ||
            makers[m].make == make_product)
            continue; /* these name f64 themselves, or draw */
        for (size_t t = 1; t < sizeof dtypes / sizeof dtypes[0]; t++) {
            clv_graph *narrow = new_graph(), *wide = new_graph();
            clv_value x = input(narrow, "x", dtypes[t], DIMS(2, 3, 4)), y = makers[m].make(narrow, x);
            clv_value wide_x = input(wide, "x", CLV_F64, DIMS(2, 3, 4)), wide_y = makers[m].make(wide, wide_x);
            graph_eval *a = graph_eval_new(narrow, SEED), *b = graph_eval_new(wide, SEED);
            clv_type type = clv_graph_type(wide, wide_y);
            double want[64];
            for (int i = 0; i < 24; i++) {
                graph_eval_set(a, x, i, sin(1.3 * i));
                graph_eval_set(b, wide_x, i, graph_eval_get(a, x, i));
            }
            graph_eval_must_run(a, -1);
            graph_eval_must_run(b, -1);
            for (int64_t i = 0; i < clv_type_elems(&type); i++)
                want[i] = graph_eval_get(b, wide_y, i);
            assert_close(a, y, want, clv_type_elems(&type), tolerance(dtypes[t]));
            graph_eval_free(a);
            graph_eval_free(b);
            clv_graph_free(narrow);
            clv_graph_free(wide);
        }
    }
}

/* ---- ties ---- */

/* At a tie the gradient is shared: halves for max and min of two, evenly for a maximum over a dimension, as JAX does.
 */
static void test_ties(void **state)
{
    static const double left[] = {1, 2, 3, -1}, right[] = {1, 3, 2, -1}, row[] = {5, 5, 1, 5};
    for (int kind = CLV_MAXIMUM; kind <= CLV_MINIMUM; kind++) {
        clv_graph *graph = new_graph();
        clv_value ab[] = {input(graph, "a", CLV_F64, DIMS(4)), input(graph, "b", CLV_F64, DIMS(4))}, d[2];
        clv_value y = clv_binary(graph, (clv_binary_kind)kind, ab[0], ab[1]);
        clv_gradients(graph, y, clv_fill(graph, CLV_F64, DIMS(4), 1), ab, 2, d);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, ab[0], left);
        graph_eval_fill(eval, ab[1], right);
        graph_eval_must_run(eval, -1);
        bool is_max = kind == CLV_MAXIMUM;
        assert_close(eval, d[0], (double[]){0.5, is_max ? 0 : 1, is_max ? 1 : 0, 0.5}, 4, 0);
        assert_close(eval, d[1], (double[]){0.5, is_max ? 1 : 0, is_max ? 0 : 1, 0.5}, 4, 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F64, DIMS(4)), d;
    clv_value y = clv_reduce(graph, CLV_MAX, x, (int[]){0}, 1, false);
    clv_gradients(graph, y, CLV_NONE, &x, 1, &d);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, x, row);
    graph_eval_must_run(eval, -1);
    assert_close(eval, d, (double[]){1.0 / 3, 1.0 / 3, 0, 1.0 / 3}, 4, 1e-15);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- what is not a number ---- */

static void test_nan_passes(void **state)
{
    for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++)
        for (int bad = 0; bad < 2; bad++) {
            clv_graph *graph = new_graph();
            clv_value x = input(graph, "x", dtypes[t], DIMS(2, 4)), one = input(graph, "one", dtypes[t], DIMS(2, 4));
            clv_value ys[] = {clv_unary(graph, CLV_GELU_TANH, x),
                              clv_unary(graph, CLV_SILU, x),
                              clv_binary(graph, CLV_MAXIMUM, x, one),
                              clv_binary(graph, CLV_MINIMUM, one, x),
                              clv_reduce(graph, CLV_SUM, x, (int[]){1}, 1, true),
                              clv_reduce(graph, CLV_MAX, x, (int[]){1}, 1, true),
                              clv_softmax(graph, x)};
            graph_eval *eval = graph_eval_new(graph, SEED);
            for (int i = 0; i < 8; i++)
                graph_eval_set(eval, one, i, 1);
            graph_eval_set(eval, x, 2, bad ? -NAN : NAN);
            graph_eval_must_run(eval, -1);
            for (size_t k = 0; k < sizeof ys / sizeof ys[0]; k++) {
                bool whole_row = k >= 4;
                if (!isnan(graph_eval_get(eval, ys[k], whole_row ? 0 : 2)))
                    fail_msg("op %zu in %s loses a NaN", k, clv_dtype_name(dtypes[t]));
                /* The other row has none. */
                assert_false(isnan(graph_eval_get(eval, ys[k], whole_row && k < 6 ? 1 : 4)));
            }
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty), cmocka_unit_test(test_reductions_of_nothing),
                                       cmocka_unit_test(test_narrow_values), cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_nan_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
