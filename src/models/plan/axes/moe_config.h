/* moe_config.h - reads config.json of a mixture of experts, as transformers writes it, and counts its parameters.
 *
 * mixtral, qwen2_moe, qwen3_moe, gpt_oss: grouped-query attention; deepseek_v3, kimi_k2: multi-head latent attention
 * (DeepSeek-AI 2024, arXiv:2412.19437), dense first layers, shared experts. All but gpt_oss and kimi_k2 run
 * (models/families).
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_MOE_CONFIG_H
#define CLEAVE_MODELS_PLAN_AXES_MOE_CONFIG_H

#include "cleave/model.h"

typedef struct clv_moe_config {
    const char *family; /* model_type; NULL: no mixture of experts */
    bool runs;
    int64_t hidden, layers, heads, kv_heads, vocab, max_positions;
    int64_t qk_dim, v_dim;             /* widths of a head of queries and keys, and of values */
    int64_t q_rank, kv_rank, rope_dim; /* of latent attention; q_rank 0: queries are not compressed; kv_rank 0: none */
    int64_t ffn;                       /* of dense layers */
    int64_t dense_layers;              /* the first ones */
    int64_t experts, top_k, expert_ffn;
    int64_t shared_ffn; /* of all shared experts together; 0: none */
    int64_t mtp_layers; /* that predict tokens further ahead, each with the head once more */
    int64_t window;     /* of every second layer; 0: none */
    bool tied, qk_norm, qkv_bias, output_bias, expert_bias, router_bias, shared_gate;
} clv_moe_config;

/* Reads the config.json, or the one of a folder; out->family is NULL if its model_type is another one.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, both naming the key; CLV_ENOTFOUND, CLV_EIO */
clv_status clv_moe_config_read(clv_moe_config *out, const char *path, clv_error *err);

/* Numbers of elements: of attention with the norms of a block, of an MLP, of an expert; of a layer without its experts
 * (router and shared experts included); of all; of what a token passes through. */
int64_t clv_moe_attention_parameters(const clv_moe_config *config);
int64_t clv_moe_dense_parameters(const clv_moe_config *config);  /* of a dense layer */
int64_t clv_moe_expert_parameters(const clv_moe_config *config); /* of one expert */
int64_t clv_moe_common_parameters(const clv_moe_config *config); /* of a layer of experts without these */
int64_t clv_moe_parameters(const clv_moe_config *config);
int64_t clv_moe_active_parameters(const clv_moe_config *config);

#endif
