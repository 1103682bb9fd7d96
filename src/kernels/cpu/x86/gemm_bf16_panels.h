/* gemm_bf16_panels.h - bf16 GEMM by panels: what the AMX and AVX512-BF16 micro-kernels share.
 *
 * Operands are packed in tiles of 1 KiB, 16 rows of 64 bytes: for A 16 rows of 32 k, for B 16 pairs of k of 16 columns
 * (B[2p][j] next to B[2p+1][j]). A panel is 32 rows or columns wide, two tiles for each step of 32 k. Panels are padded
 * with zeros.
 */
#pragma once

#include <immintrin.h>

#include "kernels/cpu/gemm/gemm_kernels.h"

enum { SIDE = 32, TILE_SIDE = 16, TILE_BYTES = 1024, STEP_BYTES = 2 * TILE_BYTES, BLOCK_FLOATS = SIDE * SIDE };

#define CLV_ALWAYS_INLINE static inline __attribute__((always_inline, unused))

/* Where a finished block of C is stored; rows [row, rows) are not written yet. */
typedef struct clv_gemm_tile_output {
    const float *from; /* [SIDE, SIDE] */
    char *to;
    int64_t ldc; /* bytes between rows of `to` */
    int row, rows, cols;
    bool f32, accumulate;
    bool past; /* write past the caches: whole rows, which begin on cache lines */
} clv_gemm_tile_output;

/* Location of a panel of A, in place or packed. */
typedef struct clv_gemm_a_panel {
    const char *at;
    int64_t step, row, half; /* bytes to the next step, to the next row, and to row 16 */
    int64_t pair;            /* to the next pair of k: 4, or 64 where A is packed as B is */
    int rows;                /* valid rows, of SIDE */
} clv_gemm_a_panel;

/* c [SIDE, SIDE] = (fresh ? 0 : c) + a b over `steps` of k. whole: where to store the sums if
 * they are complete, else NULL; its `from` is c. A kernel may store them at once, or leave them in *pending: the next
 * call stores what is pending while it multiplies. */
typedef void clv_gemm_block(float *c, bool fresh, int steps, clv_gemm_a_panel a, const char *b,
                            clv_gemm_tile_output *pending, const clv_gemm_tile_output *whole);

enum { MOST_PASS = 1024 };

typedef struct clv_gemm_panel_kernel {
    clv_gemm_block *block;
    void (*begin)(void), (*end)(void); /* called around a task, on its thread; or NULL */
    int64_t pass;                      /* most k of a call, MOST_PASS at most */
    int64_t b_bytes;                   /* bytes of B that are packed at a time: they fit in L2 */
    int64_t whole_transposed;          /* most k that is not split if A is transposed, and so packed */
    int64_t past;                      /* C of at least so many bytes is written past the caches; 0: never */
    bool pairs_of_a;                   /* a transposed A is packed like B, by pairs; else as tiles of A */
} clv_gemm_panel_kernel;

void clv_gemm_bf16_panels(const clv_gemm_args *args, const clv_gemm_panel_kernel *kernel);

CLV_ALWAYS_INLINE __mmask16 clv_mask16(int n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

CLV_ALWAYS_INLINE __mmask32 clv_mask32(int n)
{
    return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

CLV_ALWAYS_INLINE __m512 clv_widen_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Row r, which is x and y. */
CLV_ALWAYS_INLINE void clv_row_out(const clv_gemm_tile_output *d, int r, __m512 x, __m512 y)
{
    char *to = d->to + r * d->ldc;

    if (d->past && d->f32) {
        _mm512_stream_ps((float *)(void *)to, x);
        _mm512_stream_ps((float *)(void *)(to + 64), y);
        return;
    }
    if (d->past) {
        _mm512_stream_si512((void *)to, (__m512i)_mm512_cvtne2ps_pbh(y, x));
        return;
    }
    if (d->f32) {
        __mmask16 in_x = clv_mask16(d->cols), in_y = clv_mask16(d->cols - 16);
        if (d->accumulate) {
            x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(in_x, to));
            y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(in_y, to + 64));
        }
        _mm512_mask_storeu_ps(to, in_x, x);
        _mm512_mask_storeu_ps(to + 64, in_y, y);
        return;
    }
    __mmask32 in = clv_mask32(d->cols);
    if (d->accumulate) {
        __m512i held = _mm512_maskz_loadu_epi16(in, to);
        x = _mm512_add_ps(x, clv_widen_bf16(_mm512_castsi512_si256(held)));
        y = _mm512_add_ps(y, clv_widen_bf16(_mm512_extracti64x4_epi64(held, 1)));
    }
    _mm512_mask_storeu_epi16(to, in, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* The next n rows, or as many as are left. */
CLV_ALWAYS_INLINE void clv_rows_out(clv_gemm_tile_output *d, int n)
{
    int end = d->rows - d->row < n ? d->rows : d->row + n;
    for (int r = d->row; r < end; r++)
        clv_row_out(d, r, _mm512_loadu_ps(d->from + r * SIDE), _mm512_loadu_ps(d->from + r * SIDE + 16));
    d->row = end;
}

/* Rows a step, for all that are left to be written in that many steps. */
CLV_ALWAYS_INLINE int clv_rows_a_step(const clv_gemm_tile_output *d, int steps)
{
    return (d->rows - d->row + steps - 1) / steps;
}
