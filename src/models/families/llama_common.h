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

/* Rows of parameter tables: before those of the MLP, of the MLP in layers of a kind, and after them. */
// clang-format off
#define CLV_LLAMA_ATTENTION_ROWS                                                                                       \
    {"embed.weight", "model.embed_tokens.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},                               \
    {"layers.%.attention.norm.weight", "model.layers.%.input_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},  \
    {"layers.%.attention.q.weight", "model.layers.%.self_attn.q_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "HD"}, \
    {"layers.%.attention.kv.weight", "model.layers.%.self_attn.k_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "KD", \
     .second_tensor = "model.layers.%.self_attn.v_proj.weight"},                                                       \
    {"layers.%.attention.q.bias", "model.layers.%.self_attn.q_proj.bias", CLV_PARAMETER_LINEAR, "", .out = "HD",       \
     .when = clv_model_has_qkv_bias},                                                                                  \
    {"layers.%.attention.kv.bias", "model.layers.%.self_attn.k_proj.bias", CLV_PARAMETER_LINEAR, "", .out = "KD",      \
     .when = clv_model_has_qkv_bias, .second_tensor = "model.layers.%.self_attn.v_proj.bias"},                         \
    {"layers.%.attention.o.bias", "model.layers.%.self_attn.o_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "M",         \
     .when = clv_model_has_output_bias},                                                                               \
    {"layers.%.attention.o.weight", "model.layers.%.self_attn.o_proj.weight", CLV_PARAMETER_LINEAR, "HD", .out = "M"}, \
    {"layers.%.mlp.norm.weight", "model.layers.%.post_attention_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"}
#define CLV_LLAMA_GATE_UP_ROW(of_layers)                                                                               \
    {"layers.%.mlp.gate_up.weight", "model.layers.%.mlp.gate_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "F",      \
     .second_tensor = "model.layers.%.mlp.up_proj.weight", .layers = of_layers}
#define CLV_LLAMA_DOWN_ROW(of_layers)                                                                                  \
    {"layers.%.mlp.down.weight", "model.layers.%.mlp.down_proj.weight", CLV_PARAMETER_LINEAR, "F", .out = "M",         \
     .layers = of_layers}
#define CLV_LLAMA_LAST_ROWS                                                                                            \
    {"final_norm.weight", "model.norm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},                                   \
    {"lm_head.weight", "lm_head.weight", CLV_PARAMETER_LINEAR, "M", .out = "V", .when = clv_config_has_own_lm_head}
// clang-format on
