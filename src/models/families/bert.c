/* bert.c - BERT family (BertForMaskedLM, BertModel): post-norm encoder with token types and masked-LM head (Devlin et
 * al. 2018, arXiv:1810.04805).
 *
 * Refused in config.json: positions other than absolute, decoders. The pooler and the next-sentence head of a
 * checkpoint are not used.
 */
#include "graph/graph.h"
#include "models/families/model_family.h"
#include "nn/layer_layouts.h"

static const clv_init weight_init = {CLV_INIT_NORMAL, 0.02};

static clv_status read_bert(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    static const char *const absolute[] = {"absolute", NULL};
    const clv_config_size sizes[] = {
        {"hidden_size", &c->hidden, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"num_hidden_layers", &c->layers, CLV_MAX_LAYERS, CLV_JSON_REQUIRED},
        {"num_attention_heads", &c->heads, CLV_MAX_HEADS, CLV_JSON_REQUIRED},
        {"intermediate_size", &c->ffn, CLV_MAX_WIDTH, CLV_JSON_REQUIRED},
        {"vocab_size", &c->vocab, CLV_MAX_VOCAB, CLV_JSON_REQUIRED},
        {"max_position_embeddings", &c->max_positions, CLV_MAX_POSITIONS, CLV_JSON_OPTIONAL},
        {"type_vocab_size", &c->token_types, CLV_MAX_VOCAB, CLV_JSON_OPTIONAL},
    };

    c->max_positions = 512; /* transformers' defaults */
    c->token_types = 2;
    c->norm_eps = 1e-12;
    c->activation = CLV_GELU;
    c->bidirectional = true;
    c->tie_word_embeddings = true;
    c->qkv_bias = c->output_bias = c->mlp_bias = true;
    CLV_TRY(clv_config_check_choice(o, "position_embedding_type", absolute, where, err));
    CLV_TRY(clv_json_get_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof sizes[0], o, where, err));
    c->kv_heads = c->heads;
    CLV_TRY(clv_config_set_head_dim(c, "hidden_size", "num_attention_heads", where, err));
    CLV_TRY(clv_config_read_activation(&c->activation, o, "hidden_act", where, err));
    return clv_json_get_real(&c->norm_eps, o, "layer_norm_eps", CLV_JSON_OPTIONAL, 1e-30, 1, where, err);
}

static json_t *write_bert(const clv_model_config *c)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "hidden_act",
                     clv_config_activation_name(c->activation), "position_embedding_type", "absolute", "hidden_size",
                     (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads",
                     (json_int_t)c->heads, "intermediate_size", (json_int_t)c->ffn, "max_position_embeddings",
                     (json_int_t)c->max_positions, "type_vocab_size", (json_int_t)c->token_types, "layer_norm_eps",
                     c->norm_eps, "hidden_dropout_prob", 0.0, "attention_probs_dropout_prob", 0.0);
}

/* ---- the graph ---- */

/* A row of a table for each token's type; where none are given, row 0 for all. */
static clv_value add_token_types(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                                 const clv_model_inputs *in, clv_value x)
{
    static const clv_logical_axis names[] = {CLV_UNNAMED, CLV_EMBED_KERNEL};
    int64_t shape[] = {model->token_types, model->hidden}, one[] = {1};
    clv_value types = in->token_types;
    clv_value table =
        clv_nn_weight(graph, &build->rules, "token_types.weight", build->dtype, 2, shape, names, NULL, weight_init);
    if (!clv_valid(types))
        types = clv_fill(graph, CLV_I32, 1, one, 0);
    return clv_nn_leave_parallel_region(graph, clv_add(graph, x, clv_embedding(graph, table, types)), &build->rules);
}

