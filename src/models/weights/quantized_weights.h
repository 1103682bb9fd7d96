/* quantized_weights.h - loads weights as q8_0/q4_0 blocks: reads stored blocks, or quantizes a checkpoint's floats. */
#ifndef CLEAVE_MODELS_WEIGHTS_QUANTIZED_WEIGHTS_H
#define CLEAVE_MODELS_WEIGHTS_QUANTIZED_WEIGHTS_H

#include "cleave/session.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantization_policy.h"

/* CLV_EUNSUPPORTED for families that a program stated, and where no weight would be quantised. */
clv_status clv_quant_check_model(const clv_model_config *model, clv_quant how, clv_error *err);

/* The blocks of a box of scales, [(parts,) out..., in.../32], made of a parameter's floats in files; ints may be NULL.
 */
clv_status clv_quantize_parameter(clv_quant how, const clv_weights *weights, const clv_model_config *model,
                                  const clv_parameter *parameter, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                                  clv_error *err);

/* Reads quantised state of a model whose weights are open, from blocks of the folder where it has them. A box's ints
 * are made with their scales, which are kept until they are asked for: elements are read once. Safe from several
 * threads. */
typedef struct clv_quant_reader clv_quant_reader;
clv_status clv_quant_reader_new(clv_quant_reader **out, clv_quant how, bool stored, clv_error *err);
void clv_quant_reader_free(clv_quant_reader *reader);
/* As clv_state_source; *known is 0 for what is no quantised state of the model. */
clv_status clv_quant_reader_read(clv_quant_reader *reader, const clv_model_weights *weights,
                                 const clv_model_config *model, const char *name, const clv_shard *box, void *out,
                                 int *known, clv_error *err);

#endif
