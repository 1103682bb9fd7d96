/* test_kernels_rope.c - rotary embedding against the formula, its inverse, packed rows and rows with offsets of their
 * own. */
#include "kernel_check.h"
#include "kernels/cpu/rope_kernel.h"

/* x[row, h, :] rotated, element by element in f64. */
static void formula(const clv_rope_args *r, double *out, const double *x, int64_t x_stride, int64_t out_stride,
                    const double *positions)
{
    int64_t half = r->rotary / 2;
    for (int64_t row = 0; row < r->batch * r->seq; row++)
        for (int64_t h = 0; h < r->heads; h++) {
            const double *from = x + row * x_stride + h * r->head_dim;
            double *to = out + row * out_stride + h * r->head_dim;
            for (int64_t i = r->rotary; i < r->head_dim; i++)
                to[i] = from[i];
            for (int64_t i = 0; i < half; i++) {
                double angle = (r->inverse ? -1 : 1) * positions[row] * r->inv_freq[i];
                int64_t a = r->interleaved ? 2 * i : i, b = r->interleaved ? 2 * i + 1 : i + half;
                to[a] = from[a] * cos(angle) - from[b] * sin(angle);
                to[b] = from[b] * cos(angle) + from[a] * sin(angle);
            }
        }
}

typedef struct rope_case {
    int64_t batch, seq, heads, head_dim, rotary, offset;
    bool packed, own_offsets, table;
} rope_case;

static const rope_case cases[] = {
    {1, 1, 1, 2, 2, 0, false, false, false},        {2, 5, 3, 8, 8, 0, false, false, false},
    {2, 5, 3, 10, 6, 7, true, false, false},        {1, 4, 2, 64, 64, 100000, false, false, false},
    {2, 3, 1, 128, 128, 0, true, true, true},       {0, 3, 1, 8, 8, 0, false, false, false},
    {1, 2, 0, 8, 8, 0, false, false, false},        {1, 3, 2, 6, 0, 0, false, false, false},
    {1, 40, 8, 130, 126, 8000, true, false, false},
};

static void rope_one(clv_dtype dtype, const rope_case *c, bool interleaved, bool inverse)
{
    int64_t rows = c->batch * c->seq, dense = c->heads * c->head_dim, stride = c->packed ? 2 * dense : dense;
    operand x = operand_random(dtype, rows * stride, -1, 1), out = operand_blank(dtype, rows * stride);
    double *positions = check_alloc(rows, sizeof *positions);
    int32_t *offsets = check_alloc(c->batch, sizeof *offsets);
    double inv_freq[64];
    for (int i = 0; i < 64; i++)
        inv_freq[i] = c->table ? 1.0 / (1 + i) : pow(10000, -2.0 * i / (double)c->rotary);
    for (int64_t b = 0; b < c->batch; b++)
        offsets[b] = c->own_offsets ? (int32_t)(check_next() % 1000) : 0;
    for (int64_t row = 0; row < rows; row++)
        positions[row] = (double)(c->offset + offsets[row / c->seq] + row % c->seq);
    clv_rope_args r = {.dtype = dtype,
                       .interleaved = interleaved,
                       .inverse = inverse,
                       .batch = c->batch,
                       .seq = c->seq,
                       .heads = c->heads,
                       .head_dim = c->head_dim,
                       .rotary = c->rotary,
                       .inv_freq = inv_freq,
                       .position_offset = c->offset};
    r.x_stride = r.out_stride = c->packed ? stride : 0;
    r.offsets = c->own_offsets ? offsets : NULL;
    operand_copy(out, x); /* between packed rows nothing is written */
    formula(&r, out.exact, x.exact, stride, stride, positions);
    clv_rope_rotate(&r, out.data, x.data);
    check_close("rope", dtype, out.data, out.exact, out.n, 8, 1);
    clv_rope_rotate(&r, x.data, x.data);
    check_close("in place", dtype, x.data, out.exact, out.n, 8, 1);
    free(positions), free(offsets);
    operand_free(x), operand_free(out);
}

static void matches(clv_dtype dtype)
{
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int form = 0; form < 4; form++)
            rope_one(dtype, &cases[c], form & 1, form & 2);
}

static void rope(void **state)
{
    check_everywhere(matches);
}

/* The gradient of sum d * rope(x) is the inverse rotation of d: <d, R x> = <R^-1 d, x>. */
static void inverse_is_the_gradient(void **state)
{
    enum { S = 6, D = 12, N = S * D };
    for (int interleaved = 0; interleaved <= 1; interleaved++) {
        operand x = operand_random(CLV_F64, N, -1, 1), d = operand_random(CLV_F64, N, -1, 1);
        double rotated[N], d_x[N], inv_freq[D / 2], left = 0, right = 0;
        for (int i = 0; i < D / 2; i++)
            inv_freq[i] = pow(100, -2.0 * i / D);
        clv_rope_args r = {.dtype = CLV_F64,
                           .interleaved = interleaved,
                           .batch = 1,
                           .seq = S,
                           .heads = 1,
                           .head_dim = D,
                           .rotary = D,
                           .inv_freq = inv_freq};
        clv_rope_rotate(&r, rotated, x.data);
        r.inverse = true;
        clv_rope_rotate(&r, d_x, d.data);
        for (int i = 0; i < N; i++)
            left += d.exact[i] * rotated[i], right += d_x[i] * x.exact[i];
        assert_true(fabs(left - right) <= 1e-12);
        assert_true(fabs(left) > 1e-3);
        operand_free(x), operand_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope),
        cmocka_unit_test(inverse_is_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
