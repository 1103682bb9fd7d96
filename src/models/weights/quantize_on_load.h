/* quantize_on_load.h - presents a float checkpoint as a quantized one; blocks are computed when they are read (cleave
 * shard).
 */
#ifndef CLEAVE_MODELS_WEIGHTS_QUANTIZE_ON_LOAD_H
#define CLEAVE_MODELS_WEIGHTS_QUANTIZE_ON_LOAD_H

#include "models/weights/quantized_tensors.h"

typedef struct clv_quantize_on_load clv_quantize_on_load;

/* One file model.safetensors: every tensor of `floats` but those that blocks stand for, then the blocks, which are made
 * when they are read, as clv_quantize_parameter makes them. floats and model are borrowed.
 * @return CLV_EUNSUPPORTED for a tensor of a dtype that the library lacks; CLV_ENOMEM */
clv_status clv_quantize_on_load_open(clv_quantize_on_load **out, const clv_weights *floats,
                                     const clv_model_config *model, clv_quant how, clv_error *err);
/* Its own. */
const clv_weights *clv_quantize_on_load_weights(const clv_quantize_on_load *blocks);
/* NULL is a no-op. */
void clv_quantize_on_load_close(clv_quantize_on_load *blocks);

#endif
