/* gemm_avx512_bf16.c - bf16 GEMM micro-kernel by AVX512-BF16 (vdpbf16ps). */
#include "kernels/cpu/x86/gemm_bf16_panels.h"

#include <assert.h>
#include <string.h>

enum { ROWS = 8, PAIRS = 16 /* of k, a step */ };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Two elements of A, in all lanes. */
CLV_ALWAYS_INLINE __m512bh pair(const char *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* c [ROWS, SIDE] = (fresh ? 0 : c) + a b; whole sums go to rows from r on. a and its strides as in clv_gemm_a_panel. */
CLV_ALWAYS_INLINE void block_rows(float *c, bool fresh, int steps, const char *a, int64_t step, int64_t row,
                                  int64_t pairs, const char *b, const clv_gemm_tile_output *whole, int r)
{
    __m512 left[ROWS], right[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        left[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * SIDE);
        right[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * SIDE + 16);
    }
    for (int s = 0; s < steps; s++, a += step, b += STEP_BYTES)
        for (int p = 0; p < PAIRS; p++) {
            __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + p * 64);
            __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + TILE_BYTES + p * 64);
            UNROLL for (int i = 0; i < ROWS; i++)
            {
                __m512bh ai = pair(a + i * row + p * pairs);
                left[i] = _mm512_dpbf16_ps(left[i], ai, b0);
                right[i] = _mm512_dpbf16_ps(right[i], ai, b1);
            }
        }
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        if (!whole) {
            _mm512_storeu_ps(c + i * SIDE, left[i]);
            _mm512_storeu_ps(c + i * SIDE + 16, right[i]);
        } else if (r + i < whole->rows) {
            clv_row_out(whole, r + i, left[i], right[i]);
        }
    }
}

/* Whole sums are written from registers; nothing is left pending. */
static void block(float *c, bool fresh, int steps, clv_gemm_a_panel a, const char *b, clv_gemm_tile_output *pending,
                  const clv_gemm_tile_output *whole)
{
    for (int r = 0; r < a.rows; r += ROWS, c += ROWS * SIDE) {
        const char *at = a.at + (r / TILE_SIDE) * a.half + (r % TILE_SIDE) * a.row;
        if (a.pair == 4) {
            block_rows(c, fresh, steps, at, a.step, a.row, 4, b, whole, r);
            continue;
        }
        assert(a.pair == 64 && a.row == 4 && a.step == STEP_BYTES); /* constants, for addresses without registers */
        block_rows(c, fresh, steps, at, STEP_BYTES, 4, 64, b, whole, r);
    }
}

void clv_gemm_avx512_bf16(const clv_gemm_args *args)
{
    static const clv_gemm_panel_kernel kernel = {
        .block = block,
        .pass = MOST_PASS, /* a panel of B is read out of L2 as fast as it is multiplied */
        .b_bytes = 1 << 19,
        .whole_transposed = 2048,
        .past = 4 << 20,
        .pairs_of_a = true,
    };
    clv_gemm_bf16_panels(args, &kernel);
}
