/* experts_common.h - shared by Mixtral, Qwen2-MoE and Qwen3-MoE: config keys of the experts. Their graph is Llama's,
 * with a mixture of experts in the place of the MLP.
 */
#pragma once

#include "models/families/llama_common.h"

/* "num_experts_per_tok", the number of experts under `keys` (a later key counts, the first is written), and what
 * transformers adds to the loss. The defaults are those in *model. */
clv_status clv_experts_read_config(clv_model_config *model, const json_t *object, const char *const keys[2],
                                   const char *where, clv_error *err);
/* Adds the same keys to what clv_llama_write_config returned; NULL when out of memory. */
json_t *clv_experts_write_config(json_t *object, const clv_model_config *model, const char *key);

/* Of Qwen2-MoE and Qwen3-MoE. */
extern const clv_parameter_row clv_qwen_experts_parameters[];
clv_status clv_qwen_experts_read_config(clv_model_config *model, const json_t *object, const char *where,
                                        clv_error *err);
/* Sets the bits of layers without experts. */
clv_status clv_qwen_read_dense_layers(uint8_t *dense, int64_t layers, const json_t *object, const char *where,
                                      clv_error *err);
json_t *clv_qwen_experts_write_config(const clv_model_config *model);
