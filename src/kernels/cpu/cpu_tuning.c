/* cpu_tuning.c - tuning table: the fastest kernel variants measured on each kind of CPU, and this CPU's row. */
#include "kernels/cpu/cpu_tuning.h"

#include <stdatomic.h>

#include "kernels/cpu/isa_dispatch.h"

enum {
    ALL = INT32_MAX,
    /* Columns so few that lines of a chunk would fall into the same sets of a cache. */
    NARROW = 128,
    UNSET = -1
};

/* Products, GF/s of a core, `cleave bench gemm` (rows x columns x k of x W^T, dY W and dY^T X):
 *   f32   with AVX2 our own kernel does 93 where oneDNN's does 84. Intel's AVX-512, of 176: 2048 x 768 x 512: 162, 160;
 *         2048 x 1024 x 2048 (dY^T X): 150, 141; 256 x 768 x 25129: 139, 156 (ours, oneDNN's); a step of 4 x 512 with
 *         H512 788, 811 ms, for ranks that wait take part in ours; GPT-2's of 4 x 64 799, 804 ms. Zen 5, where an older
 *         kernel of ours was measured: 254, 254; 2048 x 2048 x 1024: 232, 254; 256 x 768 x 25129: 229, 258.
 *   bf16  with AMX ours, beside oneDNN 2.6's: 2048 x 768 x 512: 1854, 1239; 768 x 512 x 2048: 1213, 692; 2048 x 1024 x
 *         2048: 1317, 714 and 1102, 570 (dY^T X); 256 x 25129 x 768: 978, 909. On Zen 5 vdpbf16ps by oneDNN does 455 to
 *         530, by ours, another day, 420 to 500, where a bare loop did 520; ranks that wait take part in ours
 *         alone. Intel's, ours or oneDNN's, has half the rate of f32: 92 of 174.
 * 5 to 16 rows (`cleave bench -m DIR -p 0 -n 10 -b N -tp 2`, 134M Llama, tokens/s by panels and by chunks):
 *         AVX2, 16: f32 255, 326; bf16 306, 355. Zen 5, f32 16: 1015, 989; bf16 8: 1018, 1072, 16: 1411, 1451. Intel's
 *         AVX-512 was measured by panels alone.
 * Streams (`cleave bench -m DIR -p 0 -n 128 --dtype D --quant Q -tp 2`, 134M Llama, tokens/s), by one row and by four:
 *         Zen 5, whose prefetcher follows one stream best: f32 105, 101, four sequences 350, 325; bf16 202, 175; q8
 *         404, 319; products of q4 out of memory 47 and 35 GB/s of 49. Intel's AVX-512: q8 133, 183; q4 282, 325; its
 *         plain ones were measured by four alone. AVX2 (Zen 3): one of q8, four of q4; bf16 85, 93, f32 as fast by
 *         either, within the spread. Zen 4, of the same kind as Zen 5, was not measured.
 * Packed weights (the same bench, else and packed): AVX2 (Zen 3), f32, 1, 4, 16 sequences: 55.2, 56.0; 186, 200; 339,
 *         446; bf16: 81.6, 98.4; 256, 316; 418, 464. Intel's AVX-512, f32: 71.5, 73.1; 235, 244; 557, 807; bf16: 108,
 *         116; 355, 378; 698, 898. Other kinds were not measured: where bf16 has kernels of its own they would have to
 *         read panels, too. */
static const struct {
    const char *text;
    clv_isa takes;
    clv_tuning is;
} table[CLV_CPU_KINDS] = {
    [CLV_CPU_PORTABLE] = {"portable",
                          CLV_ISA_PORTABLE,
                          {.f32 = CLV_GEMM_F32_ONEDNN,
                           .bf16 = CLV_GEMM_HALF_F32,
                           .skinny_panel_columns_f32 = NARROW,
                           .skinny_panel_columns_16bit = NARROW,
                           .dense_streams = 4,
                           .q8_streams = 4,
                           .q4_streams = 4}},
    [CLV_CPU_AVX2] = {"avx2",
                      CLV_ISA_AVX2,
                      {.f32 = CLV_GEMM_F32_OWN,
                       .bf16 = CLV_GEMM_HALF_F32,
                       .skinny_panel_columns_f32 = NARROW,
                       .skinny_panel_columns_16bit = NARROW,
                       .dense_streams = 4,
                       .q8_streams = 1,
                       .q4_streams = 4,
                       .prepack_weights = true}},
    [CLV_CPU_AVX512] = {"avx512",
                        CLV_ISA_AVX512,
                        {.f32 = CLV_GEMM_F32_OWN,
                         .bf16 = CLV_GEMM_HALF_F32,
                         .skinny_panel_columns_f32 = ALL,
                         .skinny_panel_columns_16bit = ALL,
                         .dense_streams = 4,
                         .q8_streams = 4,
                         .q4_streams = 4,
                         .prepack_weights = true}},
    [CLV_CPU_AVX512_BF16] = {"avx512_bf16",
                             CLV_ISA_AVX512,
                             {.f32 = CLV_GEMM_F32_ONEDNN,
                              .bf16 = CLV_GEMM_HALF_VDP,
                              .attention_in_bf16 = true,
                              .skinny_panel_columns_f32 = ALL,
                              .skinny_panel_columns_16bit = NARROW,
                              .dense_streams = 1,
                              .q8_streams = 1,
                              .q4_streams = 1}},
    [CLV_CPU_AMX] = {"amx",
                     CLV_ISA_AMX,
                     {.f32 = CLV_GEMM_F32_ONEDNN,
                      .bf16 = CLV_GEMM_HALF_AMX,
                      .attention_in_bf16 = true,
                      .skinny_panel_columns_f32 = ALL,
                      .skinny_panel_columns_16bit = ALL,
                      .dense_streams = 4,
                      .q8_streams = 4,
                      .q4_streams = 4}},
};

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
    return kind != UNSET && table[kind].takes == isa ? &table[kind].is : &table[kind_of(isa)].is;
}

int clv_tuning_set_for_test(clv_cpu_kind kind)
{
    if ((kind == CLV_CPU_AVX512_BF16 && !clv_cpu_has_avx512_bf16()) || clv_cpu_set_isa_for_test(table[kind].takes) != 0)
        return -1;
    atomic_store_explicit(&set_for_test, (int)kind, memory_order_relaxed);
    return 0;
}

void clv_tuning_reset_for_test(void)
{
    atomic_store_explicit(&set_for_test, UNSET, memory_order_relaxed);
    clv_cpu_isa_reset_for_test();
}

const char *clv_cpu_kind_text(clv_cpu_kind kind)
{
    return table[kind].text;
}
