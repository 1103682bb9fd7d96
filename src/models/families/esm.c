/* esm.c - ESM-2 family (EsmForMaskedLM): bidirectional protein encoder with RoPE, token dropout, masked-LM head (Lin
 * et al. 2023, doi:10.1126/science.ade2574).
 *
 * Token dropout (Rives et al. 2021): mask tokens are embedded as zeros, as if dropped out, and a sequence is scaled
 * by
 * (1 - 0.15 * 0.8) / (1 - share of its tokens that are masks), the first being the share seen in training.
 *
 * Published checkpoints hold rotary frequencies that were rounded to f16 in training: these are used, as transformers
 * does, of all layers those of the first.
 *
 * Refused in config.json: learned positions (ESM-1b), folding models, decoders.
 */
#include "graph/graph.h"
#include "models/families/model_family.h"

static const double masked_in_training = 0.15 * 0.8;

static clv_status check_kind(const json_t *o, const char *where, clv_error *err)
{
    static const char *const rotary[] = {"rotary", NULL}, *const gelu[] = {"gelu", NULL};

    CLV_TRY(clv_config_check_choice(o, "position_embedding_type", rotary, where, err));
    if (!json_is_string(json_object_get(o, "position_embedding_type"))) /* transformers' default */
        return clv_config_fail_unsupported(where, "position_embedding_type", "absolute", "rotary", err);
    return clv_config_check_choice(o, "hidden_act", gelu, where, err);
}

/* transformers turns heads of hidden / heads elements, by the theta of "rope_theta" alone. */
static clv_status read_positions(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    double theta = 10000;
    int64_t head_dim = c->head_dim;

    CLV_TRY(clv_config_read_rope(c, o, false, where, err));
    CLV_TRY(clv_json_get_real(&theta, o, "rope_theta", CLV_JSON_OPTIONAL, 1e-3, 1e12, where, err));
    if (theta != c->rope.theta)
        return clv_fail(
            err, CLV_EUNSUPPORTED,
            "%s: \"rope_theta\" is %g, and %g in the parameters of rotary embedding; ESM has the first alone", where,
            theta, c->rope.theta);
    CLV_TRY(clv_json_get_int(&head_dim, o, "head_dim", CLV_JSON_OPTIONAL, 1, CLV_MAX_WIDTH, where, err));
    if (head_dim != c->head_dim)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: \"head_dim\" %lld is not supported (supported: %lld, the width by the heads)", where,
                        (long long)head_dim, (long long)c->head_dim);
    return CLV_OK;
}

