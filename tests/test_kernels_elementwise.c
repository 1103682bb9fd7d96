/* test_kernels_elementwise.c - elementwise kernels against libm and f64, their derivatives against finite differences,
 * broadcasting against index arithmetic. */
#include "kernel_check.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "sweep.h"

#define UNARY_NAME(code, name, saved) [code] = #name,
#define BINARY_NAME(code, name)       [code] = #name,
static const char *const unary_names[] = {CLV_UNARY_TABLE(UNARY_NAME)};
static const char *const binary_names[] = {CLV_BINARY_TABLE(BINARY_NAME)};

static const int64_t lengths[] = {0, 1, 7, 16, 1023, 1025, 70001};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void domain(clv_unary_op op, double *lo, double *hi)
{
    bool positive = op == CLV_UNARY_LOG || op == CLV_UNARY_RSQRT || op == CLV_UNARY_SQRT;
    *lo = positive ? 0.01 : -9;
    *hi = 9;
}

/* Units: gelu's left tail is absolute; exp's argument is exact, so its error is its own. */
static void unary_matches(clv_dtype dtype)
{
    for (int op = 0; op < CLV_UNARY_COUNT; op++)
        for (int l = 0; l < LENGTHS; l++) {
            double lo, hi;
            if (!sweep_takes())
                continue;
            domain((clv_unary_op)op, &lo, &hi);
            operand x = operand_random(dtype, lengths[l], lo, hi), y = operand_blank(dtype, lengths[l]);
            clv_unary_forward((clv_unary_op)op, 1.7, dtype, y.data, x.data, x.n);
            clv_unary_forward((clv_unary_op)op, 1.7, CLV_F64, y.exact, x.exact, x.n);
            check_close(unary_names[op], dtype, y.data, y.exact, y.n, 8, 1);
            clv_unary_forward((clv_unary_op)op, 1.7, dtype, x.data, x.data, x.n); /* in place */
            check_close("in place", dtype, x.data, y.exact, y.n, 8, 1);
            operand_free(x), operand_free(y);
        }
}

static void unary_backward_matches(clv_dtype dtype)
{
    for (int op = 0; op < CLV_UNARY_COUNT; op++)
        for (int l = 0; l < LENGTHS; l++) {
            double lo, hi;
            int64_t n = lengths[l];
            if (!sweep_takes())
                continue;
            domain((clv_unary_op)op, &lo, &hi);
            operand x = operand_random(dtype, n, op == CLV_UNARY_EXP ? 0.1 : lo, hi);
            if (op == CLV_UNARY_TANH || op == CLV_UNARY_SIGMOID) /* saved is an output */
                operand_free(x), x = operand_random(dtype, n, 0, 1);
            operand d = operand_random(dtype, n, -1, 1), r = operand_blank(dtype, n);
            clv_unary_backward((clv_unary_op)op, 1.7, dtype, r.data, d.data, x.data, n);
            clv_unary_backward((clv_unary_op)op, 1.7, CLV_F64, r.exact, d.exact, x.exact, n);
            check_close(unary_names[op], dtype, r.data, r.exact, n, 12, 1);
            clv_unary_backward((clv_unary_op)op, 1.7, dtype, x.data, d.data, x.data, n);
            check_close("in saved", dtype, x.data, r.exact, n, 12, 1);
            operand_free(x), operand_free(d), operand_free(r);
        }
}

static void unary(void **state)
{
    check_everywhere(unary_matches);
}

static void unary_backward(void **state)
{
    check_everywhere(unary_backward_matches);
}

/* The f64 derivative against a central difference of the f64 function. */
static void slopes_match_finite_differences(void **state)
{
    for (int op = 0; op < CLV_UNARY_COUNT; op++) {
        double lo, hi, one = 1, h = 1e-5;
        domain((clv_unary_op)op, &lo, &hi);
        for (int i = 0; i < 200; i++) {
            double x = check_uniform(fmax(lo, -4), 4), y, below, above, left = x - h, right = x + h, slope;
            if (op == CLV_UNARY_RELU && fabs(x) < 1e-4)
                continue;
            if (lo > 0 && x < 0.05)
                continue;
            clv_unary_forward((clv_unary_op)op, 1.7, CLV_F64, &y, &x, 1);
            clv_unary_forward((clv_unary_op)op, 1.7, CLV_F64, &below, &left, 1);
            clv_unary_forward((clv_unary_op)op, 1.7, CLV_F64, &above, &right, 1);
            const double *saved = clv_unary_saved_for_backward((clv_unary_op)op) == CLV_SAVED_OUTPUT ? &y : &x;
            clv_unary_backward((clv_unary_op)op, 1.7, CLV_F64, &slope, &one, saved, 1);
            double want = (above - below) / (2 * h);
            if (!(fabs(slope - want) <= 1e-6 * fmax(1, fabs(want))))
                fail_msg("%s'(%g) is %.9g, not %.9g", unary_names[op], x, slope, want);
        }
    }
}

