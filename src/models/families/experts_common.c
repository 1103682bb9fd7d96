/* experts_common.c - shared by Mixtral, Qwen2-MoE and Qwen3-MoE: config keys of the experts; rows of Qwen. */
#include "models/families/experts_common.h"

#include "nn/router_losses.h"

clv_status clv_experts_read_config(clv_model_config *c, const json_t *o, const char *const keys[2], const char *where,
                                   clv_error *err)
{
    for (int i = 0; i < 2 && keys[i] != NULL; i++)
        CLV_TRY(clv_json_get_int(&c->experts, o, keys[i], CLV_JSON_OPTIONAL, 1, CLV_MAX_EXPERTS, where, err));
    CLV_TRY(clv_json_get_int(&c->top_k, o, "num_experts_per_tok", CLV_JSON_OPTIONAL, 1, CLV_MAX_EXPERTS, where, err));
    if (c->top_k > c->experts)
        return clv_fail(err, CLV_EFORMAT, "%s: \"num_experts_per_tok\" is %lld; valid: 1 to \"%s\", %lld", where,
                        (long long)c->top_k, keys[0], (long long)c->experts);
    CLV_TRY(clv_json_get_bool(&c->adds_router_loss, o, "output_router_logits", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(
        clv_json_get_real(&c->router_loss_factor, o, "router_aux_loss_coef", CLV_JSON_OPTIONAL, 0, 1e3, where, err));
    return clv_json_get_real(&c->capacity_factor, o, "moe_expert_capacity_factor", CLV_JSON_OPTIONAL, 0,
                             CLV_MAX_CAPACITY_FACTOR, where, err);
}

json_t *clv_experts_write_config(json_t *o, const clv_model_config *c, const char *key)
{
    if (o == NULL)
        return NULL;
    json_object_set_new(o, key, json_integer(c->experts));
    json_object_set_new(o, "num_experts_per_tok", json_integer(c->top_k));
    json_object_set_new(o, "output_router_logits", json_boolean(c->adds_router_loss));
    json_object_set_new(o, "router_aux_loss_coef", json_real(c->router_loss_factor));
    if (c->capacity_factor > 0)
        json_object_set_new(o, "moe_expert_capacity_factor", json_real(c->capacity_factor));
    return o;
}

/* ---- Qwen ---- */

clv_status clv_qwen_experts_read_config(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    static const char *const keys[2] = {"num_experts", "num_local_experts"};

    c->max_positions = 32768;
    c->router_loss_factor = 0.001;
    CLV_TRY(clv_experts_read_config(c, o, keys, where, err));
    CLV_TRY(
        clv_json_get_int(&c->expert_ffn, o, "moe_intermediate_size", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH, where, err));
    return clv_json_get_bool(&c->normalised_choice, o, "norm_topk_prob", CLV_JSON_OPTIONAL, where, err);
}

/* Layers named in "mlp_only_layers", and those but every "decoder_sparse_step"-th, have an MLP. */
clv_status clv_qwen_read_dense_layers(uint8_t *dense, int64_t layers, const json_t *o, const char *where,
                                      clv_error *err)
{
    const json_t *only = json_object_get(o, "mlp_only_layers"), *layer;
    int64_t step = 1;
    size_t i;

    CLV_TRY(clv_json_get_int(&step, o, "decoder_sparse_step", CLV_JSON_OPTIONAL, 1, CLV_MAX_LAYERS, where, err));
    if (only != NULL && !json_is_null(only) && !json_is_array(only))
        return clv_fail(err, CLV_EFORMAT, "%s: \"mlp_only_layers\" must be a list of layers", where);
    for (int64_t l = 0; l < layers; l++)
        dense[l / 8] |= (uint8_t)(((l + 1) % step != 0) << l % 8);
    json_array_foreach(only, i, layer)
    {
        const int64_t l = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (l < 0)
            return clv_fail(err, CLV_EFORMAT, "%s: \"mlp_only_layers\" must name layers, from 0 on", where);
        if (l < layers) /* transformers asks of each layer whether it is listed */
            dense[l / 8] |= (uint8_t)(1 << l % 8);
    }
    return CLV_OK;
}

static json_t *dense_layers_to_json(const clv_model_config *c)
{
    json_t *list = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        if (!clv_model_config_has_experts(c, l))
            json_array_append_new(list, json_integer(l));
    return list;
}

json_t *clv_qwen_experts_write_config(const clv_model_config *c)
{
    json_t *o = clv_experts_write_config(clv_llama_write_config(c), c, "num_experts");
    if (o) {
        json_object_set_new(o, "moe_intermediate_size", json_integer(c->expert_ffn));
        json_object_set_new(o, "norm_topk_prob", json_boolean(c->normalised_choice));
        json_object_set_new(o, "decoder_sparse_step", json_integer(1));
        json_object_set_new(o, "mlp_only_layers", dense_layers_to_json(c));
        json_object_set_new(o, "use_sliding_window", json_false());
    }
    return o;
}

const clv_parameter_row clv_qwen_experts_parameters[] = {
    CLV_LLAMA_ATTENTION_ROWS,
    {"layers.%.attention.q_norm.weight", "model.layers.%.self_attn.q_norm.weight", CLV_PARAMETER_AS_IS, "", .out = "D",
     .when = clv_model_has_qk_norm},
    {"layers.%.attention.k_norm.weight", "model.layers.%.self_attn.k_norm.weight", CLV_PARAMETER_AS_IS, "", .out = "D",
     .when = clv_model_has_qk_norm},
    CLV_LLAMA_GATE_UP_ROW(CLV_DENSE_LAYERS),
    CLV_LLAMA_DOWN_ROW(CLV_DENSE_LAYERS),
    {"layers.%.mlp.router.weight", "model.layers.%.mlp.gate.weight", CLV_PARAMETER_LINEAR, "M", .out = "E",
     .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.experts.gate_up.weight", "model.layers.%.mlp.experts.#.gate_proj.weight", CLV_PARAMETER_LINEAR, "M",
     .out = "X", .second_tensor = "model.layers.%.mlp.experts.#.up_proj.weight", .by_expert = true,
     .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.experts.down.weight", "model.layers.%.mlp.experts.#.down_proj.weight", CLV_PARAMETER_LINEAR, "X",
     .out = "M", .by_expert = true, .layers = CLV_EXPERT_LAYERS},
    {"layers.%.mlp.shared.gate_up.weight", "model.layers.%.mlp.shared_expert.gate_proj.weight", CLV_PARAMETER_LINEAR,
     "M", .out = "S", .second_tensor = "model.layers.%.mlp.shared_expert.up_proj.weight", .layers = CLV_EXPERT_LAYERS,
     .when = clv_model_has_shared_expert},
    {"layers.%.mlp.shared.down.weight", "model.layers.%.mlp.shared_expert.down_proj.weight", CLV_PARAMETER_LINEAR, "S",
     .out = "M", .layers = CLV_EXPERT_LAYERS, .when = clv_model_has_shared_expert},
    {"layers.%.mlp.shared_gate.weight", "model.layers.%.mlp.shared_expert_gate.weight", CLV_PARAMETER_LINEAR, "M",
     .out = "1", .layers = CLV_EXPERT_LAYERS, .when = clv_model_has_shared_expert},
    CLV_LLAMA_LAST_ROWS,
    {0},
};
