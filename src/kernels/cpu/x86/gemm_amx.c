/* gemm_amx.c - bf16 GEMM micro-kernel by AMX tiles: 32 x 32 of C in four tile registers. Two tiles of A and two of B
 * a step make four multiplications.
 */
#include "kernels/cpu/isa/amx_tiles.h"
#include "kernels/cpu/x86/gemm_bf16_panels.h"

/* B is read past the caches' order (TILELOADDT1): A's panel, which the next block reads again, stays in L1. */
static void block(float *c, bool fresh, int steps, clv_gemm_a_panel a, const char *b, clv_gemm_tile_output *pending,
                  const clv_gemm_tile_output *whole)
{
    const int row = SIDE * (int)sizeof *c, rows = clv_rows_a_step(pending, steps);

    __asm__ volatile("" ::: "memory"); /* gcc 12 does not know that tiles are loaded from memory */
    if (fresh) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + TILE_SIDE, row);
        _tile_loadd(2, c + TILE_SIDE * SIDE, row);
        _tile_loadd(3, c + TILE_SIDE * SIDE + TILE_SIDE, row);
    }
    for (int s = 0; s < steps; s++, a.at += a.step, b += STEP_BYTES) {
        _tile_loadd(4, a.at, a.row);
        _tile_stream_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stream_loadd(7, b + TILE_BYTES, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a.at + a.half, a.row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        clv_rows_out(pending, rows);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + TILE_SIDE, row);
    _tile_stored(2, c + TILE_SIDE * SIDE, row);
    _tile_stored(3, c + TILE_SIDE * SIDE + TILE_SIDE, row);
    if (whole)
        *pending = *whole;
}

void clv_gemm_amx(const clv_gemm_args *args)
{
    static const clv_gemm_panel_kernel kernel = {
        .block = block,
        .begin = amx_begin,
        .end = amx_end,
        .pass = 512, /* a panel of A and one of B lie in L1 together */
        .b_bytes = 1 << 20,
        .whole_transposed = 512,
    };
    clv_gemm_bf16_panels(args, &kernel);
}
