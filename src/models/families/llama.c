/* llama.c - Llama family (LlamaForCausalLM): its config keys; graph and parameters are llama_common's (Touvron et al.
 * 2023, arXiv:2302.13971).
 *
 * Refused in config.json: kinds of rope scaling other than linear and llama3, activations other than silu, windows.
 */
#include <stdio.h>

#include "models/config/config_readers.h"
#include "models/families/llama_common.h"

/* Llama's attention has no window. transformers (5) gives its cache one all the same where config.json says so, so that
 * decoding differs from the forward pass: a window is taken where no sequence is longer. */
static clv_status check_window(const clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    int64_t window = c->max_positions;
    char text[32];

    CLV_TRY(clv_json_get_int(&window, o, "sliding_window", CLV_JSON_OPTIONAL, 1, CLV_MAX_POSITIONS, where, err));
    if (window >= c->max_positions)
        return CLV_OK;
    snprintf(text, sizeof text, "%lld", (long long)window);
    return clv_config_fail_unsupported(where, "sliding_window", text, "null, or no less than max_position_embeddings",
                                       err);
}

static clv_status read_llama(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    CLV_TRY(clv_llama_read_config(c, o, 0, where, err));
    CLV_TRY(check_window(c, o, where, err));
    CLV_TRY(clv_llama_read_layer_types(c, 0, o, where, err));
    CLV_TRY(clv_json_get_bool(&c->qkv_bias, o, "attention_bias", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_bool(&c->mlp_bias, o, "mlp_bias", CLV_JSON_OPTIONAL, where, err));
    c->output_bias = c->qkv_bias;
    return CLV_OK;
}

static json_t *write_llama(const clv_model_config *c)
{
    json_t *o = clv_llama_write_config(c);
    if (o) {
        json_object_set_new(o, "attention_bias", json_boolean(c->qkv_bias));
        json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
    }
    return o;
}

const clv_model_family clv_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .like = "LLaMAForCausalLM", /* as the first conversions have it */
    .bare = "LlamaModel",
    .base = "model.",
    .read = read_llama,
    .write = write_llama,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = clv_llama_parameters,
};
