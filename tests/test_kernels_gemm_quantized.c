/* test_kernels_gemm_quantized.c - weights in blocks: what GGUF's package makes of the same floats, to the bit; and
 * products with them against f64, of few rows and many, over every instruction set. */
#include "kernel_check.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "kernels/cpu/isa/gemm_quantized_simd.h"
#include "tensor/float16.h"

typedef struct golden_block {
    uint32_t x[CLV_QUANT_BLOCK];
    uint8_t q8[2 + CLV_QUANT_BLOCK], q4[2 + CLV_QUANT_BLOCK / 2];
} golden_block;
#include "golden/quant.h"

enum { GOLDENS = sizeof golden_blocks / sizeof *golden_blocks, HEADER = 2 /* a block of GGUF begins with its scale */ };

static void is_as_stored(clv_quant how, const golden_block *golden, const uint8_t *stored)
{
    float x[CLV_QUANT_BLOCK], back[CLV_QUANT_BLOCK];
    uint8_t ints[CLV_QUANT_BLOCK];
    uint16_t scale, stored_scale, alone;
    memcpy(x, golden->x, sizeof x);
    memcpy(&stored_scale, stored, sizeof stored_scale);
    clv_quantize(how, ints, &scale, x, 1);
    clv_quantize(how, NULL, &alone, x, 1);
    assert_int_equal(scale, stored_scale);
    assert_int_equal(alone, stored_scale);
    clv_dequantize(how, back, ints, &scale, 1);
    for (int i = 0; i < clv_quant_block_bytes(how); i++) {
        uint8_t want = stored[HEADER + i];
        assert_int_equal(ints[i], how == CLV_QUANT_Q8 ? want ^ 0x80 : want);
    }
    for (int i = 0; i < CLV_QUANT_BLOCK; i++) {
        int half = CLV_QUANT_BLOCK / 2;
        int value = how == CLV_QUANT_Q8 ? (int8_t)stored[HEADER + i]
                    : i < half          ? (stored[HEADER + i] & 15) - 8
                                        : (stored[HEADER + i - half] >> 4) - 8;
        assert_true(back[i] == clv_f32_of_f16(scale) * (float)value);
    }
}

static void equals_gguf(void **state)
{
    for (int isa = CLV_ISA_PORTABLE; isa <= CLV_ISA_AVX512; isa++) {
        if (clv_cpu_set_isa_for_test((clv_isa)isa) != 0)
            continue;
        for (int i = 0; i < GOLDENS; i++) {
            is_as_stored(CLV_QUANT_Q8, &golden_blocks[i], golden_blocks[i].q8);
            is_as_stored(CLV_QUANT_Q4, &golden_blocks[i], golden_blocks[i].q4);
        }
    }
    clv_cpu_isa_reset_for_test();
}

/* What cannot be quantised is not made finite. */
static void keeps_nonfinite(void **state)
{
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++)
        for (int i = 0; i < 2; i++) {
            float x[CLV_QUANT_BLOCK] = {1, 2}, back[CLV_QUANT_BLOCK];
            uint8_t ints[CLV_QUANT_BLOCK];
            uint16_t scale;
            x[5] = i == 0 ? NAN : -INFINITY;
            clv_quantize((clv_quant)how, ints, &scale, x, 1);
            clv_dequantize((clv_quant)how, back, ints, &scale, 1);
            for (int j = 0; j < CLV_QUANT_BLOCK; j++)
                assert_false(isfinite(back[j]));
        }
}

/* ---- products ---- */

/* Weights of every kind of block: large, small, zero. */
static float *weights(int64_t n, int64_t blocks)
{
    float *w = check_alloc(n * blocks * CLV_QUANT_BLOCK, sizeof *w);
    for (int64_t b = 0; b < n * blocks; b++) {
        double size = b % 7 == 3 ? 0 : b % 5 == 2 ? 1e-3 : 1;
        for (int i = 0; i < CLV_QUANT_BLOCK; i++)
            w[b * CLV_QUANT_BLOCK + i] = (float)check_uniform(-size, size);
    }
    return w;
}

/* What few rows round x to: 14 bits of its block's largest. Sums of f32 add as a few hundred units of 2^-24. */
static double units_of(clv_dtype dtype, int64_t m, int64_t blocks)
{
    const double k = (double)(blocks * CLV_QUANT_BLOCK);
    if (dtype == CLV_F64)
        return k;
    if (m <= CLV_QUANT_SKINNY_ROWS) /* halves of 1/8127, as those of a random walk, four deviations wide */
        return 0.5 / 8127 * 0x1p24 * 4 * sqrt(k) + 4 * k;
    return dtype == CLV_F32 ? 4 * k : check_rounding(dtype) * 0x1p24 * (4 * sqrt(k) + 4) + 4 * k;
}

