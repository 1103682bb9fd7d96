/* llama.c - Llama (Touvron et al. 2023, arXiv:2302.13971; Hugging Face LlamaForCausalLM).
 *
 * Refused in config.json: kinds of rope scaling other than linear and llama3, activations other than silu. */
#include "base/error.h"
#include "models/config_json.h"
#include "models/llama_form.h"

static clv_status read_llama(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    CLV_TRY(clv_llama_form_read(c, o, 0, where, err));
    CLV_TRY(clv_json_bool(&c->qkv_bias, o, "attention_bias", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_bool(&c->mlp_bias, o, "mlp_bias", CLV_JSON_OPTIONAL, where, err));
    c->output_bias = c->qkv_bias;
    return CLV_OK;
}

static json_t *write_llama(const clv_model_config *c)
{
    json_t *o = clv_llama_form_write(c);
    if (o) {
        json_object_set_new(o, "attention_bias", json_boolean(c->qkv_bias));
        json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias));
    }
    return o;
}

const clv_model_family clv_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .bare = "LlamaModel",
    .base = "model.",
    .read = read_llama,
    .write = write_llama,
    .hidden = clv_llama_form_hidden,
    .head = clv_model_logits,
    .parameters = clv_llama_form_parameters,
};
