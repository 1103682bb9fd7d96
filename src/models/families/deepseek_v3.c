/* deepseek_v3.c - DeepSeek-V3 family (DeepseekV3ForCausalLM): multi-head latent attention, dense first layers, experts
 * that a sigmoid router chooses within groups by a balancing bias, shared experts (DeepSeek-AI 2024, arXiv:2412.19437).
 * Layers that predict tokens further ahead (MTP) are not built, as in transformers; weights in fp8 are refused.
 */
#include "models/families/experts_common.h"

static clv_status read_latents(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const clv_config_size sizes[] = {{"kv_lora_rank", &c->kv_rank, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
                                     {"qk_nope_head_dim", &c->plain_dim, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
                                     {"qk_rope_head_dim", &c->rotary_dim, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
                                     {"v_head_dim", &c->value_dim, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL}};

    c->kv_rank = 512; /* transformers' defaults */
    c->q_rank = 1536;
    c->plain_dim = c->value_dim = 128;
    c->rotary_dim = 64;
    c->rope.interleaved = true;
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof *sizes, o, where, err));
    if (json_is_null(json_object_get(o, "q_lora_rank")))
        c->q_rank = 0;
    CLV_TRY(clv_json_get_int(&c->q_rank, o, "q_lora_rank", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH, where, err));
    CLV_TRY(clv_json_get_bool(&c->qkv_bias, o, "attention_bias", CLV_JSON_OPTIONAL, where, err));
    c->output_bias = c->qkv_bias;
    return clv_json_get_bool(&c->rope.interleaved, o, "rope_interleave", CLV_JSON_OPTIONAL, where, err);
}

static clv_status read_experts(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    static const char *const keys[2] = {"n_routed_experts", "num_local_experts"};
    int64_t shared = 1, dense = 3;

    c->experts = 256;
    c->top_k = 8;
    c->expert_ffn = 2048;
    c->groups = 8;
    c->top_groups = 4;
    c->weight_scale = 2.5;
    c->normalised_choice = c->sigmoid_router = true;
    CLV_TRY(clv_experts_read_config(c, o, keys, where, err));
    c->adds_router_loss = false; /* transformers' has none */
    const clv_config_size sizes[] = {{"moe_intermediate_size", &c->expert_ffn, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
                                     {"n_group", &c->groups, c->experts, CLV_JSON_OPTIONAL},
                                     {"topk_group", &c->top_groups, c->experts, CLV_JSON_OPTIONAL}};
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof *sizes, o, where, err));
    if (c->experts % c->groups != 0 || c->experts / c->groups < 2 || c->top_groups > c->groups ||
        c->top_k > c->experts / c->groups * c->top_groups)
        return clv_fail(
            err, CLV_EFORMAT,
            "%s: %lld experts in \"n_group\" %lld, \"topk_group\" %lld, \"num_experts_per_tok\" %lld; valid: "
            "equal groups of 2 and more, and as many of them as have the experts of a row",
            where, (long long)c->experts, (long long)c->groups, (long long)c->top_groups, (long long)c->top_k);
    CLV_TRY(clv_json_get_bool(&c->normalised_choice, o, "norm_topk_prob", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_real(&c->weight_scale, o, "routed_scaling_factor", CLV_JSON_OPTIONAL, 1e-6, 1e6, where, err));
    CLV_TRY(clv_json_get_int(&shared, o, "n_shared_experts", CLV_JSON_OPTIONAL, 1, CLV_MAX_EXPERTS, where, err));
    CLV_TRY(clv_json_get_int(&dense, o, "first_k_dense_replace", CLV_JSON_OPTIONAL, 0, CLV_MAX_LAYERS, where, err));
    c->shared_ffn = shared * c->expert_ffn;
    for (int64_t l = 0; l < dense && l < c->layers; l++)
        c->dense[l / 8] |= (uint8_t)(1 << l % 8);
    return CLV_OK;
}

static clv_status read_deepseek_v3(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    c->max_positions = 4096;
    c->norm_eps = 1e-6;
    CLV_TRY(read_latents(c, o, where, err));
    CLV_TRY(clv_llama_read_config(c, o, 0, where, err));
    c->head_dim = c->rotary_dim; /* as in transformers, whatever the file says */
    if (c->kv_heads != c->heads)
        return clv_config_fail_unsupported(where, "num_key_value_heads", "unlike num_attention_heads",
                                           "num_attention_heads", err);
    c->mtp_layers = 1;
    CLV_TRY(clv_json_get_int(&c->mtp_layers, o, "num_mtp_layers", CLV_JSON_OPTIONAL, 0, CLV_MAX_LAYERS, where, err));
    CLV_TRY(clv_json_get_int(&c->mtp_layers, o, "num_nextn_predict_layers", CLV_JSON_OPTIONAL, 0, CLV_MAX_LAYERS, where,
                             err));
    return read_experts(c, o, where, err);
}

static json_t *write_deepseek_v3(const clv_model_config *c)
{
    json_t *o = clv_experts_write_config(clv_llama_write_config(c), c, "n_routed_experts");
    int64_t dense = 0;

    if (o == NULL)
        return NULL;
    while (dense < c->layers && !clv_model_config_has_experts(c, dense))
        dense++;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"kv_lora_rank", c->kv_rank},
                 {"qk_nope_head_dim", c->plain_dim},
                 {"qk_rope_head_dim", c->rotary_dim},
                 {"v_head_dim", c->value_dim},
                 {"moe_intermediate_size", c->expert_ffn},
                 {"n_group", c->groups},
                 {"topk_group", c->top_groups},
                 {"n_shared_experts", c->shared_ffn / c->expert_ffn},
                 {"first_k_dense_replace", dense},
                 {"num_nextn_predict_layers", c->mtp_layers}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_object_set_new(o, sizes[i].key, json_integer(sizes[i].value));
    json_object_set_new(o, "q_lora_rank", c->q_rank ? json_integer(c->q_rank) : json_null());
    json_object_set_new(o, "attention_bias", json_boolean(c->qkv_bias));
    json_object_set_new(o, "rope_interleave", json_boolean(c->rope.interleaved));
    json_object_set_new(o, "norm_topk_prob", json_boolean(c->normalised_choice));
    json_object_set_new(o, "routed_scaling_factor", json_real(c->weight_scale));
    return o;
}

