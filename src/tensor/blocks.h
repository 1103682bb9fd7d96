/* blocks.h - weights in blocks: how many elements have a scale in common, and what their integers take; and in panels:
 * of how many columns. */
#ifndef CLEAVE_TENSOR_BLOCKS_H
#define CLEAVE_TENSOR_BLOCKS_H

#include <stdint.h>

#include "cleave/dtype.h"

enum {
    CLV_QUANT_BLOCK = 32,
    CLV_PANEL = 16 /* columns: whole vectors of every instruction set */
};

/* Bytes of a block's integers. */
static inline int64_t clv_quant_bytes(clv_quant how)
{
    return how == CLV_QUANT_Q4 ? CLV_QUANT_BLOCK / 2 : CLV_QUANT_BLOCK;
}

#endif
