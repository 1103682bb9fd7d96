/* quantised.h - the weights of a model that are held in blocks of integers (held_weights.h): reading them so. */
#ifndef CLEAVE_MODELS_QUANTISED_H
#define CLEAVE_MODELS_QUANTISED_H

#include "cleave/session.h"
#include "models/model_weights.h"
#include "models/held_weights.h"

/* CLV_EUNSUPPORTED for families that a program stated, and where no weight would be quantised. */
clv_status clv_model_quant_check(const clv_model_config *model, clv_quant how, clv_error *err);

/* The blocks of a box of scales, [(parts,) out..., in.../32], made of a parameter's floats in files; ints may be NULL.
 */
clv_status clv_quant_of_floats(clv_quant how, const clv_weights *weights, const clv_model_config *model,
                               const clv_parameter *parameter, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                               clv_error *err);

/* Reads quantised state of a model whose weights are open, from blocks of the folder where it has them. A box's ints
 * are made with their scales, which are kept until they are asked for: elements are read once. Safe from several
 * threads. */
typedef struct clv_quant_reader clv_quant_reader;
clv_status clv_quant_reader_new(clv_quant_reader **out, clv_quant how, bool stored, clv_error *err);
void clv_quant_reader_free(clv_quant_reader *reader);
/* As clv_state_source; *known is 0 for what is no quantised state of the model. */
clv_status clv_quant_read(clv_quant_reader *reader, const clv_model_weights *weights, const clv_model_config *model,
                          const char *name, const clv_shard *box, void *out, int *known, clv_error *err);

#endif
