/* llama_form.h - what Llama, Mistral and Qwen2 share: RMSNorm, rotary embedding, grouped KV heads, gated silu. They
 * differ in biases, attention windows and defaults. */
#ifndef CLEAVE_MODELS_LLAMA_FORM_H
#define CLEAVE_MODELS_LLAMA_FORM_H

#include "models/family.h"

/* The keys that all have. kv_heads: the default of num_key_value_heads, 0 for as many as query heads. */
clv_status clv_llama_form_read(clv_model_config *model, const json_t *object, int64_t kv_heads, const char *where,
                               clv_error *err);
/* The same keys, and those of the biases. */
json_t *clv_llama_form_write(const clv_model_config *model);

/* "sliding_window": null is none, absent leaves model->window. */
clv_status clv_llama_form_read_window(clv_model_config *model, const json_t *object, const char *where, clv_error *err);
/* Which layers have the window: "layer_types" says it, or else those from `first` on have. */
clv_status clv_llama_form_read_layers(clv_model_config *model, int64_t first, const json_t *object, const char *where,
                                      clv_error *err);
/* Adds what both of these read; "layer_types" where layers differ. */
void clv_llama_form_write_windows(json_t *object, const clv_model_config *model);

clv_value clv_llama_form_hidden(clv_graph *graph, const clv_model_config *model, const clv_model_build *build,
                                const clv_model_inputs *in);
extern const clv_parameter_row clv_llama_form_parameters[];

#endif
