/* test_kernels_reduce.c - reductions over every set of dimensions against a plain loop, and the error of long sums. */
#include "kernel_check.h"
#include "kernels/cpu/reduce_kernel.h"

typedef struct shape_case {
    int rank;
    int64_t shape[4];
} shape_case;

static const shape_case shapes[] = {
    {0, {0}},          {1, {1}},          {1, {5000}},      {2, {3, 1}},          {2, {70, 33}},
    {2, {0, 4}},       {2, {4, 0}},       {2, {9, 3000}},   {2, {3000, 9}},       {3, {5, 6, 7}},
    {4, {3, 4, 5, 6}}, {4, {2, 1, 9, 1}}, {3, {2, 40, 65}}, {4, {2, 3, 2, 1100}},
};

static int64_t count_of(const shape_case *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->shape[d];
    return n;
}

/* Where element i of x goes; *out_count: how many results there are. */
static int64_t result_index(const shape_case *s, const bool *reduced, int64_t i, int64_t *out_count)
{
    int64_t index = 0, stride = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        if (!reduced[d]) {
            index += (s->shape[d] > 0 ? i % s->shape[d] : 0) * stride;
            stride *= s->shape[d];
        }
        i = s->shape[d] > 0 ? i / s->shape[d] : 0;
    }
    *out_count = stride;
    return index;
}

static void reduce_case(clv_dtype dtype, const shape_case *s, const bool *reduced, clv_reduction kind)
{
    int64_t n = count_of(s), count;
    result_index(s, reduced, 0, &count);
    operand x = operand_random(dtype, n, -1, 1), out = operand_blank(dtype, count);
    double *magnitude = check_alloc(count, sizeof *magnitude), scale = kind == CLV_REDUCTION_SUM ? 0.25 : 1,
           largest = 1;
    for (int64_t i = 0; i < count; i++)
        out.exact[i] = kind == CLV_REDUCTION_SUM ? 0 : -INFINITY, magnitude[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = result_index(s, reduced, i, &count);
        out.exact[to] = kind == CLV_REDUCTION_SUM ? out.exact[to] + x.exact[i] : fmax(out.exact[to], x.exact[i]);
        magnitude[to] += fabs(x.exact[i]);
        largest = fmax(largest, magnitude[to]);
    }
    for (int64_t i = 0; i < count; i++)
        out.exact[i] *= scale;
    clv_reduce_forward(kind, scale, dtype, out.data, dtype, x.data, s->rank, s->shape, reduced);
    check_close("reduce", dtype, out.data, out.exact, count, 0.01, kind == CLV_REDUCTION_SUM ? largest : 0);
    free(magnitude);
    operand_free(x), operand_free(out);
}

static void every_set_of_dims(clv_dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int set = 0; set < 1 << shapes[s].rank; set++) {
            bool reduced[4];
            for (int d = 0; d < 4; d++)
                reduced[d] = set >> d & 1;
            reduce_case(dtype, &shapes[s], reduced, CLV_REDUCTION_SUM);
            reduce_case(dtype, &shapes[s], reduced, CLV_REDUCTION_MAX);
        }
}

static void any_dims(void **state)
{
    check_everywhere(every_set_of_dims);
}

/* A million equal terms in f32: naive f32 sums are off by far more than one rounding. */
static void long_sums_round_once(void **state)
{
    enum { N = 1000000 };
    float *x = check_alloc(N, sizeof *x), row, column;
    const int64_t as_row[] = {N}, as_column[] = {N, 1};
    const bool reduced[] = {true, false};
    for (int i = 0; i < N; i++)
        x[i] = 0.1f;
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, CLV_F32, &row, CLV_F32, x, 1, as_row, reduced);
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, CLV_F32, &column, CLV_F32, x, 2, as_column, reduced);
    assert_true(row == (float)((double)0.1f * N));
    assert_true(column == row);
    free(x);
}

static void nan_and_infinity(clv_dtype dtype)
{
    enum { N = 1100 };
    const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int b = 0; b < 4; b++)
        for (int place = 0; place < N; place += 549) {
            operand x = operand_random(dtype, N, -1, 1), out = operand_blank(dtype, N);
            const int64_t row[] = {1, N}, column[] = {N, 1}, wide[] = {2, N / 2};
            const bool last[] = {false, true}, first[] = {true, false};
            clv_dtype_store(dtype, x.data, place, bad[b]);
            double want = b == 3 ? -2 : bad[b]; /* -inf: the maximum is another element */
            for (int64_t i = 0; b == 3 && i < N; i++)
                want = i != place ? fmax(want, x.exact[i]) : want;
            clv_reduce_forward(CLV_REDUCTION_MAX, 1, dtype, out.data, dtype, x.data, 2, row, last);
            check_close("max of a row", dtype, out.data, &want, 1, 0, 0);
            clv_reduce_forward(CLV_REDUCTION_MAX, 1, dtype, out.data, dtype, x.data, 2, column, first);
            check_close("max of a column", dtype, out.data, &want, 1, 0, 0);
            clv_reduce_forward(CLV_REDUCTION_SUM, 1, dtype, out.data, dtype, x.data, 2, wide, first);
            check_close("sum of columns", dtype, (char *)out.data + (size_t)(place % (N / 2)) * clv_dtype_size(dtype),
                        &bad[b], 1, 0, 0);
            operand_free(x), operand_free(out);
        }
}

static void not_finite(void **state)
{
    check_everywhere(nan_and_infinity);
}

/* out[c] = sum over r of x[r, c] */
static void sum_rows(clv_dtype out_dtype, void *out, clv_dtype dtype, const void *x, int64_t rows, int64_t cols)
{
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, out_dtype, out, dtype, x, 2, (int64_t[]){rows, cols},
                       (bool[]){true, false});
}

/* Rows and columns are summed alike however the others are divided. */
static void independent_of_division(clv_dtype dtype)
{
    enum { ROWS = 40, COLS = 700, CUT = 263 };
    size_t size = clv_dtype_size(dtype);
    operand x = operand_random(dtype, ROWS * COLS, -1, 1);
    char *whole = check_alloc(COLS, size), *part = check_alloc(COLS, size), *left = check_alloc(ROWS * CUT, size);
    sum_rows(dtype, whole, dtype, x.data, ROWS, COLS);
    for (int r = 0; r < ROWS; r++)
        memcpy(left + (size_t)r * CUT * size, (char *)x.data + (size_t)r * COLS * size, CUT * size);
    sum_rows(dtype, part, dtype, left, ROWS, CUT);
    assert_memory_equal(part, whole, CUT * size);
    free(whole), free(part), free(left);
    operand_free(x);
}

static void division(void **state)
{
    check_everywhere(independent_of_division);
}

static void integers(void **state)
{
    const int32_t x[] = {1, 2, 3, -4, -5, -6};
    const int64_t shape[] = {2, 3};
    const bool last[] = {false, true};
    int32_t out[2];
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, CLV_I32, out, CLV_I32, x, 2, shape, last);
    assert_int_equal(out[0], 6);
    assert_int_equal(out[1], -15);
    clv_reduce_forward(CLV_REDUCTION_MAX, 1, CLV_I32, out, CLV_I32, x, 2, shape, last);
    assert_int_equal(out[1], -4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_dims),   cmocka_unit_test(long_sums_round_once),
        cmocka_unit_test(not_finite), cmocka_unit_test(division),
        cmocka_unit_test(integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
