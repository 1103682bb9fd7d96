/* cpu_tuning.c - tuning table: the fastest kernel variants measured on each kind of CPU, and this CPU's row. */
#include "kernels/cpu/cpu_tuning.h"

#include <stdatomic.h>

#include "kernels/cpu/isa_dispatch.h"

enum {
    ALL = INT32_MAX,
    /* With so few columns the lines of a chunk would share cache sets. */
    NARROW = 128,
    UNSET = -1
};

/* Measurements behind the table.
 *
 * GEMM, GF/s of a core, `cleave bench gemm` (rows x columns x k of x W^T, dY W and dY^T X):
 *   f32   AVX2: our kernel 93, oneDNN 84. Intel AVX-512, of 176, ours and oneDNN: 2048 x 768 x 512: 162, 160; 2048 x
 *         1024 x 2048 (dY^T X): 150, 141; 256 x 768 x 25129: 139, 156; a step of 4 x 512 with H512 788, 811 ms, as idle
 *         ranks take part in ours; GPT-2's of 4 x 64 799, 804 ms. Zen 5, an older kernel of ours: 254, 254; 2048 x 2048
 *         x 1024: 232, 254; 256 x 768 x 25129: 229, 258.
 *   bf16  AMX, ours and oneDNN 2.6: 2048 x 768 x 512: 1854, 1239; 768 x 512 x 2048: 1213, 692; 2048 x 1024 x 2048:
 *         1317, 714 and (dY^T X) 1102, 570; 256 x 25129 x 768: 978, 909. Zen 5, vdpbf16ps: oneDNN 455 to 530, ours, on
 *         another day, 420 to 500, where a bare loop did 520; idle ranks take part only in ours. Intel AVX512-BF16,
 *         ours or oneDNN: half the rate of f32, 92 of 174.
 * 5 to 16 rows, tokens/s by panels and by chunks (`cleave bench -m DIR -p 0 -n 10 -b N -tp 2`, 134M Llama): AVX2, 16:
 *         f32 255, 326; bf16 306, 355. Zen 5, f32 16: 1015, 989; bf16 8: 1018, 1072, 16: 1411, 1451. Intel AVX-512 was
 *         only measured by panels.
 * Streams, tokens/s with one row of weights at a time and with four (134M Llama, `cleave bench -m DIR -p 0 -n 128
 *         --dtype D --quant Q -tp 2`): Zen 5, whose prefetcher follows one stream best: f32 105, 101, four sequences
 *         350, 325; bf16 202, 175; q8 404, 319; q4 products from memory 47 and 35 GB/s of 49. Intel AVX-512: q8 133,
 *         183; q4 282, 325; dense weights were only measured with four. AVX2 (Zen 3): one for q8, four for q4; bf16 85,
 *         93; f32 equal within the spread. Zen 4, of the same kind as Zen 5, was not measured.
 * Prepacked weights, tokens/s without and with (the same bench): AVX2 (Zen 3), f32, 1, 4, 16 sequences: 55.2, 56.0;
 *         186, 200; 339, 446; bf16: 81.6, 98.4; 256, 316; 418, 464. Intel AVX-512, f32: 71.5, 73.1; 235, 244; 557, 807;
 *         bf16: 108, 116; 355, 378; 698, 898. Other kinds were not measured: where bf16 has its own kernels, these
 *         would have to read panels, too.
 */

/* Columns: instruction set; then clv_tuning: f32 GEMM, bf16 GEMM, attention_in_bf16, skinny_panel_columns of f32
 * and of 16 bits, streams of dense, q8 and q4 weights, prepack_weights. */
// clang-format off
static const struct {
    clv_isa isa;
    clv_tuning tuning;
} table[CLV_CPU_KINDS] = {
    [CLV_CPU_PORTABLE] = {CLV_ISA_PORTABLE,
        {CLV_GEMM_F32_ONEDNN, CLV_GEMM_HALF_F32, false, NARROW, NARROW, 4, 4, 4, false}},
    [CLV_CPU_AVX2] = {CLV_ISA_AVX2, {CLV_GEMM_F32_OWN, CLV_GEMM_HALF_F32, false, NARROW, NARROW, 4, 1, 4, true}},
    [CLV_CPU_AVX512] = {CLV_ISA_AVX512, {CLV_GEMM_F32_OWN, CLV_GEMM_HALF_F32, false, ALL, ALL, 4, 4, 4, true}},
    [CLV_CPU_AVX512_BF16] = {CLV_ISA_AVX512,
        {CLV_GEMM_F32_ONEDNN, CLV_GEMM_HALF_VDP, true, ALL, NARROW, 1, 1, 1, false}},
    [CLV_CPU_AMX] = {CLV_ISA_AMX, {CLV_GEMM_F32_ONEDNN, CLV_GEMM_HALF_AMX, true, ALL, ALL, 4, 4, 4, false}},
};
// clang-format on

static _Atomic int set_for_test = UNSET;

static clv_cpu_kind kind_of(clv_isa isa)
{
    switch (isa) {
    case CLV_ISA_PORTABLE:
        return CLV_CPU_PORTABLE;
    case CLV_ISA_AVX2:
        return CLV_CPU_AVX2;
    case CLV_ISA_AVX512:
        return clv_cpu_has_avx512_bf16() && clv_cpu_is_amd() ? CLV_CPU_AVX512_BF16 : CLV_CPU_AVX512;
    case CLV_ISA_AMX:
        return CLV_CPU_AMX;
    }
    return CLV_CPU_PORTABLE;
}

const clv_tuning *clv_cpu_tuning(void)
{
    const int kind = atomic_load_explicit(&set_for_test, memory_order_relaxed);
    const clv_isa isa = clv_cpu_isa();
    return kind != UNSET && table[kind].isa == isa ? &table[kind].tuning : &table[kind_of(isa)].tuning;
}

int clv_tuning_set_for_test(clv_cpu_kind kind)
{
    if ((kind == CLV_CPU_AVX512_BF16 && !clv_cpu_has_avx512_bf16()) || clv_cpu_set_isa_for_test(table[kind].isa) != 0)
        return -1;
    atomic_store_explicit(&set_for_test, (int)kind, memory_order_relaxed);
    return 0;
}

void clv_tuning_reset_for_test(void)
{
    atomic_store_explicit(&set_for_test, UNSET, memory_order_relaxed);
    clv_cpu_isa_reset_for_test();
}
