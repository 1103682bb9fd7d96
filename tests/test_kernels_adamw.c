/* test_kernels_adamw.c - AdamW over several steps against f64, 16-bit parameters with a master copy. */
#include "kernel_check.h"
#include "kernels/cpu/optimizer_kernel.h"
#include "kernels/cpu/reduce_kernel.h"

static const int64_t lengths[] = {0, 1, 31, 1025, 40001};
enum { LENGTHS = 5, STEPS = 5 };

static clv_adamw_args at_step(int64_t step)
{
    return (clv_adamw_args){
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 0.05, .weight_decay = 0.1, .step = step, .grad_scale = 0.5};
}

static void against_f64(clv_dtype dtype)
{
    clv_dtype states = dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    const bool with_master = clv_dtype_size(dtype) == 2;
    for (int l = 0; l < LENGTHS; l++) {
        int64_t n = lengths[l];
        operand p = operand_random(dtype, n, -1, 1), m = operand_blank(states, n), v = operand_blank(states, n);
        operand master = operand_blank(CLV_F32, n);
        for (int64_t i = 0; i < n; i++) {
            clv_dtype_store(states, m.data, i, 0), clv_dtype_store(states, v.data, i, 0);
            clv_dtype_store(CLV_F32, master.data, i, p.exact[i]);
            m.exact[i] = v.exact[i] = 0;
        }
        for (int64_t step = 1; step <= STEPS; step++) {
            operand grad = operand_random(dtype, n, 0.1, 1); /* one sign: near 0, m / sqrt(v) is ill-conditioned */
            clv_adamw_args a = at_step(step);
            clv_adamw_step(&a, dtype, p.data, with_master ? master.data : NULL, m.data, v.data, dtype, grad.data, n);
            clv_adamw_step(&a, CLV_F64, p.exact, NULL, m.exact, v.exact, CLV_F64, grad.exact, n);
            operand_free(grad);
        }
        check_close("p", dtype, p.data, p.exact, n, 8 * STEPS, 1);
        check_close("m", states, m.data, m.exact, n, 8 * STEPS, 0);
        check_close("v", states, v.data, v.exact, n, 8 * STEPS, 0);
        if (with_master)
            check_close("master", CLV_F32, master.data, p.exact, n, 8 * STEPS, 1);
        operand_free(p), operand_free(m), operand_free(v), operand_free(master);
    }
}

static void adamw(void **state)
{
    check_everywhere(against_f64);
}

/* Two steps of the formula in the documentation of torch.optim.AdamW, worked by hand: p = 1, grads 0.1, -0.2. */
static void known_values(void **state)
{
    double p = 1, m = 0, v = 0, grad = 0.1;
    clv_adamw_args a = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .step = 1, .grad_scale = 1};
    clv_adamw_step(&a, CLV_F64, &p, NULL, &m, &v, CLV_F64, &grad, 1);
    /* first step: m / (1 - beta1) = g and sqrt(v / (1 - beta2)) = |g|, so p = 1 - lr wd - lr g / (|g| + eps) */
    assert_true(fabs(p - (1 - 0.001 - 0.1 * 0.1 / (0.1 + 1e-8))) < 1e-15);
    grad = -0.2, a.step = 2;
    double m2 = 0.9 * 0.01 - 0.1 * 0.2, v2 = 0.99 * 0.0001 + 0.01 * 0.04;
    double want = p * (1 - 0.001) - 0.1 * (m2 / 0.19) / (sqrt(v2 / (1 - 0.9801)) + 1e-8);
    clv_adamw_step(&a, CLV_F64, &p, NULL, &m, &v, CLV_F64, &grad, 1);
    assert_true(fabs(p - want) < 1e-14);
}

static void squares(clv_dtype dtype)
{
    for (int l = 0; l < LENGTHS; l++) {
        operand x = operand_random(dtype, lengths[l], -1, 1);
        double want = 0, got = clv_sum_squares(dtype, x.data, x.n);
        for (int64_t i = 0; i < x.n; i++)
            want += x.exact[i] * x.exact[i];
        assert_true(fabs(got - want) <= 1e-12 * want);
        operand_free(x);
    }
}

static void sum_squares(void **state)
{
    check_everywhere(squares);
}

static void nan_propagates(void **state)
{
    float p[3] = {1, 1, 1}, m[3] = {0}, v[3] = {0}, grad[3] = {1, NAN, 1};
    clv_adamw_args a = at_step(1);
    clv_adamw_step(&a, CLV_F32, p, NULL, m, v, CLV_F32, grad, 3);
    assert_true(isnan(p[1]) && !isnan(p[0]) && !isnan(p[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw),
        cmocka_unit_test(known_values),
        cmocka_unit_test(sum_squares),
        cmocka_unit_test(nan_propagates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
