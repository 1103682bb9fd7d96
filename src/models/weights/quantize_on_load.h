/* quantize_on_load.h - presents a float checkpoint as a quantized one; blocks are computed when they are read (cleave
 * shard).
 */
#pragma once

#include "io/checkpoint/weights.h"
#include "models/config/model_config.h"

typedef struct clv_quantize_on_load clv_quantize_on_load;

/* Presents one file model.safetensors: the tensors of `floats` that are not quantized, then the quantized ones, which
 * clv_quantize_parameter computes when they are read. floats and model are borrowed.
 * @return CLV_EUNSUPPORTED for a tensor of an unsupported dtype; CLV_ENOMEM */
clv_status clv_quantize_on_load_open(clv_quantize_on_load **out, const clv_weights *floats,
                                     const clv_model_config *model, clv_quant quant, clv_error *err);
/* Borrowed; lives with it. */
const clv_weights *clv_quantize_on_load_weights(const clv_quantize_on_load *blocks);
/* NULL is a no-op. */
void clv_quantize_on_load_close(clv_quantize_on_load *blocks);