typedef struct accuracy {
    clv_unary_op op;
    double lo, hi, ulps;
    double (*exact)(double x);
} accuracy;

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const accuracy accuracies[] = {
    {CLV_UNARY_EXP, -87, 88.7, 2, exp},     {CLV_UNARY_LOG, 1e-30, 3, 2, log},
    {CLV_UNARY_LOG, 1e-3, 1e30, 2, log},    {CLV_UNARY_TANH, -12, 12, 3, tanh},
    {CLV_UNARY_TANH, -0.01, 0.01, 3, tanh}, {CLV_UNARY_SIGMOID, -80, 80, 3, exact_sigmoid},
};

static double ulp_of(float x)
{
    return (double)(nextafterf(fabsf(x), INFINITY) - fabsf(x));
}

static void f32_functions_are_accurate(clv_dtype dtype)
{
    enum { N = 100000 };
    if (dtype != CLV_F32)
        return;
    float *x = check_alloc(N, sizeof *x), *y = check_alloc(N, sizeof *y);
    for (size_t a = 0; a < sizeof accuracies / sizeof *accuracies; a++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)check_uniform(accuracies[a].lo, accuracies[a].hi);
        clv_unary_forward(accuracies[a].op, 1, CLV_F32, y, x, N);
        for (int i = 0; i < N; i++) {
            double want = accuracies[a].exact((double)x[i]), error = fabs((double)y[i] - want) / ulp_of((float)want);
            if (!(error <= accuracies[a].ulps))
                fail_msg("%s(%.9g) on %s is %.9g: off by %.2f ulp", unary_names[accuracies[a].op], (double)x[i],
                         clv_isa_name(clv_cpu_isa()), (double)y[i], error);
        }
    }
    free(x), free(y);
}

static void accurate(void **state)
{
    check_everywhere(f32_functions_are_accurate);
}

typedef struct special {
    clv_unary_op op;
    double x, want;
} special;

static const special specials[] = {
    {CLV_UNARY_EXP, INFINITY, INFINITY},
    {CLV_UNARY_EXP, -INFINITY, 0},
    {CLV_UNARY_EXP, 2000, INFINITY},
    {CLV_UNARY_EXP, -2000, 0},
    {CLV_UNARY_EXP, 0, 1},
    {CLV_UNARY_EXP, NAN, NAN},
    {CLV_UNARY_LOG, 0, -INFINITY},
    {CLV_UNARY_LOG, -1, NAN},
    {CLV_UNARY_LOG, INFINITY, INFINITY},
    {CLV_UNARY_LOG, 1, 0},
    {CLV_UNARY_LOG, NAN, NAN},
    {CLV_UNARY_TANH, INFINITY, 1},
    {CLV_UNARY_TANH, -INFINITY, -1},
    {CLV_UNARY_TANH, NAN, NAN},
    {CLV_UNARY_SIGMOID, INFINITY, 1},
    {CLV_UNARY_SIGMOID, -INFINITY, 0},
    {CLV_UNARY_SIGMOID, NAN, NAN},
    {CLV_UNARY_GELU_ERF, 1e30, 1e30},
    {CLV_UNARY_GELU_ERF, -1e30, 0},
    {CLV_UNARY_GELU_ERF, NAN, NAN},
    {CLV_UNARY_GELU_TANH, 1e30, 1e30},
    {CLV_UNARY_GELU_TANH, -1e30, 0},
    {CLV_UNARY_GELU_TANH, NAN, NAN},
    {CLV_UNARY_SILU, 1e30, 1e30},
    {CLV_UNARY_SILU, -1e30, 0},
    {CLV_UNARY_SILU, NAN, NAN},
    {CLV_UNARY_RELU, -3, 0},
    {CLV_UNARY_RELU, NAN, NAN},
    {CLV_UNARY_RSQRT, 0, INFINITY},
    {CLV_UNARY_RSQRT, INFINITY, 0},
    {CLV_UNARY_RSQRT, -1, NAN},
    {CLV_UNARY_SQRT, 0, 0},
    {CLV_UNARY_SQRT, INFINITY, INFINITY},
    {CLV_UNARY_SQRT, -1, NAN},
};

