/* quantized_weights.h - quantized weights: reads stored blocks, or quantizes a checkpoint's floats. */
#pragma once

#include "models/model.h"
#include "tensor/quant_block.h"

/* Bytes of a block in files: its scale and integers. */
static inline int64_t clv_stored_block_bytes(clv_quant quant)
{
    return 2 + clv_quant_block_bytes(quant);
}

/* Converts blocks between files, which have them whole, and products, which have integers and scales apart. ints may be
 * NULL. */
void clv_quantized_blocks_pack(clv_quant quant, uint8_t *stored, const uint8_t *ints, const uint16_t *scales,
                               int64_t blocks);
void clv_quantized_blocks_unpack(clv_quant quant, uint8_t *ints, uint16_t *scales, const uint8_t *stored,
                                 int64_t blocks);
/* Reads the blocks of a box of scales [(parts,) out..., in.../32], and no other bytes. ints may be NULL. */
clv_status clv_read_quantized_blocks(const clv_safetensor *tensor, clv_quant quant, const clv_shard *box, uint8_t *ints,
                                     uint16_t *scales, clv_error *err);
/* Quantizes such a box of a parameter that the files store as floats. ints may be NULL. */
clv_status clv_quantize_parameter(clv_quant quant, const clv_weights *weights, const clv_model_config *model,
                                  const clv_parameter *parameter, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                                  clv_error *err);

/* Readers of the states "<name>.ints" and "<name>.scales". Reading integers also computes their scales, which the model
 * keeps until they are read: files are read once. Thread-safe. */
clv_status clv_read_quantized_ints_and_keep_scales(const clv_state_read_request *read, clv_error *err);
clv_status clv_read_quantized_scales(const clv_state_read_request *read, clv_error *err);
void clv_kept_scales_free(struct clv_kept_scales *list);
