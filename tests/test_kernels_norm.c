/* test_kernels_norm.c - normalisation against f64, split rows against whole ones, gradients against finite differences.
 */
#include "kernel_check.h"
#include "kernels/cpu/norm_kernel.h"

typedef struct problem {
    clv_norm norm, exact; /* exact: the same in f64 */
    operand x, d_y, y, d_x, gain, bias, d_gain, d_bias;
    double *moments, *exact_moments;
} problem;

static problem problem_new(clv_norm_kind kind, clv_dtype dtype, clv_dtype weights, int64_t rows, int64_t cols)
{
    problem p = {.norm = {kind, dtype, weights, rows, cols, cols, 1e-5}};
    p.exact = p.norm;
    p.exact.dtype = p.exact.weight_dtype = CLV_F64;
    p.x = operand_random(dtype, rows * cols, 1, 4); /* mean larger than deviation: cancellation shows */
    p.d_y = operand_random(dtype, rows * cols, -1, 1);
    p.gain = operand_random(weights, cols, 0.5, 1.5);
    p.bias = operand_random(weights, cols, -1, 1);
    p.y = operand_blank(dtype, rows * cols);
    p.d_x = operand_blank(dtype, rows * cols);
    p.d_gain = operand_blank(weights, cols);
    p.d_bias = operand_blank(weights, cols);
    p.moments = check_alloc(2 * rows, sizeof(double));
    p.exact_moments = check_alloc(2 * rows, sizeof(double));
    return p;
}

static void problem_free(problem p)
{
    operand_free(p.x), operand_free(p.d_y), operand_free(p.y), operand_free(p.d_x);
    operand_free(p.gain), operand_free(p.bias), operand_free(p.d_gain), operand_free(p.d_bias);
    free(p.moments), free(p.exact_moments);
}

/* moments are kept for the backward pass. */
static void forward(const clv_norm *norm, void *y, double *moments, const void *x, const void *gain, const void *bias)
{
    clv_norm_moments(norm, moments, x);
    clv_norm_apply(norm, y, x, moments, gain, bias);
}

static void backward(const clv_norm *norm, void *d_x, const void *d_y, const void *x, const double *moments,
                     const void *gain)
{
    double *sums = malloc((size_t)(2 * norm->rows + 1) * sizeof *sums);
    assert_non_null(sums);
    clv_norm_backward_sums(norm, sums, d_y, x, moments, gain);
    clv_norm_backward_apply(norm, d_x, d_y, x, moments, sums, gain);
    free(sums);
}

/* Rows go together, and threads take some each: a row alone has the bits that it has among others. */
static void rows_alone(problem p)
{
    const size_t bytes = (size_t)p.norm.cols * clv_dtype_size(p.norm.dtype);
    clv_norm one = p.norm;
    void *y = malloc(bytes), *d_x = malloc(bytes);
    one.rows = 1;
    for (int64_t row = 0; row < p.norm.rows; row++) {
        const size_t at = (size_t)row * bytes;
        double moments[2];
        forward(&one, y, moments, (char *)p.x.data + at, p.gain.data, p.bias.data);
        assert_memory_equal(y, (char *)p.y.data + at, bytes);
        assert_memory_equal(moments, p.moments + 2 * row, sizeof moments);
        backward(&one, d_x, (char *)p.d_y.data + at, (char *)p.x.data + at, moments, p.gain.data);
        assert_memory_equal(d_x, (char *)p.d_x.data + at, bytes);
    }
    free(y);
    free(d_x);
}

