/* mistral.c - Mistral family (MistralForCausalLM): Llama's graph with sliding-window attention (Jiang et al. 2023,
 * arXiv:2310.06825). A query sees the last `sliding_window` keys. The KV cache keeps all of them.
 */
#include "models/families/llama_common.h"

static clv_status read_mistral(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    c->max_positions = 4096 * 32; /* transformers' defaults */
    c->window = 4096;
    CLV_TRY(clv_llama_read_config(c, o, 8, where, err));
    CLV_TRY(clv_llama_read_window(c, o, where, err));
    return clv_llama_read_layer_types(c, 0, o, where, err);
}

static json_t *write_mistral(const clv_model_config *c)
{
    json_t *o = clv_llama_write_config(c);
    if (o)
        clv_llama_write_windows(o, c);
    return o;
}

const clv_model_family clv_family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .bare = "MistralModel",
    .base = "model.",
    .read = read_mistral,
    .write = write_mistral,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = clv_llama_parameters,
};
