/* test_kernels_dropout.c - masks equal to the generator's, the same for every part of a tensor. */
#include "kernel_check.h"
#include "kernels/cpu/dropout_kernel.h"

static const clv_key key = {{0x12345678u, 0x9abcdef0u}};

static void whole_matches_generator(clv_dtype dtype)
{
    const int64_t lengths[] = {0, 1, 17, 1025, 40000}, lo[] = {0};
    const double rates[] = {0, 0.1, 0.5, 1};
    for (int l = 0; l < 5; l++)
        for (int r = 0; r < 4; r++) {
            int64_t n = lengths[l];
            operand x = operand_random(dtype, n, 1, 2), out = operand_blank(dtype, n);
            float *uniform = check_alloc(n, sizeof *uniform), keep = (float)(1 - rates[r]);
            clv_random_uniform(uniform, key, 0, n, 0, 1);
            for (int64_t i = 0; i < n; i++)
                out.exact[i] = uniform[i] < keep ? x.exact[i] / (1 - rates[r]) : 0;
            clv_dropout_forward(dtype, out.data, x.data, rates[r], key, 1, &n, lo, &n);
            check_close("dropout", dtype, out.data, out.exact, n, 2, 0);
            free(uniform);
            operand_free(x), operand_free(out);
        }
}

static void generator(void **state)
{
    check_everywhere(whole_matches_generator);
}

/* A box of a tensor whose flat indices pass 2^32: the elements that the generator gives there. */
static void box_matches_generator(clv_dtype dtype)
{
    const int64_t shape[] = {2, 3, 50}, lo[] = {42949, 5, 37}, global[] = {100000, 100, 1000};
    operand x = operand_random(dtype, 300, 1, 2), out = operand_blank(dtype, 300);
    int64_t kept = 0;
    for (int64_t i = 0; i < 300; i++) {
        uint64_t at = (uint64_t)(((lo[0] + i / 150) * global[1] + lo[1] + i / 50 % 3) * global[2] + lo[2] + i % 50);
        float uniform;
        clv_random_uniform(&uniform, key, at, 1, 0, 1);
        out.exact[i] = uniform < 0.75f ? x.exact[i] / 0.75 : 0;
        kept += uniform < 0.75f;
    }
    assert_in_range(kept, 180, 270);
    clv_dropout_forward(dtype, out.data, x.data, 0.25, key, 3, shape, lo, global);
    check_close("box", dtype, out.data, out.exact, 300, 2, 0);
    clv_dropout_forward(dtype, x.data, x.data, 0.25, key, 3, shape, lo, global);
    check_close("in place", dtype, x.data, out.exact, 300, 2, 0);
    operand_free(x), operand_free(out);
}

static void box(void **state)
{
    check_everywhere(box_matches_generator);
}

/* One row that crosses index 2^32, where the counter's low word wraps. */
static void counter_carries(clv_dtype dtype)
{
    const int64_t shape[] = {64}, lo[] = {(INT64_C(1) << 32) - 21}, global[] = {INT64_C(1) << 33};
    operand x = operand_random(dtype, 64, 1, 2), out = operand_blank(dtype, 64);
    for (int64_t i = 0; i < 64; i++) {
        float uniform;
        clv_random_uniform(&uniform, key, (uint64_t)(lo[0] + i), 1, 0, 1);
        out.exact[i] = uniform < 0.5f ? x.exact[i] / 0.5 : 0;
    }
    clv_dropout_forward(dtype, out.data, x.data, 0.5, key, 1, shape, lo, global);
    check_close("carry", dtype, out.data, out.exact, 64, 2, 0);
    operand_free(x), operand_free(out);
}

static void carry(void **state)
{
    check_everywhere(counter_carries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator),
        cmocka_unit_test(box),
        cmocka_unit_test(carry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
