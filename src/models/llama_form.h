/* llama_form.h - what Llama, Mistral and Qwen2 share: RMSNorm, rotary embedding, grouped KV heads, gated silu. They differ in
 * biases, attention windows and defaults. */
#ifndef CLEAVE_MODELS_LLAMA_FORM_H
#define CLEAVE_MODELS_LLAMA_FORM_H

#include "models/family.h"

/* The keys that all have. kv_heads: the default of num_key_value_heads, 0 for as many as query heads. */
clv_status clv_llama_form_read(clv_model *model, const json_t *object, int64_t kv_heads, const char *where,
                               clv_error *err);
/* The same keys, and those of the biases. */
json_t *clv_llama_form_write(const clv_model *model);

/* "sliding_window" and which layers have it: those from model->first_windowed on. */
clv_status clv_llama_form_read_window(clv_model *model, const json_t *object, const char *where, clv_error *err);

clv_value clv_llama_form_hidden(clv_graph *graph, const clv_model *model, const clv_model_build *build,
                                const clv_model_inputs *in);
extern const clv_parameter_row clv_llama_form_parameters[];

#endif
