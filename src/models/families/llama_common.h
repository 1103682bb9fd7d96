/* llama_common.h - shared by Llama, Mistral, Qwen2: config keys, decoder graph (RMSNorm, RoPE, GQA, SwiGLU),
 * parameters. They differ in biases, attention windows and defaults.
 */
#pragma once

#include "models/families/model_family.h"

/* The keys that all have. kv_heads: the default of num_key_value_heads, 0 for as many as query heads. */
clv_status clv_llama_read_config(clv_model_config *model, const json_t *object, int64_t kv_heads, const char *where,
                                 clv_error *err);
/* The same keys, and those of the biases. */
json_t *clv_llama_write_config(const clv_model_config *model);

/* "sliding_window": null is none, absent leaves model->window. */
clv_status clv_llama_read_window(clv_model_config *model, const json_t *object, const char *where, clv_error *err);
/* Which layers have the window: "layer_types" says it, or else those from `first` on have. */
clv_status clv_llama_read_layer_types(clv_model_config *model, int64_t first, const json_t *object, const char *where,
                                      clv_error *err);
/* Adds what both of these read; "layer_types" where layers differ. */
void clv_llama_write_windows(json_t *object, const clv_model_config *model);

clv_value clv_llama_hidden_states(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                                  const clv_model_inputs *in);
extern const clv_parameter_row clv_llama_parameters[];