static void product_case(clv_quant how, clv_dtype dtype, int64_t m, int64_t n, int64_t blocks)
{
    const int64_t k = blocks * CLV_QUANT_BLOCK;
    float *w = weights(n, blocks);
    uint8_t *ints = check_alloc(n * blocks, (size_t)clv_quant_block_bytes(how));
    uint16_t *scales = check_alloc(n * blocks, sizeof *scales);
    operand x = operand_random(dtype, m * k, -1, 1), y = operand_blank(dtype, m * n);
    clv_quantize(how, ints, scales, w, n * blocks);
    clv_dequantize(how, w, ints, scales, n * blocks);
    for (int64_t r = 0; r < m; r++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += x.exact[r * k + p] * (double)w[j * k + p];
            y.exact[r * n + j] = sum;
        }
    clv_gemm_quantized_args a = {how, dtype, m, n, blocks, m, x.data, ints, scales, y.data, NULL, {0}};
    size_t bytes = clv_gemm_quantized_workspace(&a);
    char *workspace = NULL;
    assert_int_equal(posix_memalign((void **)&workspace, 64, bytes + 64), 0);
    memset(workspace, 0x55, bytes + 64);
    a.workspace = workspace;
    assert_int_equal(clv_gemm_quantized(&a, NULL), CLV_OK);
    check_close(clv_quant_name(how), dtype, y.data, y.exact, y.n, units_of(dtype, m, blocks), 1);
    for (size_t i = bytes; i < bytes + 64; i++)
        assert_int_equal(workspace[i], 0x55);
    free(workspace);
    operand_free(x), operand_free(y);
    free(w), free(ints), free(scales);
}

static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 16, 17, 33};
static const int64_t outs[] = {0, 1, 3, 15, 16, 17, 50};
static const int64_t blocks_of[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 19, 33};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static void products_in(clv_dtype dtype)
{
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++)
        for (int r = 0; r < COUNT(rows); r++)
            for (int j = 0; j < COUNT(outs); j++)
                for (int b = (r + j) % 3; b < COUNT(blocks_of); b += 3)
                    product_case((clv_quant)how, dtype, rows[r], outs[j], blocks_of[b]);
    product_case(CLV_QUANT_Q8, dtype, 0, 5, 3);
    if (dtype == CLV_F32)
        for (int64_t m = 17; m <= 60; m += 43) /* two panels, of a product without a workspace and with one */
            product_case(CLV_QUANT_Q4, dtype, m, 1100, 33);
}

static void products(void **state)
{
    check_everywhere(products_in);
}

static void products_without_vnni(void **state)
{
    clv_quant_use_vnni_for_test(false);
    products_in(CLV_F32);
    clv_quant_use_vnni_for_test(true);
}

/* The largest integers there are: nothing may leave 16 bits on the way. */
static void extremes(void **state)
{
    enum { BLOCKS = 6, K = BLOCKS * CLV_QUANT_BLOCK };
    for (int isa = CLV_ISA_PORTABLE; isa <= CLV_ISA_AVX512; isa++)
        for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x[K], y, want = how == CLV_QUANT_Q8 ? K : K * 7.0f / 8;
                uint8_t ints[K];
                uint16_t scales[BLOCKS], most = clv_f16_of_f32(how == CLV_QUANT_Q8 ? 1.0f : 0.125f);
                if (clv_cpu_set_isa_for_test((clv_isa)isa) != 0)
                    continue;
                for (int i = 0; i < K; i++)
                    x[i] = (float)sign;
                memset(ints, how == CLV_QUANT_Q8 ? 255 : 0xff, sizeof ints);
                for (int b = 0; b < BLOCKS; b++)
                    scales[b] = most;
                want *= (float)sign * (how == CLV_QUANT_Q8 ? 127.0f : 1.0f);
                clv_gemm_quantized_args a = {(clv_quant)how, CLV_F32, 1, 1, BLOCKS, 1, x, ints, scales, &y, NULL, {0}};
                assert_int_equal(posix_memalign(&a.workspace, 64, clv_gemm_quantized_workspace(&a)), 0);
                assert_int_equal(clv_gemm_quantized(&a, NULL), CLV_OK);
                assert_true(fabsf(y - want) <= 1e-5f * fabsf(want));
                free(a.workspace);
            }
    clv_cpu_isa_reset_for_test();
}

/* A row of x that is not finite makes a result that is not; the others keep theirs. */
static void nonfinite_rows(void **state)
{
    enum { M = 3, N = 5, BLOCKS = 3, K = BLOCKS * CLV_QUANT_BLOCK };
    for (int isa = CLV_ISA_PORTABLE; isa <= CLV_ISA_AVX512; isa++)
        for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++) {
            float x[M * K], y[M * N], *w = weights(N, BLOCKS);
            uint8_t ints[N * K];
            uint16_t scales[N * BLOCKS];
            if (clv_cpu_set_isa_for_test((clv_isa)isa) == 0) {
                for (int i = 0; i < M * K; i++)
                    x[i] = 1;
                x[K + 40] = INFINITY;
                x[2 * K + 70] = NAN;
                clv_quantize((clv_quant)how, ints, scales, w, N * BLOCKS);
                clv_gemm_quantized_args a = {(clv_quant)how, CLV_F32, M, N, BLOCKS, M, x, ints, scales, y, NULL, {0}};
                assert_int_equal(posix_memalign(&a.workspace, 64, clv_gemm_quantized_workspace(&a)), 0);
                assert_int_equal(clv_gemm_quantized(&a, NULL), CLV_OK);
                for (int i = 0; i < M * N; i++)
                    assert_int_equal(isfinite(y[i]) != 0, i < N);
                free(a.workspace);
            }
            free(w);
        }
    clv_cpu_isa_reset_for_test();
}

