/* gpt2.c - GPT-2 family (GPT2LMHeadModel): learned positions, LayerNorm, biases, fused Conv1D projections (Radford et
 * al. 2019).
 *
 * Its linear weights are stored as [in, out] (Conv1D), with q, k and v side by side in one tensor.
 * Refused in config.json: attention that is not scaled by 1/sqrt(D) alone, or computed in another dtype.
 */
#include "models/families/model_family.h"

/* Other families' names for the sizes may stand in place of GPT-2's own, or beside them with the same values. */
static const char *either(const json_t *o, const char *name, const char *alias)
{
    return json_object_get(o, name) == NULL && json_object_get(o, alias) != NULL ? alias : name;
}

static clv_status check_aliases(const clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const struct {
        const char *name, *alias;
        int64_t value;
    } aliases[] = {{"n_embd", "hidden_size", c->hidden},
                   {"n_layer", "num_hidden_layers", c->layers},
                   {"n_head", "num_attention_heads", c->heads},
                   {"n_positions", "max_position_embeddings", c->max_positions}};

    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        int64_t value = aliases[i].value;
        CLV_TRY(clv_json_get_int(&value, o, aliases[i].alias, CLV_JSON_OPTIONAL, 1, CLV_MAX_POSITIONS, where, err));
        if (value != aliases[i].value)
            return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" %lld and \"%s\" %lld differ", where, aliases[i].alias,
                            (long long)value, aliases[i].name, (long long)aliases[i].value);
    }
    return CLV_OK;
}

static clv_status read_gpt2(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const clv_config_size sizes[] = {
        {either(o, "n_embd", "hidden_size"), &c->hidden, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {either(o, "n_layer", "num_hidden_layers"), &c->layers, CLV_MAX_LAYERS, CLV_JSON_REQUIRED},
        {either(o, "n_head", "num_attention_heads"), &c->heads, CLV_MAX_HEADS, CLV_JSON_REQUIRED},
        {"n_inner", &c->ffn, CLV_MAX_WIDTH, CLV_JSON_OPTIONAL},
        {"vocab_size", &c->vocab, CLV_MAX_VOCAB, CLV_JSON_REQUIRED},
        {either(o, "n_positions", "max_position_embeddings"), &c->max_positions, CLV_MAX_POSITIONS, CLV_JSON_OPTIONAL},
    };

    c->max_positions = 1024; /* transformers' defaults */
    c->norm_eps = 1e-5;
    c->activation = CLV_GELU_TANH;
    c->tie_word_embeddings = true;
    c->qkv_bias = c->output_bias = c->mlp_bias = true;
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof sizes[0], o, where, err));
    CLV_TRY(check_aliases(c, o, where, err));
    c->kv_heads = c->heads;
    if (c->ffn == 0)
        c->ffn = 4 * c->hidden;
    CLV_TRY(clv_config_set_head_dim(c, "n_embd", "n_head", where, err));
    CLV_TRY(clv_config_read_activation(&c->activation, o, "activation_function", where, err));
    CLV_TRY(clv_json_get_real(&c->norm_eps, o, "layer_norm_epsilon", CLV_JSON_OPTIONAL, 1e-30, 1, where, err));
    return clv_json_get_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err);
}

static json_t *write_gpt2(const clv_model_config *c)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "activation_function",
                     clv_config_activation_name(c->activation), "n_embd", (json_int_t)c->hidden, "n_layer",
                     (json_int_t)c->layers, "n_head", (json_int_t)c->heads, "n_inner", (json_int_t)c->ffn,
                     "n_positions", (json_int_t)c->max_positions, "layer_norm_epsilon", c->norm_eps, "resid_pdrop", 0.0,
                     "embd_pdrop", 0.0, "attn_pdrop", 0.0);
}

static clv_value hidden(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                        const clv_model_inputs *in)
{
    clv_value x = clv_model_embedding(graph, model, build, in->ids);
    x = clv_learned_positions(graph, x, in->offset, model->max_positions, &build->rules, "positions",
                              (clv_init){CLV_INIT_NORMAL, 0.02});
    x = clv_model_blocks(graph, model, build, in, x, CLV_BLOCK_GPT);
    return clv_parallel_layer_norm(graph, x, &build->rules, "final_norm", model->norm_eps, true);
}

static const clv_parameter_row parameters[] = {
    {"embed.weight", "transformer.wte.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"positions.weight", "transformer.wpe.weight", CLV_PARAMETER_AS_IS, "", .out = "PM"},
    {"layers.%.attention.norm.weight", "transformer.h.%.ln_1.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.norm.bias", "transformer.h.%.ln_1.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.q.weight", "transformer.h.%.attn.c_attn.weight", CLV_PARAMETER_CONV1D, "M", .out = "HD",
     .take = 1, .of = 3},
    {"layers.%.attention.kv.weight", "transformer.h.%.attn.c_attn.weight", CLV_PARAMETER_CONV1D, "M", .out = "KD",
     .first = 1, .take = 2, .of = 3},
    {"layers.%.attention.q.bias", "transformer.h.%.attn.c_attn.bias", CLV_PARAMETER_CONV1D, "", .out = "HD", .take = 1,
     .of = 3},
    {"layers.%.attention.kv.bias", "transformer.h.%.attn.c_attn.bias", CLV_PARAMETER_CONV1D, "", .out = "KD",
     .first = 1, .take = 2, .of = 3},
    {"layers.%.attention.o.weight", "transformer.h.%.attn.c_proj.weight", CLV_PARAMETER_CONV1D, "HD", .out = "M"},
    {"layers.%.attention.o.bias", "transformer.h.%.attn.c_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.weight", "transformer.h.%.ln_2.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.bias", "transformer.h.%.ln_2.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.up.weight", "transformer.h.%.mlp.c_fc.weight", CLV_PARAMETER_CONV1D, "M", .out = "F"},
    {"layers.%.mlp.up.bias", "transformer.h.%.mlp.c_fc.bias", CLV_PARAMETER_AS_IS, "", .out = "F"},
    {"layers.%.mlp.down.weight", "transformer.h.%.mlp.c_proj.weight", CLV_PARAMETER_CONV1D, "F", .out = "M"},
    {"layers.%.mlp.down.bias", "transformer.h.%.mlp.c_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"final_norm.weight", "transformer.ln_f.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"final_norm.bias", "transformer.ln_f.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"lm_head.weight", "lm_head.weight", CLV_PARAMETER_LINEAR, "M", .out = "V", .when = clv_config_has_own_lm_head},
    {0},
};

const clv_model_family clv_family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .bare = "GPT2Model",
    .base = "transformer.",
    .read = read_gpt2,
    .write = write_gpt2,
    .hidden = hidden,
    .head = clv_model_logits,
    .parameters = parameters,
    .allows_pad_outside_vocab = true,
};
