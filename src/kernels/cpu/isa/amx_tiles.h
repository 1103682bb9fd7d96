/* amx_tiles.h - bf16 block products by AMX tile registers (tdpbf16ps).
 *
 * A tile has 16 rows of 64 bytes: of A 16 x 32 bf16, of C 16 x 16 f32, of B 32 x 16 as words: a word holds elements
 * p (low half) and p + 1 (high half) of a column. A sum runs over p in order, pair by pair, whatever m and n are;
 * denormals count as zeros. The instructions are inline assembly, so that no compiler flags are needed and the compiler
 * knows what they read and write.
 */
#pragma once

#if defined(__AVX512F__)
#include <stdbool.h>
#include <stdint.h>

enum { AMX_BLOCK = 32 }; /* extents of a product are multiples of it: two by two tiles */

/* Configures the tile registers of this thread, until amx_end releases them. */
static inline void amx_begin(void)
{
    struct {
        uint8_t palette, start_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        tiles.row_bytes[t] = 64;
        tiles.rows[t] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(tiles));
}

static inline void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

#define AMX_LOAD(tile, at, step)                                                                                       \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((int64_t)(step)) : "memory")
#define AMX_STORE(tile, at, step)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((int64_t)(step)) : "memory")
#define AMX_ZERO(tile)   __asm__ volatile("tilezero %%tmm" #tile::)
/* c += a b */
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c::)

/* c [32, 32] (+)= A [32, k] B [k, 32] in steps of 32 of k; the operands as bf16_product has them (bf16_block_gemm.h).
 * */
static inline void amx_block(float *c, int64_t ldc, const uint16_t *a, int64_t lda, const uint32_t *b, int64_t ldb,
                             int64_t steps, int64_t parts, bool accumulate)
{
    if (accumulate) {
        AMX_LOAD(0, c, 4 * ldc);
        AMX_LOAD(1, c + 16, 4 * ldc);
        AMX_LOAD(2, c + 16 * ldc, 4 * ldc);
        AMX_LOAD(3, c + 16 * ldc + 16, 4 * ldc);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (int64_t step = 0; step < steps; step++) {
        const uint16_t *left = a + step / parts * AMX_BLOCK;
        const uint32_t *right = b + step * (AMX_BLOCK / 2) * ldb;
        AMX_LOAD(4, left, 2 * lda);
        AMX_LOAD(6, right, 4 * ldb);
        AMX_LOAD(7, right + 16, 4 * ldb);
        AMX_LOAD(5, left + 16 * lda, 2 * lda);
        AMX_DOT(0, 4, 6);
        AMX_DOT(1, 4, 7);
        AMX_DOT(2, 5, 6);
        AMX_DOT(3, 5, 7);
    }
    AMX_STORE(0, c, 4 * ldc);
    AMX_STORE(1, c + 16, 4 * ldc);
    AMX_STORE(2, c + 16 * ldc, 4 * ldc);
    AMX_STORE(3, c + 16 * ldc + 16, 4 * ldc);
}

#endif
