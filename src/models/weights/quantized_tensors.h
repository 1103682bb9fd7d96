/* quantized_tensors.h - on-disk format of quantized weights: tensors "<parameter>.q8_0" and ".q4_0" (GGUF block
 * layout). In the place of a quantised parameter's floats, under our name, stands a tensor
 *
 *   "<parameter>.q8_0" u8 [(parts,) out..., in.../32, 34]   a block: its scale, f16, and 32 integers, signed
 *   "<parameter>.q4_0" u8 [(parts,) out..., in.../32, 18]   its scale, and 16 bytes of two integers each, 8 added
 *
 * whose bytes are GGUF's block_q8_0 and block_q4_0, little-endian. A tied table has its floats, too, from which rows
 * are picked.
 */
#ifndef CLEAVE_MODELS_WEIGHTS_QUANTIZED_TENSORS_H
#define CLEAVE_MODELS_WEIGHTS_QUANTIZED_TENSORS_H

#include "models/weights/parameter_map.h"

/* Whether a model whose weights are quantised holds this parameter in blocks, and whether in the place of floats. */
bool clv_parameter_stored_as_blocks(const clv_model_config *model, const clv_parameter *parameter);
bool clv_parameter_stored_as_floats(const clv_model_config *model, const clv_parameter *parameter);

/* What the files hold the model's weights as; CLV_QUANT_NONE: floats. */
clv_quant clv_quantized_tensors_detect(const clv_weights *weights, const clv_model_config *model);
/* The tensor of a parameter that is held in blocks; `name` is where its name goes. */
clv_tensor_spec clv_quantized_tensor_spec(char name[CLV_TENSOR_NAME_SIZE], const clv_parameter *parameter,
                                          clv_quant how);
/* CLV_ENOTFOUND */
clv_status clv_quantized_tensor_find(const clv_safetensor **out, const clv_weights *weights,
                                     const clv_parameter *parameter, clv_quant how, clv_error *err);

/* Blocks between the two forms: integers and scales apart, as products take them, and as files have them. */
void clv_quantized_blocks_pack(clv_quant how, uint8_t *stored, const uint8_t *ints, const uint16_t *scales,
                               int64_t blocks);
void clv_quantized_blocks_unpack(clv_quant how, uint8_t *ints, uint16_t *scales, const uint8_t *stored, int64_t blocks);
/* Reads the blocks of a box of scales [(parts,) out..., in.../32], the box's bytes alone; ints may be NULL. */
clv_status clv_quantized_tensor_read(const clv_safetensor *tensor, clv_quant how, const clv_shard *box, uint8_t *ints,
                                     uint16_t *scales, clv_error *err);

#endif
