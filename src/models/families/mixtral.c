/* mixtral.c - Mixtral family (MixtralForCausalLM): Mistral's graph with a mixture of experts in each layer (Jiang et
 * al. 2024, arXiv:2401.04088). Weights of the chosen experts add up to 1. router_jitter_noise is refused: it changes
 * training.
 */
#include "models/families/experts_common.h"

static clv_status read_mixtral(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    static const char *const keys[2] = {"num_local_experts", "num_experts"};
    double noise = 0;

    c->max_positions = 4096 * 32; /* transformers' defaults */
    c->norm_eps = 1e-5;
    c->rope.theta = 1e6;
    c->experts = 8;
    c->top_k = 2;
    c->router_loss_factor = 0.001;
    c->normalised_choice = true;
    CLV_TRY(clv_llama_read_config(c, o, 8, where, err));
    CLV_TRY(clv_llama_read_window(c, o, where, err));
    CLV_TRY(clv_llama_read_layer_types(c, 0, NULL, where, err)); /* all, or none */
    CLV_TRY(clv_experts_read_config(c, o, keys, where, err));
    c->expert_ffn = c->ffn;
    CLV_TRY(clv_json_get_real(&noise, o, "router_jitter_noise", CLV_JSON_OPTIONAL, 0, 1, where, err));
    return noise == 0 ? CLV_OK : clv_config_fail_unsupported(where, "router_jitter_noise", "more than 0", "0", err);
}

static json_t *write_mixtral(const clv_model_config *c)
{
    json_t *o = clv_experts_write_config(clv_llama_write_config(c), c, "num_local_experts");
    if (o)
        json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
    return o;
}

static const clv_parameter_row parameters[] = {
    CLV_LLAMA_ATTENTION_ROWS,
    {"layers.%.mlp.router.weight", "model.layers.%.block_sparse_moe.gate.weight", CLV_PARAMETER_LINEAR, "M",
     .out = "E"},
    {"layers.%.mlp.experts.gate_up.weight", "model.layers.%.block_sparse_moe.experts.#.w1.weight", CLV_PARAMETER_LINEAR,
     "M", .out = "X", .second_tensor = "model.layers.%.block_sparse_moe.experts.#.w3.weight", .by_expert = true},
    {"layers.%.mlp.experts.down.weight", "model.layers.%.block_sparse_moe.experts.#.w2.weight", CLV_PARAMETER_LINEAR,
     "X", .out = "M", .by_expert = true},
    CLV_LLAMA_LAST_ROWS,
    {0},
};

const clv_model_family clv_family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .bare = "MixtralModel",
    .base = "model.",
    .read = read_mixtral,
    .write = write_mixtral,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = parameters,
};