static void whole_rows(problem p)
{
    int64_t n = p.norm.rows * p.norm.cols;
    clv_dtype dtype = p.norm.dtype, weights = p.norm.weight_dtype;

    forward(&p.norm, p.y.data, p.moments, p.x.data, p.gain.data, p.bias.data);
    forward(&p.exact, p.y.exact, p.exact_moments, p.x.exact, p.gain.exact, p.bias.exact);
    check_close("forward", dtype, p.y.data, p.y.exact, n, 24, 1);
    check_close("moments", CLV_F64, p.moments, p.exact_moments, 2 * p.norm.rows, 100, 1);

    backward(&p.norm, p.d_x.data, p.d_y.data, p.x.data, p.moments, p.gain.data);
    backward(&p.exact, p.d_x.exact, p.d_y.exact, p.x.exact, p.exact_moments, p.gain.exact);
    double scale = 0;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(p.d_x.exact[i]));
    if (p.norm.cols > 1) /* one column: the gradient is 0 up to eps, of terms 1 / sqrt(eps) large */
        check_close("backward", dtype, p.d_x.data, p.d_x.exact, n, 40, fmax(scale, 1));

    rows_alone(p);

    clv_norm_backward_weights(&p.norm, p.d_gain.data, p.d_bias.data, p.d_y.data, p.x.data, p.moments);
    clv_norm_backward_weights(&p.exact, p.d_gain.exact, p.d_bias.exact, p.d_y.exact, p.x.exact, p.exact_moments);
    double terms = (double)p.norm.rows;
    check_close("d_gain", weights, p.d_gain.data, p.d_gain.exact, p.norm.cols, 8, fmax(terms, 1));
    check_close("d_bias", weights, p.d_bias.data, p.d_bias.exact, p.norm.cols, 1, fmax(terms, 1));

    forward(&p.norm, p.x.data, p.moments, p.x.data, p.gain.data, p.bias.data); /* in place */
    check_close("in place", dtype, p.x.data, p.y.exact, n, 24, 1);
}

static const int64_t shapes[][2] = {{0, 5}, {1, 1}, {3, 7}, {5, 64}, {2, 1023}, {3, 1025}, {70, 700}};

static void matches(clv_dtype dtype)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = CLV_NORM_RMS; kind <= CLV_NORM_LAYER; kind++)
            for (int mixed = 0; mixed <= 1; mixed++) {
                problem p =
                    problem_new((clv_norm_kind)kind, dtype, mixed ? CLV_F32 : dtype, shapes[s][0], shapes[s][1]);
                whole_rows(p);
                problem_free(p);
            }
}

static void forward_and_backward(void **state)
{
    check_everywhere(matches);
}

/* Columns [lo, lo + cols) of every row. */
static void take_columns(operand to, operand from, int64_t width, int64_t lo, int64_t cols)
{
    size_t size = clv_dtype_size(from.dtype);
    for (int64_t r = 0; r < from.n / width; r++)
        memcpy((char *)to.data + (size_t)(r * cols) * size, (char *)from.data + (size_t)(r * width + lo) * size,
               (size_t)cols * size);
}

