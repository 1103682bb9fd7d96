/* llama_common.c - shared by Llama, Mistral, Qwen2: config keys, decoder graph (RMSNorm, RoPE, GQA, SwiGLU),
 * parameters.
 */
#include "models/families/llama_common.h"

#include <string.h>

/* What "layer_types" calls them. */
#define WHOLE    "full_attention"
#define WINDOWED "sliding_attention"
#define OLD_NAME "attention" /* of WHOLE */

clv_status clv_llama_read_config(clv_model_config *c, const json_t *o, int64_t kv_heads, const char *where,
                                 clv_error *err)
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

    if (c->max_positions == 0) /* transformers' defaults */
        c->max_positions = 2048;
    if (c->norm_eps == 0)
        c->norm_eps = 1e-6;
    c->activation = CLV_SILU;
    CLV_TRY(clv_config_read_sizes(sizes, sizeof sizes / sizeof sizes[0], o, where, err));
    if (c->kv_heads == 0) /* null is as many as query heads even where the default is another */
        c->kv_heads = kv_heads > 0 && json_object_get(o, "num_key_value_heads") == NULL ? kv_heads : c->heads;
    if (c->head_dim == 0)
        CLV_TRY(clv_config_set_head_dim(c, "hidden_size", "num_attention_heads", where, err));
    CLV_TRY(clv_config_check_choice(o, "hidden_act", silu, where, err));
    CLV_TRY(clv_json_get_real(&c->norm_eps, o, "rms_norm_eps", CLV_JSON_OPTIONAL, 1e-30, 1, where, err));
    CLV_TRY(clv_json_get_bool(&c->tie_word_embeddings, o, "tie_word_embeddings", CLV_JSON_OPTIONAL, where, err));
    return clv_config_read_rope(c, o, true, where, err);
}

json_t *clv_llama_write_config(const clv_model_config *c)
{
    json_t *o = json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "hidden_act", "silu",
                          "attention_dropout", 0.0, "hidden_size", (json_int_t)c->hidden, "num_hidden_layers",
                          (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads",
                          (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim, "intermediate_size",
                          (json_int_t)c->ffn, "max_position_embeddings", (json_int_t)c->max_positions, "rms_norm_eps",
                          c->norm_eps, "rope_theta", c->rope.theta);
    if (o && json_object_set_new(o, "rope_parameters", clv_config_rope_to_json(c)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* ---- windows ---- */

/* "layer_types" names a kind for each layer, or is NULL. */
static clv_status check_layer_types(const clv_model_config *c, const json_t *types, const char *where, clv_error *err)
{
    const json_t *type;
    size_t i;

    if (types != NULL && (!json_is_array(types) || json_array_size(types) != (size_t)c->layers))
        return clv_fail(err, CLV_EFORMAT, "%s: \"layer_types\" must be a list of %lld names, one a layer", where,
                        (long long)c->layers);
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);
        bool windowed = name != NULL && strcmp(name, WINDOWED) == 0;
        bool whole = name != NULL && (strcmp(name, WHOLE) == 0 || strcmp(name, OLD_NAME) == 0);
        if (!windowed && !whole)
            return clv_config_fail_unsupported(where, "layer_types", name ? name : "not a name",
                                               WHOLE ", " OLD_NAME ", " WINDOWED, err);
        if (windowed && c->window == 0)
            return clv_fail(err, CLV_EFORMAT, "%s: \"layer_types\" has " WINDOWED " without \"sliding_window\"", where);
    }
    return CLV_OK;
}

clv_status clv_llama_read_window(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const json_t *window = json_object_get(o, "sliding_window");

    if (json_is_null(window))
        c->window = 0;
    return clv_json_get_int(&c->window, o, "sliding_window", CLV_JSON_OPTIONAL, 1, CLV_MAX_POSITIONS, where, err);
}

clv_status clv_llama_read_layer_types(clv_model_config *c, int64_t first, const json_t *o, const char *where,
                                      clv_error *err)
{
    const json_t *types = json_object_get(o, "layer_types");
    bool any = false;

    if (json_is_null(types))
        types = NULL;
    CLV_TRY(check_layer_types(c, types, where, err));
    for (int64_t i = 0; c->window > 0 && i < c->layers; i++) {
        const char *name = json_string_value(json_array_get(types, (size_t)i));
        bool windowed = types != NULL ? strcmp(name, WINDOWED) == 0 : i >= first;
        c->windowed[i / 8] |= (uint8_t)(windowed << i % 8);
        any |= windowed;
    }
    if (!any)
        c->window = 0;
    return CLV_OK;
}

void clv_llama_write_windows(json_t *o, const clv_model_config *c)
{
    json_t *types = json_array();
    int64_t first = c->layers, windowed = 0;

    for (int64_t i = c->layers - 1; i >= 0; i--)
        if (clv_model_config_window(c, i)) {
            first = i;
            windowed++;
        }
    for (int64_t i = 0; i < c->layers; i++)
        json_array_append_new(types, json_string(clv_model_config_window(c, i) ? WINDOWED : WHOLE));
    json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
    json_object_set_new(o, "max_window_layers", json_integer(first));
    if (windowed > 0 && windowed < c->layers)
        json_object_set(o, "layer_types", types);
    json_decref(types);
}

/* ---- the graph ---- */

clv_value clv_llama_hidden_states(clv_graph *graph, const clv_model_config *model, const clv_model_build_options *build,
                                  const clv_model_inputs *in)
{
    clv_value x = clv_model_embedding(graph, model, build, in->ids);
    x = clv_model_blocks(graph, model, build, in, x, CLV_BLOCK_LLAMA);
    return clv_parallel_rms_norm(graph, x, &build->rules, "final_norm", model->norm_eps);
}

const clv_parameter_row clv_llama_parameters[] = {
    CLV_LLAMA_ATTENTION_ROWS,
    CLV_LLAMA_GATE_UP_ROW(CLV_ALL_LAYERS),
    {"layers.%.mlp.gate_up.bias", "model.layers.%.mlp.gate_proj.bias", CLV_PARAMETER_LINEAR, "", .out = "F",
     .when = clv_model_has_mlp_bias, .second_tensor = "model.layers.%.mlp.up_proj.bias"},
    {"layers.%.mlp.down.bias", "model.layers.%.mlp.down_proj.bias", CLV_PARAMETER_AS_IS, "", .out = "M",
     .when = clv_model_has_mlp_bias},
    CLV_LLAMA_DOWN_ROW(CLV_ALL_LAYERS),
    CLV_LLAMA_LAST_ROWS,
    {0},
};