static bool has_query_latent(const clv_model_config *c)
{
    return c->q_rank > 0;
}

static bool lacks_query_latent(const clv_model_config *c)
{
    return c->q_rank == 0;
}

static bool has_query_latent_bias(const clv_model_config *c)
{
    return c->q_rank > 0 && c->qkv_bias;
}

// clang-format off
#define ATTENTION "model.layers.%.self_attn."
#define MLP       "model.layers.%.mlp."
static const clv_parameter_row parameters[] = {
    {"embed.weight", "model.embed_tokens.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"layers.%.attention.norm.weight", "model.layers.%.input_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.q_down.weight", ATTENTION "q_a_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "q",
     .when = has_query_latent},
    {"layers.%.attention.q_down.bias", ATTENTION "q_a_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "q",
     .when = has_query_latent_bias},
    {"layers.%.attention.q_norm.weight", ATTENTION "q_a_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "q",
     .when = has_query_latent},
    {"layers.%.attention.q.weight", ATTENTION "q_b_proj.weight", CLV_PARAMETER_LINEAR, "q", .out = "Hk",
     .when = has_query_latent},
    {"layers.%.attention.q.weight", ATTENTION "q_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "Hk",
     .when = lacks_query_latent},
    {"layers.%.attention.kv_down.weight", ATTENTION "kv_a_proj_with_mqa.weight", CLV_PARAMETER_LINEAR, "M",
     .out = "j"},
    {"layers.%.attention.kv_down.bias", ATTENTION "kv_a_proj_with_mqa.bias", CLV_PARAMETER_AS_IS, "", .out = "j",
     .when = clv_model_has_qkv_bias},
    {"layers.%.attention.kv_norm.weight", ATTENTION "kv_a_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "l"},
    {"layers.%.attention.kv.weight", ATTENTION "kv_b_proj.weight", CLV_PARAMETER_LINEAR, "l", .out = "Hw"},
    {"layers.%.attention.o.bias", ATTENTION "o_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_output_bias},
    {"layers.%.attention.o.weight", ATTENTION "o_proj.weight", CLV_PARAMETER_LINEAR, "Hv", .out = "M"},
    {"layers.%.mlp.norm.weight", "model.layers.%.post_attention_layernorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    CLV_LLAMA_GATE_UP_ROW(CLV_DENSE_LAYERS),
    CLV_LLAMA_DOWN_ROW(CLV_DENSE_LAYERS),
    {"layers.%.mlp.router.weight", MLP "gate.weight", CLV_PARAMETER_LINEAR, "M", .out = "E",
     .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.router.bias", MLP "gate.e_score_correction_bias", CLV_PARAMETER_AS_IS, "", .out = "E",
     .layers = CLV_EXPERT_LAYERS, .f32_buffer = true},
    {"layers.%.mlp.experts.gate_up.weight", MLP "experts.#.gate_proj.weight", CLV_PARAMETER_LINEAR, "M", .out = "X",
     .second_tensor = MLP "experts.#.up_proj.weight", .by_expert = true, .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.experts.down.weight", MLP "experts.#.down_proj.weight", CLV_PARAMETER_LINEAR, "X", .out = "M",
     .by_expert = true, .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.shared.gate_up.weight", MLP "shared_experts.gate_proj.weight", CLV_PARAMETER_LINEAR, "M",
     .out = "S", .second_tensor = MLP "shared_experts.up_proj.weight", .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.shared.down.weight", MLP "shared_experts.down_proj.weight", CLV_PARAMETER_LINEAR, "S", .out = "M",
     .layers = CLV_EXPERT_LAYERS},
    CLV_LLAMA_LAST_ROWS,
    {0},
};
// clang-format on

const clv_model_family clv_family_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .bare = "DeepseekV3Model",
    .base = "model.",
    .read = read_deepseek_v3,
    .write = write_deepseek_v3,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = parameters,
};