static void add(double *sum, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/* A row cut in three, one part empty: moments and sums are added, then each part is what the whole row has. */
static void split_rows_agree(clv_dtype dtype)
{
    enum { ROWS = 9, WIDTH = 300 };
    const int64_t cut[] = {0, 117, 117, WIDTH};
    for (int kind = CLV_NORM_RMS; kind <= CLV_NORM_LAYER; kind++) {
        problem p = problem_new((clv_norm_kind)kind, dtype, dtype, ROWS, WIDTH);
        double moments[2 * ROWS] = {0}, sums[2 * ROWS] = {0}, part[2 * ROWS];
        forward(&p.exact, p.y.exact, p.exact_moments, p.x.exact, p.gain.exact, p.bias.exact);
        backward(&p.exact, p.d_x.exact, p.d_y.exact, p.x.exact, p.exact_moments, p.gain.exact);
        for (int stage = 0; stage < 3; stage++)
            for (int k = 0; k < 3; k++) {
                int64_t lo = cut[k], cols = cut[k + 1] - lo, n = ROWS * cols;
                size_t skip = (size_t)lo * clv_dtype_size(dtype);
                clv_norm norm = p.norm;
                norm.cols = cols;
                operand x = operand_blank(dtype, n), d_y = operand_blank(dtype, n), out = operand_blank(dtype, n);
                const char *gain = (const char *)p.gain.data + skip, *bias = (const char *)p.bias.data + skip;
                take_columns(x, p.x, WIDTH, lo, cols), take_columns(d_y, p.d_y, WIDTH, lo, cols);
                if (stage == 0) {
                    clv_norm_moments(&norm, part, x.data);
                    add(moments, part, 2 * ROWS);
                } else if (stage == 1) {
                    clv_norm_backward_sums(&norm, part, d_y.data, x.data, moments, gain);
                    add(sums, part, 2 * ROWS);
                } else {
                    for (int64_t i = 0; i < n; i++)
                        out.exact[i] = p.y.exact[i / cols * WIDTH + lo + i % cols];
                    clv_norm_apply(&norm, out.data, x.data, moments, gain, bias);
                    check_close("split forward", dtype, out.data, out.exact, n, 24, 1);
                    for (int64_t i = 0; i < n; i++)
                        out.exact[i] = p.d_x.exact[i / cols * WIDTH + lo + i % cols];
                    clv_norm_backward_apply(&norm, out.data, d_y.data, x.data, moments, sums, gain);
                    check_close("split backward", dtype, out.data, out.exact, n, 40, 1);
                }
                operand_free(x), operand_free(d_y), operand_free(out);
            }
        problem_free(p);
    }
}

static void split_rows(void **state)
{
    check_everywhere(split_rows_agree);
}

/* loss = sum d_y * y in f64; each gradient is the central difference of it. */
static double loss(const problem *p)
{
    double sum = 0;
    forward(&p->exact, p->y.exact, p->exact_moments, p->x.exact, p->gain.exact, p->bias.exact);
    for (int64_t i = 0; i < p->y.n; i++)
        sum += p->d_y.exact[i] * p->y.exact[i];
    return sum;
}

static void check_slopes(const char *what, const problem *p, double *at, const double *slope, int64_t n)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < n; i++) {
        double keep = at[i];
        at[i] = keep + h;
        double above = loss(p);
        at[i] = keep - h;
        double below = loss(p), want = (above - below) / (2 * h);
        at[i] = keep;
        if (!(fabs(slope[i] - want) <= 1e-6 * fmax(1, fabs(want))))
            fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, slope[i], want);
    }
}

static void finite_differences(void **state)
{
    for (int kind = CLV_NORM_RMS; kind <= CLV_NORM_LAYER; kind++) {
        problem p = problem_new((clv_norm_kind)kind, CLV_F64, CLV_F64, 3, 11);
        loss(&p);
        backward(&p.exact, p.d_x.exact, p.d_y.exact, p.x.exact, p.exact_moments, p.gain.exact);
        clv_norm_backward_weights(&p.exact, p.d_gain.exact, p.d_bias.exact, p.d_y.exact, p.x.exact, p.exact_moments);
        check_slopes("d_x", &p, p.x.exact, p.d_x.exact, 33);
        check_slopes("d_gain", &p, p.gain.exact, p.d_gain.exact, 11);
        check_slopes("d_bias", &p, p.bias.exact, p.d_bias.exact, 11);
        problem_free(p);
    }
}

static void nan_fills_its_row(clv_dtype dtype)
{
    enum { ROWS = 3, COLS = 40 };
    problem p = problem_new(CLV_NORM_RMS, dtype, dtype, ROWS, COLS);
    clv_dtype_store(dtype, p.x.data, COLS + 17, NAN);
    forward(&p.norm, p.y.data, p.moments, p.x.data, NULL, NULL);
    for (int64_t i = 0; i < ROWS * COLS; i++)
        assert_int_equal(isnan(clv_dtype_load(dtype, p.y.data, i)) != 0, i / COLS == 1);
    problem_free(p);
}

static void nan_propagates(void **state)
{
    check_everywhere(nan_fills_its_row);
}

/* Without gain and bias: ones and zeros. */
static void absent_weights(void **state)
{
    float x[] = {1, 2, 3, 4}, y[4];
    double moments[2];
    clv_norm norm = {CLV_NORM_LAYER, CLV_F32, CLV_F32, 1, 4, 4, 1e-12};
    forward(&norm, y, moments, x, NULL, NULL);
    assert_true(fabsf(y[0] + 1.3416407f) < 1e-6f);
    assert_true(fabsf(y[3] - 1.3416407f) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_and_backward), cmocka_unit_test(split_rows),     cmocka_unit_test(finite_differences),
        cmocka_unit_test(nan_propagates),       cmocka_unit_test(absent_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