static clv_value hidden(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                        const clv_model_inputs *in)
{
    clv_value x = clv_model_embedding(graph, model, build, in->ids);
    x = add_token_types(graph, model, build, in, x);
    x = clv_learned_positions(graph, x, CLV_NONE, model->max_positions, &build->rules, "positions", weight_init);
    x = clv_parallel_layer_norm(graph, x, &build->rules, "embed_norm", model->norm_eps, true);
    return clv_model_blocks(graph, model, build, in, x, CLV_BLOCK_BERT);
}

/* ---- the checkpoint ---- */

#define LAYER "bert.encoder.layer.%."
#define HEAD  "cls.predictions."

static const clv_parameter_row parameters[] = {
    {"embed.weight", "bert.embeddings.word_embeddings.weight", CLV_PARAMETER_AS_IS, "", .out = "VM"},
    {"token_types.weight", "bert.embeddings.token_type_embeddings.weight", CLV_PARAMETER_AS_IS, "", .out = "TM"},
    {"positions.weight", "bert.embeddings.position_embeddings.weight", CLV_PARAMETER_AS_IS, "", .out = "PM"},
    {"embed_norm.weight", "bert.embeddings.LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"embed_norm.bias", "bert.embeddings.LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.q.weight", LAYER "attention.self.query.weight", CLV_PARAMETER_LINEAR, "M", .out = "HD"},
    {"layers.%.attention.q.bias", LAYER "attention.self.query.bias", CLV_PARAMETER_LINEAR, "", .out = "HD"},
    {"layers.%.attention.kv.weight", LAYER "attention.self.key.weight", CLV_PARAMETER_LINEAR, "M", .out = "KD",
     .second_tensor = LAYER "attention.self.value.weight"},
    {"layers.%.attention.kv.bias", LAYER "attention.self.key.bias", CLV_PARAMETER_LINEAR, "", .out = "KD",
     .second_tensor = LAYER "attention.self.value.bias"},
    {"layers.%.attention.o.weight", LAYER "attention.output.dense.weight", CLV_PARAMETER_LINEAR, "HD", .out = "M"},
    {"layers.%.attention.o.bias", LAYER "attention.output.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.norm.weight", LAYER "attention.output.LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.attention.norm.bias", LAYER "attention.output.LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.up.weight", LAYER "intermediate.dense.weight", CLV_PARAMETER_LINEAR, "M", .out = "F"},
    {"layers.%.mlp.up.bias", LAYER "intermediate.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "F"},
    {"layers.%.mlp.down.weight", LAYER "output.dense.weight", CLV_PARAMETER_LINEAR, "F", .out = "M"},
    {"layers.%.mlp.down.bias", LAYER "output.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.weight", LAYER "output.LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"layers.%.mlp.norm.bias", LAYER "output.LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M"},
    {"lm_head.dense.weight", HEAD "transform.dense.weight", CLV_PARAMETER_LINEAR, "M", .out = "M",
     .when = clv_model_has_head},
    {"lm_head.dense.bias", HEAD "transform.dense.bias", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_head},
    {"lm_head.norm.weight", HEAD "transform.LayerNorm.weight", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_head},
    {"lm_head.norm.bias", HEAD "transform.LayerNorm.bias", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_head},
    {"lm_head.bias", HEAD "bias", CLV_PARAMETER_AS_IS, "", .out = "V", .when = clv_model_is_tied},
    {"lm_head.bias", HEAD "decoder.bias", CLV_PARAMETER_AS_IS, "", .out = "V", .when = clv_config_has_own_lm_head},
    {"lm_head.weight", HEAD "decoder.weight", CLV_PARAMETER_LINEAR, "M", .out = "V",
     .when = clv_config_has_own_lm_head},
    {0},
};

const clv_model_family clv_family_bert = {
    .model_type = "bert",
    .architecture = "BertForMaskedLM",
    .like = "BertForPreTraining",
    .bare = "BertModel",
    .base = "bert.",
    .read = read_bert,
    .write = write_bert,
    .hidden = hidden,
    .head = clv_model_masked_lm_head,
    .parameters = parameters,
};
