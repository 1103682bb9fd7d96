/* peft_extra_tensors.c - PEFT tensors that are no adapters of the model: base weights must equal the base's, others
 * are unused.
 *
 * Where lm_head or embed_tokens is among target_modules, or the vocabulary was resized, PEFT saves the weights of both
 * (save_embedding_layers), and loads them over the base's.
 */
#include "models/adapters/peft_extra_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/adapters/lora_parameters.h"
#include "models/checkpoint/checkpoint_warnings.h"
#include "tensor/box_runs.h"

enum { ROOM = 1 << 16 /* elements that are compared at a time */ };

/* The name without what PEFT puts before it; NULL: it has nothing of PEFT's. */
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

static bool is_unused(const char *name)
{
    static const char *const factors[] = {".lora_A.weight", ".lora_B.weight"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        if (ends_in(name, length, factors[i]))
            return clv_is_unused_module(name);
    }
    return false;
}

int64_t clv_peft_unused_tensors(const clv_model *m, const char **first)
{
    int64_t n = 0;
    const clv_safetensor *tensor;
    *first = NULL;
    for (int64_t i = 0; m->adapter_weights && (tensor = clv_model_weights_extra_at(m->adapter_weights, i)); i++)
        if (is_unused(tensor->name) && n++ == 0)
            *first = tensor->name;
    return n;
}

/* ---- weights of the base ---- */

/* Of a tensor "lm_head.base_layer.weight" the base's "lm_head.weight"; of tied embeddings the table. */
static const clv_safetensor *of_base(const clv_model *m, const char *name)
{
    static const char wrapped[] = ".base_layer.weight", weight[] = ".weight", head[] = "lm_head.weight";
    const clv_weights *weights = clv_model_weights_files(m->weights);
    const clv_safetensor *found = NULL;
    char own[CLV_TENSOR_NAME_SIZE];
    size_t length = strlen(name), ending = strlen(ends_in(name, length, wrapped) ? wrapped : weight);
    if (!ends_in(name, length, weight) || length - ending + sizeof weight > sizeof own)
        return NULL;
    memcpy(own, name, length - ending);
    memcpy(own + length - ending, weight, sizeof weight);
    if (m->config.tie_word_embeddings && strcmp(own, head) == 0)
        strcpy(own, m->config.family->parameters[0].theirs[0]);
    return clv_model_find_tensor(&found, weights, &m->config, own, NULL) == CLV_OK ? found : NULL;
}

static bool have_one_shape(const clv_safetensor *a, const clv_safetensor *b)
{
    bool is_one = a->rank == b->rank && a->readable && b->readable;
    for (int d = 0; is_one && d < a->rank; d++)
        is_one = a->shape[d] == b->shape[d];
    return is_one;
}

static clv_status compare_rows(bool *same, float *room[2], const clv_safetensor *tensors[2], clv_error *err)
{
    clv_shard box = clv_box_whole(tensors[0]->rank, tensors[0]->shape);
    int64_t rows = box.rank ? box.hi[0] : 0, row = rows ? clv_shard_elems(&box) / rows : 0;
    int64_t step = row > 0 && row < ROOM ? ROOM / row : 1;
    for (int64_t i = 0; *same && i < rows; i += step) {
        box.lo[0] = i;
        box.hi[0] = i + step < rows ? i + step : rows;
        for (int k = 0; k < 2; k++)
            CLV_TRY(clv_safetensors_read(tensors[k], &box, CLV_F32, room[k], err));
        *same = memcmp(room[0], room[1], (size_t)clv_shard_elems(&box) * sizeof(float)) == 0;
    }
    return CLV_OK;
}

static clv_status compare(bool *same, const clv_safetensor *a, const clv_safetensor *b, clv_error *err)
{
    const clv_safetensor *tensors[] = {a, b};
    *same = have_one_shape(a, b) && a->rank > 0;
    if (!*same)
        return CLV_OK;
    clv_shard row = clv_box_whole(a->rank, a->shape);
    row.hi[0] = row.hi[0] > 0;
    size_t elems = (size_t)clv_shard_elems(&row) + ROOM;
    float *room[] = {malloc(elems * sizeof(float)), malloc(elems * sizeof(float))};
    clv_status status =
        room[0] && room[1] ? compare_rows(same, room, tensors, err) : clv_fail_memory(err, a->name, 2 * elems);
    free(room[0]);
    free(room[1]);
    return status;
}

static clv_status check_weight(const clv_model *m, const clv_safetensor *tensor, const char *name, const char *path,
                               clv_error *err)
{
    bool same = false;
    const clv_safetensor *own = of_base(m, name);
    if (!own)
        return clv_fail(err, CLV_EINVAL, "%s: has \"%.128s\", which this model has no use for", path, tensor->name);
    CLV_TRY(compare(&same, own, tensor, err));
    if (!same)
        return clv_fail(
            err, CLV_EINVAL,
            "%s: \"%.128s\" is not the base's own %.96s; supported: adapters beside weights that stay as they "
            "are",
            path, tensor->name, own->name);
    return CLV_OK;
}

static clv_status check_tensor(const clv_model *m, const clv_safetensor *tensor, const char *path, clv_error *err)
{
    const char *name = without_base(tensor->name);
    if (name && is_unused(name))
        return CLV_OK;
    if (strstr(tensor->name, ".lora_"))
        return clv_fail(err, CLV_EINVAL,
                        "%s: has \"%.128s\", an adapter that this model has no use for; supported: those of the linear "
                        "layers in its blocks, and of an output layer that is not tied",
                        path, tensor->name);
    if (name && !m->weights)
        return CLV_OK; /* there is nothing that it could differ from */
    return check_weight(m, tensor, name ? name : "", path, err);
}

clv_status clv_peft_check_extra_tensors(const clv_model *m, const char *path, clv_error *err)
{
    const clv_safetensor *tensor;
    for (int64_t i = 0; (tensor = clv_model_weights_extra_at(m->adapter_weights, i)) != NULL; i++)
        CLV_TRY(check_tensor(m, tensor, path, err));
    return CLV_OK;
}
