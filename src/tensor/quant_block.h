/* quant_block.h - quantization block and panel sizes: 32 elements per scale, 16 columns per prepacked panel. */
#pragma once

#include "cleave/dtype.h"

enum {
    CLV_QUANT_BLOCK = 32,
    CLV_PANEL_COLUMNS = 16 /* whole vectors of every instruction set */
};

/* Returns the bytes of the integers of one block. */
static inline int64_t clv_quant_block_bytes(clv_quant how)
{
    return how == CLV_QUANT_Q4 ? CLV_QUANT_BLOCK / 2 : CLV_QUANT_BLOCK;
}

/* The dimension of a weight [stacked..., in..., out...] that is the i-th of its quantized form, with out before in. */
static inline int clv_quant_stored_dim(int i, int stacked, int n_in, int rank)
{
    return i < stacked ? i : stacked + (n_in + i - stacked) % (rank - stacked);
}