/* Slopes at the ends and corners, JAX 0.10's where it has one (jax.grad of gelu and silu at infinity is NaN). */
static const struct {
    clv_unary_op op;
    double x, want;
} slopes[] = {
    {CLV_UNARY_EXP, INFINITY, INFINITY},
    {CLV_UNARY_EXP, -INFINITY, 0},
    {CLV_UNARY_LOG, 0, INFINITY},
    {CLV_UNARY_LOG, -0.0, -INFINITY},
    {CLV_UNARY_LOG, -1, -1},
    {CLV_UNARY_LOG, INFINITY, 0},
    {CLV_UNARY_TANH, INFINITY, 0},
    {CLV_UNARY_TANH, -INFINITY, 0},
    {CLV_UNARY_SIGMOID, INFINITY, 0},
    {CLV_UNARY_SIGMOID, -INFINITY, 0},
    {CLV_UNARY_GELU_ERF, 0, 0.5},
    {CLV_UNARY_GELU_TANH, 0, 0.5},
    {CLV_UNARY_SILU, 0, 0.5},
    {CLV_UNARY_RELU, 0, 0},
    {CLV_UNARY_RELU, -0.0, 0},
    {CLV_UNARY_RELU, INFINITY, 1},
    {CLV_UNARY_RELU, -INFINITY, 0},
    {CLV_UNARY_RSQRT, 0, -INFINITY},
    {CLV_UNARY_RSQRT, -0.0, -INFINITY},
    {CLV_UNARY_RSQRT, INFINITY, 0},
    {CLV_UNARY_RSQRT, -1, NAN},
    {CLV_UNARY_SQRT, 0, INFINITY},
    {CLV_UNARY_SQRT, -0.0, -INFINITY},
    {CLV_UNARY_SQRT, INFINITY, 0},
    {CLV_UNARY_SQRT, -1, NAN},
    {CLV_UNARY_NEG, INFINITY, -1},
};

static void slopes_at_ends(clv_dtype dtype)
{
    enum { WIDTH = 19 };
    for (size_t s = 0; s < sizeof slopes / sizeof *slopes; s++) {
        double want[WIDTH];
        char saved[WIDTH * sizeof(double)], d_out[WIDTH * sizeof(double)], d_x[WIDTH * sizeof(double)];
        for (int i = 0; i < WIDTH; i++) {
            clv_dtype_store(dtype, saved, i, slopes[s].x);
            clv_dtype_store(dtype, d_out, i, i % 2 ? -2 : 1);
            want[i] = slopes[s].want * (i % 2 ? -2 : 1);
        }
        if (clv_unary_saved_for_backward(slopes[s].op) == CLV_SAVED_OUTPUT)
            clv_unary_forward(slopes[s].op, 1, dtype, saved, saved, WIDTH);
        clv_unary_backward(slopes[s].op, 1, dtype, d_x, d_out, saved, WIDTH);
        check_close(unary_names[slopes[s].op], dtype, d_x, want, WIDTH, 1, 0);
    }
}

static void slope_cases(void **state)
{
    check_everywhere(slopes_at_ends);
}

static void special_values(clv_dtype dtype)
{
    enum { WIDTH = 19 }; /* body and tail of a vector loop */
    if (dtype == CLV_F16)
        return; /* has no 1e30 */
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
        double x[WIDTH], want[WIDTH];
        char data[WIDTH * sizeof(double)];
        for (int i = 0; i < WIDTH; i++) {
            clv_dtype_store(dtype, data, i, specials[s].x);
            x[i] = clv_dtype_load(dtype, data, i);
            want[i] = fabs(specials[s].want) == 1e30 ? x[i] : specials[s].want;
        }
        clv_unary_forward(specials[s].op, 1, dtype, data, data, WIDTH);
        check_close(unary_names[specials[s].op], dtype, data, want, WIDTH, 1, 0);
    }
}

static void special_cases(void **state)
{
    check_everywhere(special_values);
}

