/* test_ops_imported.c - ops that imported programs need: values against what StableHLO's specification says, what the
 * definitions state, refusals. */
#include <limits.h>

#include "must.h"
#include "op_cases.h"
#include "ops/builtin_ops.h"

/* ---- pointwise ---- */

static void test_functions_of_floats(void **state)
{
    static const double x[] = {-2.5, -0.5, 0, 0.5, 1.5};
    static const struct {
        clv_pointwise_kind kind;
        double (*f)(double);
    } rows[] = {{CLV_SIN, sin},     {CLV_COS, cos},   {CLV_TAN, tan},         {CLV_ABS, fabs},
                {CLV_FLOOR, floor}, {CLV_CEIL, ceil}, {CLV_ROUND_EVEN, rint}, {CLV_ROUND_AWAY, round},
                {CLV_ERF, erf},     {CLV_ERFC, erfc}, {CLV_EXPM1, expm1},     {CLV_CBRT, cbrt}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int t = 0; t < DTYPES; t++) {
            clv_graph *graph = new_graph();
            clv_value in = input(graph, "x", dtypes[t], DIMS(5));
            clv_value y = clv_pointwise(graph, rows[r].kind, in, CLV_NONE);
            graph_eval *eval = graph_eval_new(graph, SEED);
            double want[5];
            graph_eval_fill(eval, in, x);
            graph_eval_must_run(eval, -1);
            for (int i = 0; i < 5; i++)
                want[i] = rows[r].f(x[i]);
            assert_close(eval, y, want, 5, tolerance(dtypes[t]));
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

/* Two operands, the second of which broadcasts; whole numbers and bool. */
static void test_functions_of_two(void **state)
{
    static const double a[] = {-7, 3, 6, 0}, b[] = {3, -2};
    static const struct {
        clv_pointwise_kind kind;
        clv_dtype dtype;
        double want[4];
    } rows[] = {{CLV_REMAINDER, CLV_F32, {-1, 1, 0, 0}},
                {CLV_REMAINDER, CLV_I32, {-1, 1, 0, 0}},
                {CLV_LESS, CLV_I64, {1, 0, 0, 0}},
                {CLV_GREATER_EQUAL, CLV_F64, {0, 1, 1, 1}},
                {CLV_EQUAL, CLV_I32, {0, 0, 0, 0}},
                {CLV_NOT_EQUAL, CLV_BF16, {1, 1, 1, 1}},
                {CLV_AND, CLV_I32, {1, 2, 2, 0}},
                {CLV_OR, CLV_BOOL, {1, 1, 1, 1}},
                {CLV_XOR, CLV_BOOL, {0, 0, 0, 1}},
                {CLV_SHIFT_LEFT, CLV_I32, {-56, 0, 48, 0}},
                {CLV_SHIFT_RIGHT_LOGICAL, CLV_I64, {0x1p61, 0, 0, 0}},
                {CLV_SHIFT_RIGHT_ARITHMETIC, CLV_I32, {-1, 0, 0, 0}},
                {CLV_POWER, CLV_I32, {-343, 0, 216, -1}},
                {CLV_POWER, CLV_F64, {-343, 1.0 / 9, 216, 0}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", rows[r].dtype, DIMS(2, 2)), y = input(graph, "y", rows[r].dtype, DIMS(2));
        clv_value z = clv_pointwise(graph, rows[r].kind, x, y);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, x, a);
        graph_eval_fill(eval, y, b);
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < 4; i++)
            if (!(rows[r].kind == CLV_POWER && i == 3) && fabs(graph_eval_get(eval, z, i) - rows[r].want[i]) > 1e-12)
                fail_msg("kind %d, element %d: %g, not %g", rows[r].kind, i, graph_eval_get(eval, z, i),
                         rows[r].want[i]);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* Bits of floats and back. */
static void test_bits(void **state)
{
    static const double x[] = {1, -0.5, 0};
    static const double bits[] = {0x3f800000, (int32_t)0xbf000000, 0};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_F32, DIMS(3));
    clv_value y = clv_pointwise(graph, CLV_BITS_OF_FLOAT, in, CLV_NONE);
    clv_value z = clv_pointwise(graph, CLV_FLOAT_OF_BITS, y, CLV_NONE);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_must_run(eval, -1);
    assert_int_equal(clv_graph_type(graph, y).dtype, CLV_I32);
    assert_close(eval, y, bits, 3, 0);
    assert_close(eval, z, x, 3, 0);
    graph_eval_free(eval);
    clv_pointwise(graph, CLV_FLOAT_OF_BITS, input(graph, "b", CLV_U8, DIMS(2)), CLV_NONE);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_EDTYPE);
    clv_graph_free(graph);
}

/* ---- sort, cumulative ---- */

static void test_sort(void **state)
{
    static const double x[] = {3, NAN, 1, 3, -0.0, 0, -2, 1};
    static const double up[2][8] = {{1, 3, 3, NAN, -2, -0.0, 0, 1}, {2, 0, 3, 1, 2, 0, 1, 3}};
    static const double down[2][8] = {{NAN, 3, 3, 1, 1, -0.0, 0, -2}, {1, 0, 3, 2, 3, 0, 1, 2}};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_F32, DIMS(2, 4)), values[2], index[2];
    clv_sort(graph, in, 1, false, &values[0], &index[0]);
    clv_sort(graph, in, 1, true, &values[1], &index[1]);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 8; i++) {
        double a = graph_eval_get(eval, values[0], i), b = graph_eval_get(eval, values[1], i);
        assert_true(a == up[0][i] || (isnan(a) && isnan(up[0][i])));
        assert_true(b == down[0][i] || (isnan(b) && isnan(down[0][i])));
        assert_true(graph_eval_get(eval, index[0], i) == up[1][i]);
        assert_true(graph_eval_get(eval, index[1], i) == down[1][i]);
    }
    clv_sort(graph, in, 2, true, &values[1], &index[1]);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_EINVAL);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* Elements of a dimension, from others of it or from nothing; and what is refused. */
