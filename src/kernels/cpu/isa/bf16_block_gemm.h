/* bf16_block_gemm.h - small bf16 block products by AMX or AVX512-BF16, for attention.
 *
 * A product has extents that are multiples of BF16_BLOCK; its right operand is made of words, pairs of elements p (low
 * half) and p + 1 (high half) of a column. A sum runs over p in order, pair by pair, whatever m and n are; denormals
 * count as zeros. The instructions are inline assembly, so that no compiler flags are needed.
 */
#pragma once

#if defined(__AVX512F__)
#include <string.h>

#include "kernels/cpu/isa/amx_tiles.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    BF16_BLOCK = AMX_BLOCK,
    VDP_ROWS = 8, /* of C in registers, by two vectors */
    VDP_VECTORS = BF16_BLOCK / VF_LANES
};

/* Two elements of A in all lanes, and sum + their products with a vector of words. */
CLV_INLINE __m512i vdp_pair(const uint16_t *a)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return _mm512_set1_epi32(pair);
}

CLV_INLINE vf vdp(vf sum, __m512i pair, __m512i words)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(pair), "v"(words));
    return sum;
}

/* c [VDP_ROWS, BF16_BLOCK] (+)= A B in steps of BF16_BLOCK of k; the operands as bf16_product has them. */
static inline void vdp_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, const uint32_t *b, int64_t ldb,
                             int64_t steps, int64_t parts, bool accumulate)
{
    vf sum[VDP_ROWS][VDP_VECTORS];
    CLV_UNROLL for (int i = 0; i < VDP_ROWS; i++) CLV_UNROLL for (int v = 0; v < VDP_VECTORS; v++) sum[i][v] =
        accumulate ? vf_load(c + i * ldc + v * VF_LANES) : vf_set1(0.0f);
    for (int64_t step = 0; step < steps; step++) {
        const uint16_t *left = a + step / parts * BF16_BLOCK;
        for (int p = 0; p < BF16_BLOCK / 2; p++, left += 2, b += ldb) {
            __m512i words[VDP_VECTORS];
            CLV_UNROLL for (int v = 0; v < VDP_VECTORS; v++) words[v] = _mm512_loadu_si512(b + v * VF_LANES);
            CLV_UNROLL for (int i = 0; i < VDP_ROWS; i++)
            {
                const __m512i pair = vdp_pair(left + i * lda);
                CLV_UNROLL for (int v = 0; v < VDP_VECTORS; v++) sum[i][v] = vdp(sum[i][v], pair, words[v]);
            }
        }
    }
    CLV_UNROLL for (int i = 0; i < VDP_ROWS; i++) CLV_UNROLL for (int v = 0; v < VDP_VECTORS; v++)
        vf_store(c + i * ldc + v * VF_LANES, sum[i][v]);
}

/* c [m, n] (+)= A [m, k] B [k, n], extents multiples of BF16_BLOCK: A(i, p) = a[i*lda + p]; b [k/2, n] are words, row
 * p/2 holding rows p and p + 1 of B. B may be the sum of two parts: then each 32 rows of the one are followed by those
 * of the other, and k counts both. Between bf16_begin and bf16_end. */
static inline void bf16_product(float *c, int64_t ldc, const uint16_t *a, int64_t lda, const uint32_t *b, int64_t ldb,
                                int64_t m, int64_t n, int64_t k, int64_t parts, bool accumulate)
{
    const bool tiles = clv_cpu_isa() == CLV_ISA_AMX;
    const int rows = tiles ? BF16_BLOCK : VDP_ROWS;
    for (int64_t i = 0; i < m; i += rows)
        for (int64_t j = 0; j < n; j += BF16_BLOCK)
            (tiles ? amx_block : vdp_block)(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, k / BF16_BLOCK, parts,
                                            accumulate);
}

static inline void bf16_begin(void)
{
    if (clv_cpu_isa() == CLV_ISA_AMX)
        amx_begin();
}

static inline void bf16_end(void)
{
    if (clv_cpu_isa() == CLV_ISA_AMX)
        amx_end();
}

#endif
