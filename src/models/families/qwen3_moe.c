/* qwen3_moe.c - Qwen3-MoE family (Qwen3MoeForCausalLM): experts, in all layers or among dense ones, RMSNorm of queries
 * and keys (Yang et al. 2025, arXiv:2505.09388). Refused in config.json: sliding windows.
 */
#include "models/families/experts_common.h"

static clv_status read_qwen3_moe(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    c->experts = 128; /* transformers' defaults */
    c->top_k = 8;
    c->expert_ffn = 768;
    CLV_TRY(clv_qwen_experts_read_config(c, o, where, err));
    CLV_TRY(clv_llama_read_config(c, o, 4, where, err));
    CLV_TRY(clv_qwen_read_dense_layers(c->dense, c->layers, o, where, err));
    c->qk_norm = true;
    CLV_TRY(clv_json_get_bool(&c->qkv_bias, o, "attention_bias", CLV_JSON_OPTIONAL, where, err));
    c->output_bias = c->qkv_bias;
    return CLV_OK;
}

static json_t *write_qwen3_moe(const clv_model_config *c)
{
    json_t *o = clv_qwen_experts_write_config(c);
    if (o)
        json_object_set_new(o, "attention_bias", json_boolean(c->qkv_bias));
    return o;
}

const clv_model_family clv_family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .bare = "Qwen3MoeModel",
    .base = "model.",
    .read = read_qwen3_moe,
    .write = write_qwen3_moe,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = clv_qwen_experts_parameters,
};
