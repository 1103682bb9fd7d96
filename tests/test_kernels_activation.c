/* test_kernels_activation.c - fused bias + activation and gated units, forward, backward, packed and in place. */
#include "kernel_check.h"
#include "kernels/cpu/activation_kernel.h"
#include "sweep.h"

static const clv_unary_op acts[] = {CLV_UNARY_SILU, CLV_UNARY_GELU_TANH, CLV_UNARY_GELU_ERF, CLV_UNARY_RELU};
enum { ACTS = 4 };
static const int64_t shapes[][2] = {{0, 3}, {1, 1}, {3, 5}, {2, 1023}, {4, 1100}, {50, 900}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void bias_act_matches(clv_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++)
        for (int a = 0; a < ACTS; a++) {
            if (!sweep_takes())
                continue;
            int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
            operand x = operand_random(dtype, n, -3, 3), bias = operand_random(dtype, cols, -1, 1);
            operand d = operand_random(dtype, n, -1, 1), out = operand_blank(dtype, n);
            clv_bias_act(acts[a], dtype, out.data, x.data, bias.data, rows, cols);
            clv_bias_act(acts[a], CLV_F64, out.exact, x.exact, bias.exact, rows, cols);
            check_close("bias_act", dtype, out.data, out.exact, n, 16, 1);
            clv_bias_act_backward(acts[a], dtype, out.data, d.data, x.data, bias.data, rows, cols);
            clv_bias_act_backward(acts[a], CLV_F64, out.exact, d.exact, x.exact, bias.exact, rows, cols);
            check_close("bias_act backward", dtype, out.data, out.exact, n, 16, 1);
            clv_bias_act_backward(acts[a], dtype, d.data, d.data, x.data, bias.data, rows, cols);
            check_close("in place", dtype, d.data, out.exact, n, 16, 1);
            operand_free(x), operand_free(bias), operand_free(d), operand_free(out);
        }
}

static void bias_act(void **state)
{
    check_everywhere(bias_act_matches);
}

/* Two buffers and one packed [rows, 2, cols], against the formula in f64. */
static void glu_case(clv_dtype dtype, clv_unary_op act, int64_t rows, int64_t cols, bool packed)
{
    int64_t n = rows * cols, stride = packed ? 2 * cols : cols, skip = packed ? cols : n;
    size_t size = clv_dtype_size(dtype);
    operand in = operand_random(dtype, 2 * n, -3, 3), d = operand_random(dtype, n, -1, 1);
    operand out = operand_blank(dtype, n), d_in = operand_blank(dtype, 2 * n);
    char *gate = in.data, *up = gate + (size_t)skip * size, *d_gate = d_in.data, *d_up = d_gate + (size_t)skip * size;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / cols * stride + i % cols;
        double g = in.exact[at], u = in.exact[at + skip], one = 1, active, slope;
        clv_unary_forward(act, 1, CLV_F64, &active, &g, 1);
        clv_unary_backward(act, 1, CLV_F64, &slope, &one, &g, 1);
        out.exact[i] = active * u;
        d_in.exact[at] = d.exact[i] * u * slope;
        d_in.exact[at + skip] = d.exact[i] * active;
    }
    clv_glu(act, dtype, out.data, gate, up, stride, rows, cols);
    check_close("glu", dtype, out.data, out.exact, n, 16, 2);
    clv_glu_backward(act, dtype, d_gate, d_up, d.data, gate, up, stride, rows, cols);
    check_close("glu backward", dtype, d_in.data, d_in.exact, 2 * n, 24, 2);
    clv_glu_backward(act, dtype, gate, up, d.data, gate, up, stride, rows, cols);
    check_close("glu backward in place", dtype, in.data, d_in.exact, 2 * n, 24, 2);
    operand_free(in), operand_free(d), operand_free(out), operand_free(d_in);
}

static void glu_matches(clv_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++)
        for (int a = 0; a < ACTS; a++)
            for (int packed = 0; packed <= 1; packed++)
                if (sweep_takes())
                    glu_case(dtype, acts[a], shapes[s][0], shapes[s][1], packed);
}

static void glu(void **state)
{
    check_everywhere(glu_matches);
}

static void nan_stays_where_it_is(clv_dtype dtype)
{
    enum { N = 20 };
    operand gate = operand_random(dtype, N, 1, 2), up = operand_random(dtype, N, 1, 2), out = operand_blank(dtype, N);
    clv_dtype_store(dtype, gate.data, 3, NAN);
    clv_dtype_store(dtype, up.data, 18, NAN);
    clv_glu(CLV_UNARY_SILU, dtype, out.data, gate.data, up.data, N, 1, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(isnan(clv_dtype_load(dtype, out.data, i)) != 0, i == 3 || i == 18);
    operand_free(gate), operand_free(up), operand_free(out);
}

static void nan_propagates(void **state)
{
    check_everywhere(nan_stays_where_it_is);
}

/* Far gates are off or on, value and slope; nothing becomes NaN. */
static void far_gates_are_finite(clv_dtype dtype)
{
    enum { N = 20 };
    if (dtype == CLV_F16)
        return; /* has no 1e30 */
    operand gate = operand_blank(dtype, N), ones = operand_blank(dtype, N), d_gate = operand_blank(dtype, N);
    operand d_up = operand_blank(dtype, N);
    for (int i = 0; i < N; i++) {
        clv_dtype_store(dtype, gate.data, i, i % 2 ? 1e30 : -1e30);
        clv_dtype_store(dtype, ones.data, i, 1);
        d_gate.exact[i] = i % 2;
        d_up.exact[i] = i % 2 ? clv_dtype_load(dtype, gate.data, i) : 0;
    }
    for (int a = 0; a < ACTS; a++) {
        clv_glu_backward(acts[a], dtype, d_gate.data, d_up.data, ones.data, gate.data, ones.data, N, 1, N);
        check_close("far slope", dtype, d_gate.data, d_gate.exact, N, 4, 1e-20);
        check_close("far value", dtype, d_up.data, d_up.exact, N, 4, 1e-20);
        clv_glu(acts[a], dtype, d_gate.data, gate.data, ones.data, N, 1, N);
        check_close("far forward", dtype, d_gate.data, d_up.exact, N, 4, 1e-20);
    }
    operand_free(gate), operand_free(ones), operand_free(d_gate), operand_free(d_up);
}

static void far_gates(void **state)
{
    check_everywhere(far_gates_are_finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_act),
        cmocka_unit_test(glu),
        cmocka_unit_test(nan_propagates),
        cmocka_unit_test(far_gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