static void subnormals(void **state)
{
    float x[2] = {-95, 0x1p-130f}, y[2];
    clv_unary_forward(CLV_UNARY_EXP, 1, CLV_F32, y, x, 1);
    clv_unary_forward(CLV_UNARY_LOG, 1, CLV_F32, y + 1, x + 1, 1);
    assert_true(fabs((double)y[0] - exp(-95)) <= 0x1p-149);
    assert_true(fabs((double)y[1] - log(0x1p-130)) <= 1e-5);
}

/* ---- broadcasting ---- */

typedef struct broadcast {
    int rank;
    int64_t shape[4], a[4], b[4], c[4];
} broadcast;

static const broadcast broadcasts[] = {
    {0, {0}, {0}, {0}, {0}},
    {1, {0}, {0}, {1}, {0}},
    {1, {1}, {1}, {1}, {1}},
    {1, {5000}, {5000}, {5000}, {1}},
    {1, {1500}, {1}, {1500}, {1500}},
    {2, {37, 19}, {37, 19}, {1, 19}, {37, 1}},
    {2, {3, 1200}, {3, 1}, {3, 1200}, {1, 1200}},
    {2, {4, 0}, {4, 0}, {1, 1}, {4, 1}},
    {3, {5, 6, 7}, {5, 1, 7}, {1, 6, 1}, {5, 6, 1}},
    {4, {2, 3, 4, 5}, {2, 3, 1, 1}, {1, 1, 4, 5}, {2, 1, 4, 1}},
    {4, {2, 33, 4, 65}, {2, 33, 4, 65}, {2, 33, 1, 65}, {1, 1, 1, 65}},
    {2, {300, 200}, {300, 200}, {300, 200}, {300, 1}},
};
enum { BROADCASTS = sizeof broadcasts / sizeof *broadcasts };

static int64_t count_of(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    return n;
}

/* NumPy's rule, element by element: the place in an operand of the result's element i. */
static int64_t operand_index(int rank, const int64_t *shape, const int64_t *own, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        index += own[d] == 1 ? 0 : i % shape[d] * stride;
        stride *= own[d];
        i /= shape[d];
    }
    return index;
}

static double binary_exact(int op, double a, double b)
{
    const double results[CLV_BINARY_COUNT] = {a + b, a - b, a * b, a / b, a > b ? a : b, a < b ? a : b};
    return results[op];
}

static void binary_broadcasts(clv_dtype dtype)
{
    for (int s = 0; s < BROADCASTS; s++)
        for (int op = 0; op < CLV_BINARY_COUNT; op++) {
            const broadcast *t = &broadcasts[s];
            int64_t n = count_of(t->rank, t->shape);
            if (!sweep_takes())
                continue;
            operand a = operand_random(dtype, count_of(t->rank, t->a), -2, 2), out = operand_blank(dtype, n);
            operand b = operand_random(dtype, count_of(t->rank, t->b), 0.5, 2);
            for (int64_t i = 0; i < n; i++)
                out.exact[i] = binary_exact(op, a.exact[operand_index(t->rank, t->shape, t->a, i)],
                                            b.exact[operand_index(t->rank, t->shape, t->b, i)]);
            clv_binary_forward((clv_binary_op)op, dtype, out.data, a.data, b.data, t->rank, t->shape, t->a, t->b);
            check_close(binary_names[op], dtype, out.data, out.exact, n, 1, 0);
            if (a.n == n) {
                clv_binary_forward((clv_binary_op)op, dtype, a.data, a.data, b.data, t->rank, t->shape, t->a, t->b);
                check_close("in place", dtype, a.data, out.exact, n, 1, 0);
            }
            operand_free(a), operand_free(b), operand_free(out);
        }
}

static void binary(void **state)
{
    check_everywhere(binary_broadcasts);
}

