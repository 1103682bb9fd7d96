/* test_kernels_softmax.c - softmax, and cross-entropy over a vocabulary cut in parts. */
#include "kernel_check.h"
#include "kernels/cpu/cross_entropy_kernel.h"
#include "kernels/cpu/softmax_kernel.h"

static const int64_t shapes[][2] = {{0, 3}, {1, 1}, {3, 5}, {7, 64}, {2, 1023}, {3, 2100}, {40, 1000}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void softmax_matches(clv_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        operand x = operand_random(dtype, n, -20, 20), y = operand_blank(dtype, n);
        operand d = operand_random(dtype, n, -1, 1), d_x = operand_blank(dtype, n);
        clv_softmax_forward(dtype, y.data, x.data, rows, cols);
        clv_softmax_forward(CLV_F64, y.exact, x.exact, rows, cols);
        check_close("softmax", dtype, y.data, y.exact, n, 40, 1e-3);
        for (int64_t i = 0; i < n; i++)
            y.exact[i] = clv_dtype_load(dtype, y.data, i);
        clv_softmax_backward(dtype, d_x.data, d.data, y.data, rows, cols);
        clv_softmax_backward(CLV_F64, d_x.exact, d.exact, y.exact, rows, cols);
        check_close("softmax backward", dtype, d_x.data, d_x.exact, n, 8, 1);
        clv_softmax_backward(dtype, y.data, d.data, y.data, rows, cols);
        check_close("softmax backward in place", dtype, y.data, d_x.exact, n, 8, 1);
        operand_free(x), operand_free(y), operand_free(d), operand_free(d_x);
    }
}

static void softmax(void **state)
{
    check_everywhere(softmax_matches);
}

static void softmax_extremes(clv_dtype dtype)
{
    enum { ROWS = 4, COLS = 18 };
    double x[ROWS * COLS], want[ROWS * COLS];
    char data[sizeof x];
    for (int i = 0; i < COLS; i++) {
        x[i] = -INFINITY, want[i] = 0; /* all masked */
        x[COLS + i] = i == 3 ? 1000 : -INFINITY, want[COLS + i] = i == 3;
        x[2 * COLS + i] = i == 17 ? NAN : 1, want[2 * COLS + i] = NAN;
        x[3 * COLS + i] = 30000, want[3 * COLS + i] = 1.0 / COLS; /* large and equal */
    }
    for (int i = 0; i < ROWS * COLS; i++)
        clv_dtype_store(dtype, data, i, x[i]);
    clv_softmax_forward(dtype, data, data, ROWS, COLS);
    check_close("extremes", dtype, data, want, ROWS * COLS, 4, 0);
}

static void extremes(void **state)
{
    check_everywhere(softmax_extremes);
}

static void softmax_slope(void **state)
{
    enum { N = 9 };
    const double h = 1e-5;
    operand x = operand_random(CLV_F64, N, -2, 2), d = operand_random(CLV_F64, N, -1, 1);
    double y[N], slope[N], moved[N];
    clv_softmax_forward(CLV_F64, y, x.exact, 1, N);
    clv_softmax_backward(CLV_F64, slope, d.exact, y, 1, N);
    for (int i = 0; i < N; i++) {
        double want = 0, keep = x.exact[i];
        for (int side = -1; side <= 1; side += 2) {
            x.exact[i] = keep + side * h;
            clv_softmax_forward(CLV_F64, moved, x.exact, 1, N);
            for (int k = 0; k < N; k++)
                want += side * d.exact[k] * moved[k] / (2 * h);
        }
        x.exact[i] = keep;
        assert_true(fabs(slope[i] - want) <= 1e-8);
    }
    operand_free(x), operand_free(d);
}

/* ---- cross-entropy ---- */

/* The textbook on whole rows: loss, and d_logits for d_loss. */
static void textbook(const double *logits, const int64_t *labels, const double *d_loss, double *loss, double *d_logits,
                     int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        const double *x = logits + r * cols;
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < cols; v++)
            max = fmax(max, x[v]);
        for (int64_t v = 0; v < cols; v++)
            sum += exp(x[v] - max);
        bool counts = labels[r] != CLV_IGNORE_INDEX;
        loss[r] = counts ? log(sum) + max - x[labels[r]] : 0;
        for (int64_t v = 0; v < cols; v++)
            d_logits[r * cols + v] = counts ? (exp(x[v] - max) / sum - (labels[r] == v)) * d_loss[r] : 0;
    }
}

typedef struct part {
    clv_cross_entropy_args ce;
    operand logits;
    void *max, *sums;
} part;

