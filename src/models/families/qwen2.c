/* qwen2.c - Qwen2 family (Qwen2ForCausalLM): Llama's graph with biases on q, k, v and optional sliding windows (Yang
 * et al. 2024, arXiv:2407.10671). With use_sliding_window, the layers that layer_types says, or those from
 * max_window_layers on, see a window.
 */
#include "models/families/llama_common.h"

static clv_status read_qwen2(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    bool windowed = false;
    int64_t first = 28; /* transformers' default */

    c->max_positions = 32768;
    CLV_TRY(clv_llama_read_config(c, o, 32, where, err));
    c->qkv_bias = true;
    CLV_TRY(clv_json_get_bool(&windowed, o, "use_sliding_window", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_int(&first, o, "max_window_layers", CLV_JSON_OPTIONAL, 0, CLV_MAX_LAYERS, where, err));
    if (windowed) {
        c->window = 4096;
        CLV_TRY(clv_llama_read_window(c, o, where, err));
    }
    return clv_llama_read_layer_types(c, first, o, where, err);
}

static json_t *write_qwen2(const clv_model_config *c)
{
    json_t *o = clv_llama_write_config(c);
    if (o) {
        json_object_set_new(o, "use_sliding_window", json_boolean(c->window > 0));
        clv_llama_write_windows(o, c);
    }
    return o;
}

const clv_model_family clv_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .bare = "Qwen2Model",
    .base = "model.",
    .read = read_qwen2,
    .write = write_qwen2,
    .hidden = clv_llama_hidden_states,
    .head = clv_model_logits,
    .parameters = clv_llama_parameters,
};
