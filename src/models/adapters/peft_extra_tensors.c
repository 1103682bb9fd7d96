/* peft_extra_tensors.c - checks the other tensors of a PEFT file: copies of base weights must equal the base's.
 *
 * If lm_head or embed_tokens is among target_modules, or the vocabulary was resized, PEFT saves the weights of both
 * (save_embedding_layers), and loads them over the base's.
 */
#include "models/adapters/peft_folder.h"

#include <string.h>

#include "base/error.h"
#include "models/adapters/lora_parameters.h"
#include "models/checkpoint/checkpoint_warnings.h"

/* The name without PEFT's prefix; NULL: it has none. */
static const char *without_base(const char *name)
{
    size_t n = strlen(clv_adapters_peft_base);
    return strncmp(name, clv_adapters_peft_base, n) == 0 ? name + n : NULL;
}

static bool ends_in(const char *text, size_t length, const char *ending)
{
    size_t n = strlen(ending);
    return length >= n && strncmp(text + length - n, ending, n) == 0;
}

/* Whether it is an adapter of a module that cleave leaves out. */
static bool is_unused(const char *name)
{
    const size_t length = strlen(name);
    return (ends_in(name, length, ".lora_A.weight") || ends_in(name, length, ".lora_B.weight")) &&
           clv_is_unused_module(name);
}

/* ---- weights of the base ---- */

/* The base's "lm_head.weight" for "lm_head.base_layer.weight"; the embedding table if they are tied. NULL: none. */
static const clv_safetensor *find_base_weight(const clv_model *m, const char *name)
{
    static const char wrapped[] = ".base_layer.weight", weight[] = ".weight", head[] = "lm_head.weight";
    const clv_weights *weights = m->weights->files;
    const clv_safetensor *found = NULL;
    char own[CLV_TENSOR_NAME_SIZE];
    size_t length = strlen(name), ending = strlen(ends_in(name, length, wrapped) ? wrapped : weight);
    if (!ends_in(name, length, weight) || length - ending + sizeof weight > sizeof own)
        return NULL;
    memcpy(own, name, length - ending);
    memcpy(own + length - ending, weight, sizeof weight);
    if (m->config.tie_word_embeddings && strcmp(own, head) == 0)
        strcpy(own, m->config.family->parameters[0].tensor);
    return clv_model_find_tensor(&found, weights, &m->config, own, NULL) == CLV_OK ? found : NULL;
}

static clv_status check_weight(const clv_model *m, const clv_safetensor *tensor, const char *name, const char *path,
                               clv_error *err)
{
    bool same = false;
    const clv_safetensor *base = find_base_weight(m, name);
    if (!base)
        return clv_fail(err, CLV_EINVAL, "%s: has \"%.128s\", which this model does not use", path, tensor->name);
    if (base->readable && tensor->readable)
        CLV_TRY(clv_tensors_equal(&same, base, tensor, err));
    if (!same)
        return clv_fail(err, CLV_EINVAL,
                        "%s: \"%.128s\" differs from the base's %.96s; supported: adapters of unchanged weights", path,
                        tensor->name, base->name);
    return CLV_OK;
}

static clv_status check_tensor(const clv_model *m, const clv_safetensor *tensor, const char *path, clv_error *err)
{
    const char *name = without_base(tensor->name);
    if (name && is_unused(name))
        return CLV_OK;
    if (strstr(tensor->name, ".lora_"))
        return clv_fail(err, CLV_EINVAL,
                        "%s: has \"%.128s\", an adapter that this model does not use; supported: those of the linear "
                        "layers in its blocks, and of an output layer that is not tied",
                        path, tensor->name);
    if (name && !m->weights)
        return CLV_OK; /* no base weights to compare with */
    return check_weight(m, tensor, name ? name : "", path, err);
}

clv_status clv_peft_check_extra_tensors(const clv_model *m, const char *path, clv_error *err)
{
    const clv_checkpoint_inventory *inventory = &m->adapter_weights->inventory;
    for (int64_t i = 0; i < inventory->n_extra; i++)
        CLV_TRY(check_tensor(m, inventory->extra[i], path, err));
    return CLV_OK;
}