/* max, sums: combined over the parts into part 0's, as the collectives would. */
static void combine(part *parts, int n, int64_t rows, const void *labels)
{
    clv_dtype stats = clv_cross_entropy_stats_dtype(parts[0].ce.dtype);
    for (int k = 0; k < n; k++)
        clv_cross_entropy_max(&parts[k].ce, parts[k].max, parts[k].logits.data);
    for (int k = 1; k < n; k++)
        for (int64_t r = 0; r < rows; r++)
            clv_dtype_store(stats, parts[0].max, r,
                            fmax(clv_dtype_load(stats, parts[0].max, r), clv_dtype_load(stats, parts[k].max, r)));
    for (int k = 0; k < n; k++)
        clv_cross_entropy_sums(&parts[k].ce, parts[k].sums, parts[k].logits.data, labels, parts[0].max);
    for (int k = 1; k < n; k++)
        for (int64_t r = 0; r < 2 * rows; r++)
            clv_dtype_store(stats, parts[0].sums, r,
                            clv_dtype_load(stats, parts[0].sums, r) + clv_dtype_load(stats, parts[k].sums, r));
}

/* The vocabulary in `n` parts; for n = 3 the second one is empty. */
static void cross_entropy_case(clv_dtype dtype, int64_t rows, int64_t cols, int n, clv_dtype label_dtype)
{
    clv_dtype stats = clv_cross_entropy_stats_dtype(dtype);
    operand logits = operand_random(dtype, rows * cols, -8, 8), d_loss = operand_random(stats, rows, -1, 1);
    operand loss = operand_blank(stats, rows), d_logits = operand_blank(dtype, rows * cols);
    int64_t *labels = check_alloc(rows, sizeof *labels), cut[4] = {0, cols / 3, cols / 3, cols};
    void *typed = check_alloc(rows, clv_dtype_size(label_dtype));
    part parts[3];
    cut[n] = cols;
    for (int64_t r = 0; r < rows; r++) {
        labels[r] = r % 5 == 4 ? CLV_IGNORE_INDEX : (int64_t)(check_next() % (uint64_t)cols);
        clv_dtype_store(label_dtype, typed, r, (double)labels[r]);
    }
    textbook(logits.exact, labels, d_loss.exact, loss.exact, d_logits.exact, rows, cols);
    for (int k = 0; k < n; k++) {
        int64_t lo = cut[k], width = cut[k + 1] - lo;
        parts[k] = (part){{dtype, label_dtype, rows, width, lo, CLV_IGNORE_INDEX},
                          operand_blank(dtype, rows * width),
                          check_alloc(rows, sizeof(double)),
                          check_alloc(2 * rows, sizeof(double))};
        for (int64_t i = 0; i < rows * width; i++)
            clv_dtype_store(dtype, parts[k].logits.data, i, logits.exact[i / width * cols + lo + i % width]);
    }
    combine(parts, n, rows, typed);
    clv_cross_entropy_loss(&parts[0].ce, loss.data, parts[0].sums, typed);
    check_close("loss", stats, loss.data, loss.exact, rows, 16, 1);
    void *d_sums = parts[0].sums; /* in place */
    clv_cross_entropy_loss_backward(&parts[0].ce, d_sums, parts[0].sums, typed, d_loss.data);
    for (int k = 0; k < n; k++) {
        int64_t lo = cut[k], width = cut[k + 1] - lo;
        void *x = parts[k].logits.data; /* in place */
        clv_cross_entropy_backward(&parts[k].ce, x, x, typed, parts[0].max, d_sums);
        for (int64_t i = 0; i < rows * width; i++)
            parts[k].logits.exact[i] = d_logits.exact[i / width * cols + lo + i % width];
        check_close("d_logits", dtype, x, parts[k].logits.exact, rows * width, 16, 1);
    }
    for (int k = 0; k < n; k++) {
        operand_free(parts[k].logits);
        free(parts[k].max), free(parts[k].sums);
    }
    operand_free(logits), operand_free(d_loss), operand_free(loss), operand_free(d_logits);
    free(labels), free(typed);
}

static void cross_entropy_matches(clv_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++)
        for (int n = 1; n <= 3; n++)
            cross_entropy_case(dtype, shapes[s][0], shapes[s][1], n, s % 2 ? CLV_I64 : CLV_I32);
}

static void cross_entropy(void **state)
{
    check_everywhere(cross_entropy_matches);
}

static void nan_logits(clv_dtype dtype)
{
    enum { COLS = 20 };
    clv_dtype stats = clv_cross_entropy_stats_dtype(dtype);
    operand x = operand_random(dtype, COLS, -1, 1);
    double max, sums[2], loss;
    int64_t label = 2;
    clv_cross_entropy_args ce = {dtype, CLV_I64, 1, COLS, 0, CLV_IGNORE_INDEX};
    clv_dtype_store(dtype, x.data, 11, NAN);
    clv_cross_entropy_max(&ce, &max, x.data);
    clv_cross_entropy_sums(&ce, sums, x.data, &label, &max);
    clv_cross_entropy_loss(&ce, &loss, sums, &label);
    assert_true(isnan(clv_dtype_load(stats, &max, 0)));
    assert_true(isnan(clv_dtype_load(stats, &loss, 0)));
    operand_free(x);
}

static void nan_propagates(void **state)
{
    check_everywhere(nan_logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax),       cmocka_unit_test(extremes),       cmocka_unit_test(softmax_slope),
        cmocka_unit_test(cross_entropy), cmocka_unit_test(nan_propagates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