static void where_broadcasts(clv_dtype dtype)
{
    for (int s = 0; s < BROADCASTS; s++) {
        const broadcast *t = &broadcasts[s];
        int64_t n = count_of(t->rank, t->shape), conds = count_of(t->rank, t->c);
        operand a = operand_random(dtype, count_of(t->rank, t->a), -2, 2), out = operand_blank(dtype, n);
        operand b = operand_random(dtype, count_of(t->rank, t->b), -2, 2);
        uint8_t *cond = check_alloc(conds, 1);
        for (int64_t i = 0; i < conds; i++)
            cond[i] = (uint8_t)(check_next() % 3);
        for (int64_t i = 0; i < n; i++)
            out.exact[i] = cond[operand_index(t->rank, t->shape, t->c, i)]
                               ? a.exact[operand_index(t->rank, t->shape, t->a, i)]
                               : b.exact[operand_index(t->rank, t->shape, t->b, i)];
        clv_where_forward(dtype, out.data, cond, a.data, b.data, t->rank, t->shape, t->c, t->a, t->b);
        check_close("where", dtype, out.data, out.exact, n, 0, 0);
        free(cond);
        operand_free(a), operand_free(b), operand_free(out);
    }
}

static void where(void **state)
{
    check_everywhere(where_broadcasts);
}

/* Gradients by a and by b add up to d_out, and go to the side that was chosen. */
static void max_gradient_is_shared(clv_dtype dtype)
{
    enum { N = 1300 };
    const int64_t shape[] = {N};
    operand a = operand_random(dtype, N, -2, 2), b = operand_random(dtype, N, -2, 2),
            d = operand_random(dtype, N, -1, 1);
    operand d_a = operand_blank(dtype, N), d_b = operand_blank(dtype, N);
    for (int64_t i = 0; i < N; i += 3) {
        clv_dtype_store(dtype, b.data, i, a.exact[i]);
        b.exact[i] = a.exact[i];
    }
    for (int largest = 0; largest <= 1; largest++) {
        for (int64_t i = 0; i < N; i++) {
            bool a_wins = largest ? a.exact[i] > b.exact[i] : a.exact[i] < b.exact[i];
            double share = a.exact[i] == b.exact[i] ? 0.5 : a_wins ? 1 : 0;
            d_a.exact[i] = d.exact[i] * share;
            d_b.exact[i] = d.exact[i] * (1 - share);
        }
        clv_max_or_min_backward(largest, dtype, d_a.data, d.data, a.data, b.data, 1, shape, shape, shape);
        clv_max_or_min_backward(largest, dtype, d_b.data, d.data, b.data, a.data, 1, shape, shape, shape);
        check_close("max by a", dtype, d_a.data, d_a.exact, N, 0, 0);
        check_close("max by b", dtype, d_b.data, d_b.exact, N, 0, 0);
    }
    operand_free(a), operand_free(b), operand_free(d), operand_free(d_a), operand_free(d_b);
}

static void max_gradient(void **state)
{
    check_everywhere(max_gradient_is_shared);
}

static void nan_wins(clv_dtype dtype)
{
    char a[3 * sizeof(double)], b[3 * sizeof(double)], out[3 * sizeof(double)];
    const int64_t shape[] = {3};
    const double left[] = {NAN, 1, NAN}, right[] = {1, NAN, NAN}, want[] = {NAN, NAN, NAN};
    for (int i = 0; i < 3; i++) {
        clv_dtype_store(dtype, a, i, left[i]);
        clv_dtype_store(dtype, b, i, right[i]);
    }
    for (int op = 0; op < CLV_BINARY_COUNT; op++) {
        clv_binary_forward((clv_binary_op)op, dtype, out, a, b, 1, shape, shape, shape);
        check_close(binary_names[op], dtype, out, want, 3, 0, 0);
    }
}

static void nan_propagates(void **state)
{
    check_everywhere(nan_wins);
}

static void integers(void **state)
{
    const int64_t shape[] = {3}, one[] = {1};
    int32_t a[] = {7, -8, 2147483000}, b[] = {2}, out[3];
    int64_t wide[] = {1, 1000000007, -4}, by[] = {3}, wide_out[3];
    clv_binary_forward(CLV_BINARY_ADD, CLV_I32, out, a, b, 1, shape, shape, one);
    assert_int_equal(out[0], 9);
    assert_int_equal(out[2], 2147483002);
    clv_binary_forward(CLV_BINARY_DIV, CLV_I32, out, a, b, 1, shape, shape, one);
    assert_int_equal(out[0], 3);
    clv_binary_forward(CLV_BINARY_MUL, CLV_I64, wide_out, wide, by, 1, shape, shape, one);
    assert_int_equal(wide_out[1], 3000000021);
    clv_binary_forward(CLV_BINARY_MAX, CLV_I64, wide_out, wide, by, 1, shape, shape, one);
    assert_int_equal(wide_out[2], 3);
}

