/* quantization_policy.h - which weights are stored in q8_0/q4_0 blocks and which stay floats; bytes of either.
 *
 * All weights of linear layers are whose last dimension of `in` is a multiple of 32, the output's among them; of a
 * model with tied embeddings the output's are a second form of the embedding's table, which itself stays floats, as
 * norms, biases and positions do.
 */
#ifndef CLEAVE_MODELS_WEIGHTS_QUANTIZATION_POLICY_H
#define CLEAVE_MODELS_WEIGHTS_QUANTIZATION_POLICY_H

#include "models/weights/parameter_map.h"
#include "nn/stored_weight.h"

/* Whether this parameter is held so, and nothing else is of its name. */
bool clv_parameter_is_quantized(const clv_model_config *model, const clv_parameter *parameter);
/* Whether the output's product takes a quantised form of the embedding's table. */
bool clv_model_quantizes_tied_table(const clv_model_config *model);
/* Weights of linear layers that stay floats: how many, and the first, into *first if there is one. */
int64_t clv_model_find_unquantized(const clv_model_config *model, clv_parameter *first);
/* Bytes of all weights, each once. */
int64_t clv_model_storage_bytes(const clv_model_config *model, clv_dtype floats, clv_quant how);
/* What a graph of the model is told. */
clv_graph_quantization clv_model_graph_quant(const clv_model_config *model, clv_quant how);

#endif
