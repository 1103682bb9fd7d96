/* held_weights.h - which weights of a model are held in blocks of integers where it is opened so.
 *
 * All weights of linear layers are whose last dimension of `in` is a multiple of 32, the output's among them; of a
 * model with tied embeddings the output's are a second form of the embedding's table, which itself stays floats, as
 * norms, biases and positions do. */
#ifndef CLEAVE_MODELS_HELD_WEIGHTS_H
#define CLEAVE_MODELS_HELD_WEIGHTS_H

#include "models/parameters.h"
#include "nn/held.h"

/* Whether this parameter is held so, and nothing else is of its name. */
bool clv_model_quantises(const clv_model_config *model, const clv_parameter *parameter);
/* Whether the output's product takes a quantised form of the embedding's table. */
bool clv_model_quantises_table(const clv_model_config *model);
/* Weights of linear layers that stay floats: how many, and the first, into *first if there is one. */
int64_t clv_model_unquantised_count(const clv_model_config *model, clv_parameter *first);
/* Bytes of all weights, each once. */
int64_t clv_model_held_bytes(const clv_model_config *model, clv_dtype floats, clv_quant how);
/* What a graph of the model is told. */
clv_quant_in_graph clv_model_quant_in_graph(const clv_model_config *model, clv_quant how);

#endif
