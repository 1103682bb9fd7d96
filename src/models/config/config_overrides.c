/* config_overrides.c - corrects the config by the checkpoint: untied embeddings, stored rotary frequencies. */
#include "models/config/config_overrides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/families/model_family.h"
#include "models/weights/weight_storage.h"

enum { PIECE_ELEMS = 1 << 18 };

/* ---- equal tensors ---- */

/* Rows [lo, hi) of both, elems each. */
static clv_status rows_equal(bool *out, const clv_safetensor *a, const clv_safetensor *b, int64_t lo, int64_t hi,
                             float *values, size_t elems, clv_error *err)
{
    clv_shard box = {.rank = a->rank};

    memcpy(box.hi, a->shape, sizeof box.hi);
    box.lo[0] = lo;
    box.hi[0] = hi;
    CLV_TRY(clv_safetensors_read(a, &box, CLV_F32, values, err));
    CLV_TRY(clv_safetensors_read(b, &box, CLV_F32, values + elems, err));
    for (size_t i = 0; i < elems; i++)
        *out = *out && values[i] == values[elems + i];
    return CLV_OK;
}

clv_status clv_tensors_equal(bool *out, const clv_safetensor *a, const clv_safetensor *b, clv_error *err)
{
    *out = a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
    if (!*out || a->rank == 0 || a->shape[0] == 0)
        return CLV_OK;
    clv_shard row = {.rank = a->rank};
    memcpy(row.hi, a->shape, sizeof row.hi);
    row.hi[0] = 1;
    const int64_t row_elems = clv_shard_elems(&row), rows = PIECE_ELEMS / (row_elems + 1) + 1;
    CLV_FREED float *values = malloc((size_t)(2 * rows * row_elems + 1) * sizeof *values);
    if (values == NULL)
        return clv_fail_memory(err, a->name, (size_t)(rows * row_elems));
    for (int64_t lo = 0; *out && lo < a->shape[0]; lo += rows) {
        int64_t hi = lo + rows < a->shape[0] ? lo + rows : a->shape[0];
        CLV_TRY(rows_equal(out, a, b, lo, hi, values, (size_t)((hi - lo) * row_elems), err));
    }
    return CLV_OK;
}

/* ---- tied embeddings ---- */

/* A quantized output projection of its own: the model was untied when it was quantized. */
static bool has_quantized_head(const clv_weights *w, const clv_model_config *model)
{
    clv_model_config untied = *model;
    clv_parameter head;

    untied.tie_word_embeddings = false;
    return clv_model_parameter_find(&head, &untied, "lm_head.weight", NULL) == CLV_OK &&
           (clv_weights_has(w, clv_quantized_tensor(&head, CLV_QUANT_Q8).name) ||
            clv_weights_has(w, clv_quantized_tensor(&head, CLV_QUANT_Q4).name));
}

static clv_status finalize_tied_embeddings(clv_config_overrides *out, clv_model_config *model, const clv_weights *w,
                                           clv_error *err)
{
    const clv_safetensor *pair[2];
    bool equal = true;

    if (!clv_model_is_tied(model))
        return CLV_OK;
    clv_model_find_tied_tensors(pair, w, model);
    if (pair[0] != NULL && pair[1] != NULL && pair[0]->readable && pair[1]->readable)
        CLV_TRY(clv_tensors_equal(&equal, pair[0], pair[1], err));
    out->untied = !equal || has_quantized_head(w, model);
    if (out->untied)
        model->tie_word_embeddings = false;
    return CLV_OK;
}

/* ---- rotary frequencies ---- */

static clv_status read_frequencies(float *out, const clv_safetensor *t, const clv_model_config *model, clv_error *err)
{
    const int64_t n = model->head_dim / 2;

    if (!t->readable || !clv_dtype_is_float(t->dtype))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: dtype %s is not supported", t->name, t->dtype_name);
    if (t->rank != 1 || t->shape[0] != n)
        return clv_fail(err, CLV_EFORMAT, "%s: has %d dimensions, the first of %lld; config.json calls for [%lld]",
                        t->name, t->rank, t->rank > 0 ? (long long)t->shape[0] : 1, (long long)n);
    CLV_TRY(clv_safetensors_read(t, NULL, CLV_F32, out, err));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return clv_fail(err, CLV_EFORMAT, "%s: element %lld is not finite", t->name, (long long)i);
    return CLV_OK;
}

static clv_status finalize_rope_frequencies(clv_config_overrides *out, clv_model_config *model, const clv_weights *w,
                                            clv_error *err)
{
    char name[CLV_TENSOR_NAME_SIZE];

    for (int64_t i = 0; clv_model_inv_freq_name_candidate(name, model, i); i++) {
        const clv_safetensor *t = clv_model_find_inv_freq(w, model, i);
        bool equal = true;
        if (t == NULL)
            continue;
        if (out->frequencies != NULL) {
            CLV_TRY(clv_tensors_equal(&equal, out->frequencies, t, err));
            out->others += !equal;
            continue;
        }
        out->inv_freq = malloc((size_t)(model->head_dim / 2 + 1) * sizeof *out->inv_freq);
        if (out->inv_freq == NULL)
            return clv_fail_memory(err, t->name, (size_t)model->head_dim * sizeof *out->inv_freq);
        CLV_TRY(read_frequencies(out->inv_freq, t, model, err));
        out->frequencies = t;
        model->rope.inv_freq = out->inv_freq;
    }
    return CLV_OK;
}

clv_status clv_config_overrides_apply(clv_config_overrides *out, clv_model_config *model, const clv_weights *w,
                                      clv_error *err)
{
    *out = (clv_config_overrides){0};
    clv_status status = finalize_tied_embeddings(out, model, w, err);
    if (status == CLV_OK)
        status = finalize_rope_frequencies(out, model, w, err);
    if (status != CLV_OK)
        clv_config_overrides_free(out);
    return status;
}

void clv_config_overrides_free(clv_config_overrides *s)
{
    free(s->inv_freq);
    *s = (clv_config_overrides){0};
}
