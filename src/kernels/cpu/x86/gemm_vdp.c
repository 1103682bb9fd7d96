/* gemm_vdp.c: a block of C by AVX512-BF16's vdpbf16ps, 8 rows at a time in registers. */
#include "kernels/cpu/x86/gemm_panels.h"

#include <string.h>

enum { ROWS = 8, PAIRS = 16 /* of k, a step */ };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Two elements of A, in all lanes. */
CLV_ALWAYS __m512bh pair(const char *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

static void block(float *c, bool fresh, int steps, clv_panel a, const char *b, clv_finished *out)
{
    clv_rows_out(out, SIDE);
    for (int r = 0; r < SIDE; r += ROWS, c += ROWS * SIDE) {
        const char *x = a.at + (r / TILE_SIDE) * a.half + (r % TILE_SIDE) * a.row, *y = b;
        __m512 left[ROWS], right[ROWS];
        UNROLL for (int i = 0; i < ROWS; i++)
        {
            left[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * SIDE);
            right[i] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * SIDE + 16);
        }
        for (int s = 0; s < steps; s++, x += a.step, y += STEP_BYTES)
            for (int p = 0; p < PAIRS; p++) {
                __m512bh b0 = (__m512bh)_mm512_loadu_si512(y + p * 64);
                __m512bh b1 = (__m512bh)_mm512_loadu_si512(y + TILE_BYTES + p * 64);
                UNROLL for (int i = 0; i < ROWS; i++)
                {
                    __m512bh ai = pair(x + i * a.row + p * 4);
                    left[i] = _mm512_dpbf16_ps(left[i], ai, b0);
                    right[i] = _mm512_dpbf16_ps(right[i], ai, b1);
                }
            }
        UNROLL for (int i = 0; i < ROWS; i++)
        {
            _mm512_storeu_ps(c + i * SIDE, left[i]);
            _mm512_storeu_ps(c + i * SIDE + 16, right[i]);
        }
    }
}

void clv_gemm_vdp(const clv_gemm_args *args)
{
    clv_gemm_panels(args, block, NULL, NULL);
}