/* Exact beyond f64's 53 bits, and near the limits, broadcast or not, in blocks and remainders. */
static void integers_wrap(void **state)
{
    enum { N = 1030 };
    static int64_t wide[N], wide_out[N];
    static uint8_t small[N], small_out[N], condition[N];
    const int64_t shape[] = {N}, one[] = {1}, big = (INT64_C(1) << 62) + 1;
    const int32_t most[] = {INT32_MAX};
    int32_t wrapped[1];
    for (int i = 0; i < N; i++) {
        wide[i] = big + i;
        small[i] = (uint8_t)i;
        condition[i] = i % 3 == 0;
    }
    clv_binary_forward(CLV_BINARY_ADD, CLV_I64, wide_out, wide, &big, 1, shape, shape, one);
    for (int i = 0; i < N; i++)
        assert_true(wide_out[i] == (int64_t)(2 * (uint64_t)big + (uint64_t)i));
    clv_where_forward(CLV_I64, wide_out, condition, wide, &big, 1, shape, shape, shape, one);
    for (int i = 0; i < N; i++)
        assert_true(wide_out[i] == (i % 3 == 0 ? wide[i] : big));
    clv_binary_forward(CLV_BINARY_MIN, CLV_I64, wide_out, wide, &big, 1, shape, shape, one);
    assert_true(wide_out[N - 1] == big);
    clv_binary_forward(CLV_BINARY_SUB, CLV_U8, small_out, small, small + 1, 1, one, one, one);
    assert_int_equal(small_out[0], 255);
    clv_binary_forward(CLV_BINARY_MUL, CLV_U8, small_out, small, small, 1, shape, shape, shape);
    for (int i = 0; i < N; i++)
        assert_int_equal(small_out[i], (uint8_t)(i * i));
    clv_binary_forward(CLV_BINARY_ADD, CLV_I32, wrapped, most, most, 1, one, one, one);
    assert_int_equal(wrapped[0], -2);
}

/* What is not rounded as other floats are, or rounds to even or to infinity. Far apart, so that a vector of a pair has
 * one and the other none. */
static void store_special(float *x, int64_t n)
{
    static const uint32_t bits[] = {0x7fffffff, 0xff800001, 0x7f7fffff, 0x3f808000, 0xff800000, 0x3f818000, 0x7fc00000};
    for (int64_t i = 5, at = 0; i < n; i += 19, at++)
        memcpy(x + i, bits + at % 7, sizeof *x);
}

static void casts(clv_dtype from)
{
    for (int d = 0; d < CHECK_DTYPES; d++)
        for (int l = 0; l < LENGTHS; l++) {
            clv_dtype to = check_dtypes[d];
            if (!sweep_takes())
                continue;
            operand x = operand_random(from, lengths[l], -9, 9);
            if (from == CLV_F32)
                store_special(x.data, x.n);
            void *out = check_alloc(x.n, clv_dtype_size(to)), *want = check_alloc(x.n, clv_dtype_size(to));
            clv_cast_values(to, out, from, x.data, x.n);
            clv_dtype_convert(to, want, from, x.data, x.n);
            assert_memory_equal(out, want, (size_t)x.n * clv_dtype_size(to));
            free(out), free(want);
            operand_free(x);
        }
}

static void cast(void **state)
{
    check_everywhere(casts);
}

static void fill(void **state)
{
    const clv_dtype dtypes[] = {CLV_F32, CLV_BF16, CLV_F64, CLV_I64, CLV_U8};
    for (int d = 0; d < 5; d++)
        for (int l = 0; l < LENGTHS; l++) {
            void *x = check_alloc(lengths[l], clv_dtype_size(dtypes[d]));
            clv_fill_values(dtypes[d], x, 3, lengths[l]);
            for (int64_t i = 0; i < lengths[l]; i++)
                assert_true(clv_dtype_load(dtypes[d], x, i) == 3);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary),
        cmocka_unit_test(unary_backward),
        cmocka_unit_test(slopes_match_finite_differences),
        cmocka_unit_test(accurate),
        cmocka_unit_test(special_cases),
        cmocka_unit_test(slope_cases),
        cmocka_unit_test(subnormals),
        cmocka_unit_test(binary),
        cmocka_unit_test(where),
        cmocka_unit_test(max_gradient),
        cmocka_unit_test(nan_propagates),
        cmocka_unit_test(integers),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(cast),
        cmocka_unit_test(fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
