/* qwen2_moe.c - Qwen2-MoE family (Qwen2MoeForCausalLM): experts, in all layers or among dense ones, and one that every
 * row has, scaled by a sigmoid (Yang et al. 2024, arXiv:2407.10671). Refused in config.json: sliding windows.
 */
#include "models/families/experts_common.h"

static clv_status read_qwen2_moe(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    c->experts = 60; /* transformers' defaults */
    c->top_k = 4;
    c->expert_ffn = 1408;
    c->shared_ffn = 5632;
    CLV_TRY(clv_qwen_experts_read_config(c, o, where, err));
    CLV_TRY(clv_llama_read_config(c, o, 16, where, err));
    CLV_TRY(clv_qwen_read_dense_layers(c->dense, c->layers, o, where, err));
    CLV_TRY(clv_json_get_int(&c->shared_ffn, o, "shared_expert_intermediate_size", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH,
                             where, err));
    c->qkv_bias = true;
    CLV_TRY(clv_json_get_bool(&c->qkv_bias, o, "qkv_bias", CLV_JSON_OPTIONAL, where, err));
    return clv_llama_read_layer_types(c, 0, o, where, err);
}

static json_t *write_qwen2_moe(const clv_model_config *c)
{
    json_t *o = clv_qwen_experts_write_config(c);
    if (o) {
        json_object_set_new(o, "shared_expert_intermediate_size", json_integer(c->shared_ffn));
        json_object_set_new(o, "qkv_bias", json_boolean(c->qkv_bias));
    }
    return o;
}

const clv_model_family clv_family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .bare = "Qwen2MoeModel",
    .base = "model.",
    .read = read_qwen2_moe,
    .write = write_qwen2_moe,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = clv_qwen_experts_parameters,
};
