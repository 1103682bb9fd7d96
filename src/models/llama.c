/* llama.c - Llama (Touvron et al. 2023, arXiv:2302.13971; Hugging Face LlamaForCausalLM).
 *
 * Refused in config.json: rope scaling, activations other than silu. */
#include "base/error.h"
#include "models/config.h"
#include "models/family.h"

static clv_status read_llama(clv_model *c, const json_t *o, const char *where, clv_error *err)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    const clv_config_size sizes[] = {
        {"hidden_size", &c->hidden, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"num_hidden_layers", &c->layers, CLV_MAX_LAYERS, CLV_JSON_REQUIRED},
        {"num_attention_heads", &c->heads, CLV_MAX_HEADS, CLV_JSON_REQUIRED},
        {"num_key_value_heads", &c->kv_heads, CLV_MAX_HEADS, CLV_JSON_OPTIONAL},
        {"head_dim", &c->head_dim, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
        {"intermediate_size", &c->ffn, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"vocab_size", &c->vocab, CLV_MAX_VOCAB, CLV_JSON_REQUIRED},
        {"max_position_embeddings", &c->max_positions, CLV_MAX_POSITIONS, CLV_JSON_OPTIONAL},
    };

    c->max_positions = 2048; /* transformers' defaults */
    c->norm_eps = 1e-6;
    c->activation = CLV_SILU;
    CLV_TRY(clv_config_sizes(sizes, sizeof sizes / sizeof sizes[0], o, where, err));
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0)
        CLV_TRY(clv_config_head_dim(c, "hidden_size", "num_attention_heads", where, err));
    CLV_TRY(clv_config_word(o, "hidden_act", silu, where, err));
    CLV_TRY(clv_json_bool(&c->qkv_bias, o, "attention_bias", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_bool(&c->mlp_bias, o, "mlp_bias", CLV_JSON_OPTIONAL, where, err));
    c->output_bias = c->qkv_bias;
    CLV_TRY(clv_json_real(&c->norm_eps, o, "rms_norm_eps", CLV_JSON_OPTIONAL, 1e-30, 1, where, err));
    CLV_TRY(clv_json_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    return clv_config_rope(c, o, where, err);
}

/* Both spellings of the rotary base. */
static json_t *write_llama(const clv_model *c)
{
    return json_pack("{s:s, s:b, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:{s:f, s:s}}", "hidden_act",
                     "silu", "attention_bias", (int)c->qkv_bias, "mlp_bias", (int)c->mlp_bias, "attention_dropout", 0.0,
                     "hidden_size", (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers,
                     "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
                     "head_dim", (json_int_t)c->head_dim, "intermediate_size", (json_int_t)c->ffn,
                     "max_position_embeddings", (json_int_t)c->max_positions, "rms_norm_eps", c->norm_eps, "rope_theta",
                     c->rope_theta, "rope_parameters", "rope_theta", c->rope_theta, "rope_type", "default");
}

static clv_value hidden(clv_graph *graph, const clv_model *model, const clv_model_build *build,
                        const clv_model_inputs *in)
{
    clv_value x = clv_model_embedding(graph, model, build, in->ids);
    x = clv_model_blocks(graph, model, build, in, x, CLV_BLOCK_LLAMA);
    return clv_parallel_rms_norm(graph, x, &build->rules, "final_norm", model->norm_eps);
}

static const clv_parameter_row parameters[] = {
    {"embed.weight", {"model.embed_tokens.weight"}, CLV_AS_IS, "", .out = "VM"},
    {"layers.%.attention.norm.weight", {"model.layers.%.input_layernorm.weight"}, CLV_AS_IS, "", .out = "M"},
    {"layers.%.attention.q.weight", {"model.layers.%.self_attn.q_proj.weight"}, CLV_LINEAR, "M", .out = "HD"},
    {"layers.%.attention.kv.weight",
     {"model.layers.%.self_attn.k_proj.weight", "model.layers.%.self_attn.v_proj.weight"},
     CLV_LINEAR,
     "M",
     .out = "KD"},
    {"layers.%.attention.q.bias",
     {"model.layers.%.self_attn.q_proj.bias"},
     CLV_LINEAR,
     "",
     .out = "HD",
     .when = clv_model_has_qkv_bias},
    {"layers.%.attention.kv.bias",
     {"model.layers.%.self_attn.k_proj.bias", "model.layers.%.self_attn.v_proj.bias"},
     CLV_LINEAR,
     "",
     .out = "KD",
     .when = clv_model_has_qkv_bias},
    {"layers.%.attention.o.bias",
     {"model.layers.%.self_attn.o_proj.bias"},
     CLV_AS_IS,
     "",
     .out = "M",
     .when = clv_model_has_output_bias},
    {"layers.%.attention.o.weight", {"model.layers.%.self_attn.o_proj.weight"}, CLV_LINEAR, "HD", .out = "M"},
    {"layers.%.mlp.norm.weight", {"model.layers.%.post_attention_layernorm.weight"}, CLV_AS_IS, "", .out = "M"},
    {"layers.%.mlp.gate_up.weight",
     {"model.layers.%.mlp.gate_proj.weight", "model.layers.%.mlp.up_proj.weight"},
     CLV_LINEAR,
     "M",
     .out = "F"},
    {"layers.%.mlp.gate_up.bias",
     {"model.layers.%.mlp.gate_proj.bias", "model.layers.%.mlp.up_proj.bias"},
     CLV_LINEAR,
     "",
     .out = "F",
     .when = clv_model_has_mlp_bias},
    {"layers.%.mlp.down.bias",
     {"model.layers.%.mlp.down_proj.bias"},
     CLV_AS_IS,
     "",
     .out = "M",
     .when = clv_model_has_mlp_bias},
    {"layers.%.mlp.down.weight", {"model.layers.%.mlp.down_proj.weight"}, CLV_LINEAR, "F", .out = "M"},
    {"final_norm.weight", {"model.norm.weight"}, CLV_AS_IS, "", .out = "M"},
    {"lm_head.weight", {"lm_head.weight"}, CLV_LINEAR, "M", .out = "V", .when = clv_model_is_untied},
    {0},
};

const clv_model_family clv_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .base = "model.",
    .read = read_llama,
    .write = write_llama,
    .hidden = hidden,
    .head = clv_model_logits,
    .parameters = parameters,
};