static void test_permute(void **state)
{
    static const double x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int sources[] = {2, 3, -1, 0}, twice[] = {0, 0, 1, 2};
    static const double want[] = {3, 4, 0, 1, 7, 8, 0, 5};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_F32, DIMS(2, 4)), y = clv_permute(graph, in, 1, sources);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 8; i++)
        assert_true(graph_eval_get(eval, y, i) == want[i]);
    graph_eval_free(eval);
    clv_permute(graph, in, 1, twice);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_EINVAL);
    clv_graph_free(graph);
}

static void test_cumulative(void **state)
{
    static const double x[] = {1, 2, 3, 4, 5, 6};
    static const struct {
        clv_fold_kind kind;
        clv_dtype dtype;
        int dim;
        bool reverse;
        double want[6];
    } rows[] = {{CLV_FOLD_SUM, CLV_F32, 1, false, {1, 3, 6, 4, 9, 15}},
                {CLV_FOLD_SUM, CLV_I32, 0, true, {5, 7, 9, 4, 5, 6}},
                {CLV_FOLD_PRODUCT, CLV_I64, 1, true, {6, 6, 3, 120, 30, 6}},
                {CLV_FOLD_MAX, CLV_F64, 1, true, {3, 3, 3, 6, 6, 6}},
                {CLV_FOLD_MIN, CLV_BF16, 1, true, {1, 2, 3, 4, 5, 6}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        clv_graph *graph = new_graph();
        clv_value in = input(graph, "x", rows[r].dtype, DIMS(2, 3));
        clv_value y = clv_cumulative(graph, rows[r].kind, in, rows[r].dim, rows[r].reverse);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, in, x);
        graph_eval_must_run(eval, -1);
        assert_close(eval, y, rows[r].want, 6, 0);
        clv_cumulative(graph, CLV_FOLD_AND, in, 0, false);
        assert_int_equal(clv_graph_status(graph, NULL), CLV_EINVAL);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* ---- fold ---- */

static void test_fold(void **state)
{
    static const double x[] = {3, -1, 5, 5, 2, -4};
    static const struct {
        clv_fold_kind kind;
        double want[2];
    } rows[] = {{CLV_FOLD_SUM, {7, 3}},   {CLV_FOLD_PRODUCT, {-15, -40}}, {CLV_FOLD_MAX, {5, 5}},
                {CLV_FOLD_MIN, {-1, -4}}, {CLV_FOLD_ARGMAX, {2, 0}},      {CLV_FOLD_ARGMIN, {1, 2}}};
    static const clv_dtype all[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16, CLV_I32, CLV_I64};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int t = 0; t < 6; t++) {
            clv_graph *graph = new_graph();
            clv_value in = input(graph, "x", all[t], DIMS(2, 3));
            clv_value y = clv_fold(graph, rows[r].kind, in, (int[]){1}, 1);
            graph_eval *eval = graph_eval_new(graph, SEED);
            graph_eval_fill(eval, in, x);
            graph_eval_must_run(eval, -1);
            assert_close(eval, y, rows[r].want, 2, 0);
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

/* The first of equal elements; NaN before numbers. */
static void test_index_of_nan(void **state)
{
    const double x[] = {1, 7, 7, 2, NAN, NAN};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_F32, DIMS(2, 3));
    clv_value most = clv_fold(graph, CLV_FOLD_ARGMAX, in, (int[]){1}, 1),
              least = clv_fold(graph, CLV_FOLD_ARGMIN, in, (int[]){1}, 1);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_must_run(eval, -1);
    assert_close(eval, most, (double[]){1, 1}, 2, 0);
    assert_close(eval, least, (double[]){0, 1}, 2, 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- slices at values ---- */

static void test_dynamic_slices(void **state)
{
    static const double x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, starts[] = {-3, 2}, update[] = {10, 11};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_I32, DIMS(3, 3)), at = input(graph, "at", CLV_I64, DIMS(2)),
              new = input(graph, "new", CLV_I32, DIMS(1, 2));
    clv_value part = clv_dynamic_slice(graph, in, at, (int64_t[]){2, 2}); /* from [0,1] on */
    clv_value whole = clv_dynamic_update_slice(graph, in, new, at);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_fill(eval, at, starts);
    graph_eval_fill(eval, new, update);
    graph_eval_must_run(eval, -1);
    assert_close(eval, part, (double[]){1, 2, 4, 5}, 4, 0);
    assert_close(eval, whole, (double[]){0, 10, 11, 3, 4, 5, 6, 7, 8}, 9, 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- windows at indices ---- */

/* Rows of two by a column index, beyond the end too: a gather moves them inside, a scatter leaves them out. */
static void test_gather_and_scatter(void **state)
{
    static const double x[] = {0, 1, 2, 3, 4, 5}, at[] = {1, 2, -1},
                        updates[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120};
    static const struct {
        clv_scatter_kind kind;
        double want[6];
    } rows[] = {{CLV_SCATTER_ADD, {0, 11, 22, 3, 34, 45}},
                {CLV_SCATTER_SET, {0, 10, 20, 3, 30, 40}},
                {CLV_SCATTER_MAX, {0, 10, 20, 3, 30, 40}},
                {CLV_SCATTER_MIN, {0, 1, 2, 3, 4, 5}},
                {CLV_SCATTER_MULTIPLY, {0, 10, 40, 3, 120, 200}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        clv_graph *graph = new_graph();
        clv_value in = input(graph, "x", CLV_F32, DIMS(2, 3)), index = input(graph, "at", CLV_I32, DIMS(3, 1)),
                  new = input(graph, "new", CLV_F32, DIMS(3, 2, 2));
        const clv_index_dims dims = {
            .index_dim = 1, .window = {false, true, true}, .n_starts = 1, .start = {1}, .sizes = {2, 2}};
        clv_value got = clv_gather(graph, in, index, &dims),
                  put = clv_scatter(graph, rows[r].kind, in, index, new, &dims);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, in, x);
        graph_eval_fill(eval, index, at);
        graph_eval_fill(eval, new, updates);
        graph_eval_must_run(eval, -1);
        assert_close(eval, got, (double[]){1, 2, 4, 5, 1, 2, 4, 5, 0, 1, 3, 4}, 12, 0);
        assert_close(eval, put, rows[r].want, 6, 1e-6);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

/* take_along_axis: an index for each row of a batch. */
static void test_gather_along_a_batch(void **state)
{
    static const double x[] = {0, 1, 2, 3, 4, 5}, at[] = {2, 0};
    clv_graph *graph = new_graph();
    clv_value in = input(graph, "x", CLV_BF16, DIMS(2, 3)), index = input(graph, "at", CLV_I32, DIMS(2, 1, 1));
    const clv_index_dims dims = {
        .index_dim = 2, .dropped = {false, true}, .batch = {1, 0}, .n_starts = 1, .start = {1}, .sizes = {1, 1}};
    clv_value got = clv_gather(graph, in, index, &dims);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_fill(eval, in, x);
    graph_eval_fill(eval, index, at);
    graph_eval_must_run(eval, -1);
    assert_int_equal(clv_graph_type(graph, got).rank, 2);
    assert_close(eval, got, (double[]){2, 3}, 2, 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- refusals ---- */

static void test_refused(void **state)
{
    clv_graph *graph = new_graph();
    clv_pointwise(graph, CLV_SIN, input(graph, "x", CLV_I32, DIMS(2)), CLV_NONE);
    assert_refused(graph, CLV_EDTYPE, "floats");
    graph = new_graph();
    clv_pointwise(graph, CLV_AND, input(graph, "x", CLV_F32, DIMS(2)), input(graph, "y", CLV_F32, DIMS(2)));
    assert_refused(graph, CLV_EDTYPE, "integers");
    graph = new_graph();
    clv_pointwise(graph, CLV_LESS, input(graph, "x", CLV_F32, DIMS(2)), CLV_NONE);
    assert_refused(graph, CLV_EINVAL, "takes 2");
    graph = new_graph();
    clv_fold(graph, CLV_FOLD_SUM, input(graph, "x", CLV_BOOL, DIMS(2)), (int[]){0}, 1);
    assert_refused(graph, CLV_EDTYPE, "numbers");
    graph = new_graph();
    clv_fold(graph, CLV_FOLD_ARGMAX, input(graph, "x", CLV_F32, DIMS(2, 2)), (int[]){0, 1}, 2);
    assert_refused(graph, CLV_ESHAPE, "one dimension");
    graph = new_graph();
    clv_dynamic_slice(graph, input(graph, "x", CLV_F32, DIMS(2)), input(graph, "at", CLV_I32, DIMS(1)), (int64_t[]){3});
    assert_refused(graph, CLV_ESHAPE, "0 to 2");
    graph = new_graph();
    clv_dynamic_update_slice(graph, input(graph, "x", CLV_F32, DIMS(2)), input(graph, "u", CLV_I32, DIMS(1)),
                             input(graph, "at", CLV_I32, DIMS(1)));
    assert_refused(graph, CLV_ESHAPE, "rank and dtype");
    const clv_index_dims two = {.index_dim = 1, .n_starts = 2, .start = {0, 1}, .sizes = {1, 1}};
    graph = new_graph();
    clv_gather(graph, input(graph, "x", CLV_F32, DIMS(2, 2)), input(graph, "at", CLV_I32, DIMS(3, 1)), &two);
    assert_refused(graph, CLV_ESHAPE, "dimension numbers");
    graph = new_graph();
    clv_broadcast(graph, input(graph, "x", CLV_F32, DIMS(2)), (int64_t[]){3});
    assert_refused(graph, CLV_ESHAPE, "cannot become 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions_of_floats),
                                       cmocka_unit_test(test_functions_of_two),
                                       cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_sort),
                                       cmocka_unit_test(test_permute),
                                       cmocka_unit_test(test_cumulative),
                                       cmocka_unit_test(test_fold),
                                       cmocka_unit_test(test_index_of_nan),
                                       cmocka_unit_test(test_dynamic_slices),
                                       cmocka_unit_test(test_gather_and_scatter),
                                       cmocka_unit_test(test_gather_along_a_batch),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