static clv_status read_esm(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const clv_config_size sizes[] = {
        {"hidden_size", &c->hidden, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"num_hidden_layers", &c->layers, CLV_MAX_LAYERS, CLV_JSON_REQUIRED},
        {"num_attention_heads", &c->heads, CLV_MAX_HEADS, CLV_JSON_REQUIRED},
        {"intermediate_size", &c->ffn, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"vocab_size", &c->vocab, CLV_MAX_VOCAB, CLV_JSON_REQUIRED},
        {"max_position_embeddings", &c->max_positions, CLV_MAX_POSITIONS, CLV_JSON_OPTIONAL},
    };

    c->max_positions = 1026; /* transformers' defaults */
    c->norm_eps = 1e-12;
    c->activation = CLV_GELU;
    c->bidirectional = true;
    c->tie_word_embeddings = true;
    c->qkv_bias = c->output_bias = c->mlp_bias = true;
    CLV_TRY(check_kind(o, where, err));
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof sizes[0], o, where, err));
    c->kv_heads = c->heads;
    CLV_TRY(clv_config_set_head_dim(c, "hidden_size", "num_attention_heads", where, err));
    CLV_TRY(clv_json_get_real(&c->norm_eps, o, "layer_norm_eps", CLV_JSON_OPTIONAL, 1e-30, 1, where, err));
    CLV_TRY(clv_json_get_bool(&c->embedding_norm, o, "emb_layer_norm_before", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_bool(&c->token_dropout, o, "token_dropout", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_int(&c->mask, o, "mask_token_id", c->token_dropout ? CLV_JSON_REQUIRED : CLV_JSON_OPTIONAL, 0,
                             c->vocab - 1, where, err));
    CLV_TRY(clv_json_get_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    return read_positions(c, o, where, err);
}

static json_t *write_esm(const clv_model_config *c)
{
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "hidden_act",
                     "gelu", "position_embedding_type", "rotary", "is_folding_model", 0, "emb_layer_norm_before",
                     (int)c->embedding_norm, "token_dropout", (int)c->token_dropout, "mask_token_id",
                     clv_config_token_to_json(c->mask), "hidden_size", (json_int_t)c->hidden, "num_hidden_layers",
                     (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads, "intermediate_size",
                     (json_int_t)c->ffn, "max_position_embeddings", (json_int_t)c->max_positions, "layer_norm_eps",
                     c->norm_eps, "rope_theta", c->rope.theta, "hidden_dropout_prob", 0.0,
                     "attention_probs_dropout_prob", 0.0);
}

/* ---- the graph ---- */

/* x [B,S,M] times a factor a row, [B,S]. */
static clv_value scale_rows(clv_graph *graph, clv_value x, clv_value factor)
{
    clv_type type = clv_graph_type(graph, x), rows = clv_graph_type(graph, factor);
    if (!clv_valid(x) || !clv_valid(factor))
        return CLV_NONE;
    rows.shape[rows.rank] = 1;
    return clv_mul(graph, x, clv_reshape(graph, clv_cast(graph, factor, type.dtype), rows.rank + 1, rows.shape));
}

/* [B,S]: 0 for mask tokens, else what makes up for their absence. */
static clv_value token_dropout(clv_graph *graph, const clv_model_config *model, const clv_model_inputs *in)
{
    static const int over_sequence[] = {1};
    int64_t one[] = {1, 1}, tokens = clv_graph_type(graph, in->ids).shape[1];
    clv_value token = clv_fill(graph, CLV_I32, 2, one, (double)model->mask);
    clv_value is_mask = clv_cast(graph, clv_equal(graph, in->ids, token), CLV_F32);
    clv_value masks = clv_reduce(graph, CLV_SUM, is_mask, over_sequence, 1, true);
    clv_value length = clv_fill(graph, CLV_F32, 2, one, (double)tokens);
    if (clv_valid(in->mask))
        length = clv_reduce(graph, CLV_SUM, clv_cast(graph, in->mask, CLV_F32), over_sequence, 1, true);
    clv_value ones = clv_fill(graph, CLV_F32, 2, one, 1),
              seen = clv_fill(graph, CLV_F32, 2, one, 1 - masked_in_training);
    clv_value scale = clv_div(graph, seen, clv_sub(graph, ones, clv_div(graph, masks, length)));
    return clv_mul(graph, clv_sub(graph, ones, is_mask), scale);
}

static clv_value hidden(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                        const clv_model_inputs *in)
{
    clv_value x = clv_model_embedding(graph, model, build, in->ids);
    if (model->token_dropout)
        x = scale_rows(graph, x, token_dropout(graph, model, in));
    if (model->embedding_norm)
        x = clv_parallel_layer_norm(graph, x, &build->rules, "embed_norm", model->norm_eps, true);
    if (clv_valid(in->mask))
        x = scale_rows(graph, x, in->mask);
    x = clv_model_blocks(graph, model, build, in, x, CLV_BLOCK_GPT);
    return clv_parallel_layer_norm(graph, x, &build->rules, "final_norm", model->norm_eps, true);
}

/* ---- the checkpoint ---- */

static bool has_embedding_norm(const clv_model_config *model)
{
    return model->embedding_norm;
}

#define LAYER "esm.encoder.layer.%."

static const clv_parameter_row parameters[] = {
    {"embed.weight", "esm.embeddings.word_embeddings.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"embed_norm.weight", "esm.embeddings.layer_norm.weight", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = has_embedding_norm},
    {"embed_norm.bias", "esm.embeddings.layer_norm.bias", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = has_embedding_norm},
    {"layers.%.attention.norm.weight", LAYER "attention.LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.norm.bias", LAYER "attention.LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.q.weight", LAYER "attention.self.query.weight", CLV_PARAMETER_LINEAR, "M", .out = "HD"},
    {"layers.%.attention.q.bias", LAYER "attention.self.query.bias", CLV_PARAMETER_LINEAR, "", .out = "HD"},
    {"layers.%.attention.kv.weight", LAYER "attention.self.key.weight", CLV_PARAMETER_LINEAR, "M", .out = "KD",
     .second_tensor = LAYER "attention.self.value.weight"},
    {"layers.%.attention.kv.bias", LAYER "attention.self.key.bias", CLV_PARAMETER_LINEAR, "", .out = "KD",
     .second_tensor = LAYER "attention.self.value.bias"},
    {"layers.%.attention.o.weight", LAYER "attention.output.dense.weight", CLV_PARAMETER_LINEAR, "HD", .out = "M"},
    {"layers.%.attention.o.bias", LAYER "attention.output.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.weight", LAYER "LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.bias", LAYER "LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.up.weight", LAYER "intermediate.dense.weight", CLV_PARAMETER_LINEAR, "M", .out = "F"},
    {"layers.%.mlp.up.bias", LAYER "intermediate.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "F"},
    {"layers.%.mlp.down.weight", LAYER "output.dense.weight", CLV_PARAMETER_LINEAR, "F", .out = "M"},
    {"layers.%.mlp.down.bias", LAYER "output.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"final_norm.weight", "esm.encoder.emb_layer_norm_after.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"final_norm.bias", "esm.encoder.emb_layer_norm_after.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"lm_head.dense.weight", "lm_head.dense.weight", CLV_PARAMETER_LINEAR, "M", .out = "M", .when = clv_model_has_head},
    {"lm_head.dense.bias", "lm_head.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M", .when = clv_model_has_head},
    {"lm_head.norm.weight", "lm_head.layer_norm.weight", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_head},
    {"lm_head.norm.bias", "lm_head.layer_norm.bias", CLV_PARAMETER_AS_IS, "", .out = "M", .when = clv_model_has_head},
    {"lm_head.bias", "lm_head.bias", CLV_PARAMETER_AS_IS, "", .out = "V", .when = clv_model_has_head},
    {"lm_head.weight", "lm_head.decoder.weight", CLV_PARAMETER_LINEAR, "M", .out = "V",
     .when = clv_config_has_own_lm_head},
    {0},
};

const clv_model_family clv_family_esm = {
    .model_type = "esm",
    .architecture = "EsmForMaskedLM",
    .bare = "EsmModel",
    .base = "esm.",
    .read = read_esm,
    .write = write_esm,
    .hidden = hidden,
    .head = clv_model_masked_lm_head,
    .parameters = parameters,
    .frequencies = LAYER "attention.self.rotary_embeddings.inv_freq",
    .shared_frequencies = "esm.rotary_embeddings.inv_freq",
};