/* A product of random rows with random weights, to be freed by product_free; its y is not set. */
static clv_gemm_quantized_args random_product(clv_quant how, int64_t m, int64_t n, int64_t blocks)
{
    const int64_t k = blocks * CLV_QUANT_BLOCK;
    float *w = weights(n, blocks), *x = check_alloc(m * k, sizeof *x);
    uint8_t *ints = check_alloc(n * k, 1);
    uint16_t *scales = check_alloc(n * blocks, sizeof *scales);
    for (int64_t i = 0; i < m * k; i++)
        x[i] = (float)check_uniform(-1, 1);
    clv_quantize(how, ints, scales, w, n * blocks);
    free(w);
    clv_gemm_quantized_args a = {how, CLV_F32, m, n, blocks, m, x, ints, scales, NULL, NULL, {0}};
    assert_int_equal(posix_memalign(&a.workspace, 64, clv_gemm_quantized_workspace(&a)), 0);
    return a;
}

static void product_free(clv_gemm_quantized_args *a)
{
    free((void *)a->x), free((void *)a->ints), free((void *)a->scales), free(a->workspace);
}

/* A row of few has the same bits alone and among others, whatever the threads. */
static void rows_are_alike(void **state)
{
    enum { M = 7, N = 37, BLOCKS = 9, K = BLOCKS * CLV_QUANT_BLOCK };
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++) {
        float y[M * N], alone[N];
        clv_gemm_quantized_args all = random_product((clv_quant)how, M, N, BLOCKS), one = all;
        all.y = y;
        assert_int_equal(clv_gemm_quantized(&all, NULL), CLV_OK);
        one.m = 1;
        one.y = alone;
        for (int r = 0; r < M; r++) {
            one.x = (const float *)all.x + r * K;
            assert_int_equal(clv_gemm_quantized(&one, NULL), CLV_OK);
            assert_memory_equal(alone, y + r * N, sizeof alone);
        }
        product_free(&all);
    }
}

/* How many rows of weights are read side by side changes no bits. */
static void streams_are_alike(void **state)
{
    enum { N = 29, BLOCKS = 21, PADDED = 32 * CLV_QUANT_BLOCK };
    int8_t hi[PADDED], lo[PADDED];
    int32_t offset[PADDED / 4];
    float scale[PADDED / CLV_QUANT_BLOCK];
    const clv_quant_row x = {hi, lo, offset, scale};
    for (int i = 0; i < CLV_QUANT_COUNT * CLV_ISA_AMX; i++) {
        const clv_quant how = (clv_quant)(i / CLV_ISA_AMX);
        if (how < CLV_QUANT_Q8 || clv_cpu_set_isa_for_test((clv_isa)(i % CLV_ISA_AMX)) != 0)
            continue;
        float by_one[N], by_four[N];
        clv_gemm_quantized_args a = random_product(how, 1, N, BLOCKS);
        CLV_ISA_SELECT(clv_quant_fill_row)(how, &x, a.x, BLOCKS);
        CLV_ISA_SELECT(clv_quant_dots)(how, by_one, N, &x, 1, a.ints, a.scales, N, 1, BLOCKS, false);
        CLV_ISA_SELECT(clv_quant_dots)(how, by_four, N, &x, 1, a.ints, a.scales, N, 4, BLOCKS, false);
        assert_memory_equal(by_one, by_four, sizeof by_one);
        product_free(&a);
    }
    clv_cpu_isa_reset_for_test();
}

static void names(void **state)
{
    clv_quant quant = CLV_QUANT_NONE;
    clv_error err = {0};
    assert_int_equal(clv_quant_parse(&quant, "q4", &err), CLV_OK);
    assert_int_equal(quant, CLV_QUANT_Q4);
    assert_string_equal(clv_quant_name(CLV_QUANT_Q8), "q8");
    assert_string_equal(clv_quant_name((clv_quant)9), "unknown");
    assert_int_equal(clv_quant_parse(&quant, "q5", &err), CLV_EDTYPE);
    assert_non_null(strstr(err.message, "none q8 q4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_gguf),           cmocka_unit_test(keeps_nonfinite),   cmocka_unit_test(products),
        cmocka_unit_test(products_without_vnni), cmocka_unit_test(extremes),          cmocka_unit_test(nonfinite_rows),
        cmocka_unit_test(rows_are_alike),        cmocka_unit_test(streams_are_alike), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
