/* checkpoint_inventory.c - compares the tensors of a checkpoint with the model's parameters: missing, unexpected, wrong
 * shape or dtype. */
#include "models/checkpoint/checkpoint_inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/config/config_overrides.h"
#include "models/weights/weight_storage.h"

enum { SHAPE_TEXT = 192 };

/* Marks the model's tensors in used[], and lists the missing ones. */
static void find_tensors(clv_checkpoint_inventory *c, bool *used, const clv_weights *w, const clv_model_config *m)
{
    const clv_safetensor *found;

    c->quant = clv_stored_quant_detect(w, m);
    for (int64_t i = 0; i < clv_model_parameter_count(m); i++) {
        const clv_parameter p = clv_model_parameter_at(m, i);
        for (int k = 0; k < clv_stored_tensor_count(m, &p, c->quant); k++) {
            const clv_model_tensor tensor = clv_stored_tensor(m, &p, c->quant, k);
            if (clv_stored_tensor_find(&found, w, m, &tensor, NULL) == CLV_OK)
                used[clv_weights_index_of(w, found)] = true;
            else
                memcpy(c->missing[c->n_missing++], tensor.name, sizeof tensor.name);
        }
    }
    for (int64_t i = 0; i <= m->layers + 1; i++)
        if ((found = clv_model_find_inv_freq(w, m, i)) != NULL)
            used[clv_weights_index_of(w, found)] = true;
}

clv_status clv_checkpoint_inventory_collect(clv_checkpoint_inventory *out, const clv_weights *w,
                                            const clv_model_config *m, clv_error *err)
{
    const size_t expected = (size_t)(clv_model_tensor_count(m) + clv_model_parameter_count(m)) + 1;
    const size_t n = (size_t)clv_weights_count(w);
    CLV_FREED bool *used = calloc(n + 1, sizeof *used);
    clv_checkpoint_inventory c = {.missing = calloc(expected, sizeof *c.missing),
                                  .extra = calloc(n + 1, sizeof(const clv_safetensor *))};

    if (used == NULL || c.missing == NULL || c.extra == NULL) {
        clv_checkpoint_inventory_free(&c);
        return clv_fail_memory(err, "names of tensors", expected * sizeof *c.missing);
    }
    find_tensors(&c, used, w, m);
    for (size_t i = 0; i < n; i++)
        if (!used[i])
            c.extra[c.n_extra++] = clv_weights_at(w, (int64_t)i);
    *out = c;
    return CLV_OK;
}

void clv_checkpoint_inventory_free(clv_checkpoint_inventory *c)
{
    free(c->missing);
    free(c->extra);
    *c = (clv_checkpoint_inventory){0};
}

/* ---- checking ---- */

static void shape_text(char text[SHAPE_TEXT], int rank, const int64_t *shape)
{
    size_t used = 0;

    text[0] = '\0';
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", d > 0 ? "," : "", (long long)shape[d]);
}

static clv_status check_shape(const clv_safetensor *t, const char *name, int rank, const int64_t *shape, clv_error *err)
{
    char has[SHAPE_TEXT], wants[SHAPE_TEXT];

    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return CLV_OK;
    shape_text(has, t->rank, t->shape);
    shape_text(wants, rank, shape);
    return clv_fail(err, CLV_EFORMAT, "%s: has the shape [%s], config.json calls for [%s]", name, has, wants);
}

static clv_status check_tensor(const clv_safetensor *t, const clv_model_tensor *expected, clv_error *err)
{
    const bool blocks = expected->quant != CLV_QUANT_NONE;
    if (!t->readable || !(blocks ? t->dtype == CLV_U8 : clv_dtype_is_float(t->dtype)))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: dtype %s is not supported; valid: %s", expected->name,
                        t->dtype_name, blocks ? "U8" : "F64, F32, F16, BF16");
    return check_shape(t, expected->name, expected->rank, expected->shape, err);
}

/* An unused tensor must not be of a layer beyond the last (and those that are not built), nor another spelling of a
 * used one with other values. */
static clv_status check_extra(const clv_safetensor *t, const clv_weights *w, const clv_model_config *m, clv_error *err)
{
    char name[CLV_TENSOR_NAME_SIZE];
    bool equal = true;
    int64_t layer;

    if (!clv_model_canonical_tensor_name(name, &layer, m, clv_weights_bare_name(w, t)))
        return CLV_OK;
    if (layer >= m->layers + m->mtp_layers)
        return clv_fail(err, CLV_EFORMAT, "%s exists, but config.json calls for %lld layers", t->name,
                        (long long)m->layers);
    const clv_safetensor *read = clv_model_find_by_alias(w, m, name);
    if (read != NULL && read != t && read->readable)
        CLV_TRY(t->readable ? clv_tensors_equal(&equal, read, t, err) : CLV_OK);
    if (!equal && strcmp(read->name, t->name) == 0)
        return clv_fail(err, CLV_EFORMAT, "%s: two of the files have it, and differ; valid: one file for a tensor",
                        t->name);
    if (!equal)
        return clv_fail(err, CLV_EFORMAT,
                        "%s and %s are two names of one tensor of the model, and differ; valid: one of them, or both "
                        "with the same values",
                        read->name, t->name);
    return CLV_OK;
}

/* Names an unused tensor too, to show how the files spell names. */
static clv_status fail_missing(const clv_checkpoint_inventory *c, const clv_weights *w, clv_error *err)
{
    char more[48] = "", there[192] = "";

    if (c->n_missing > 1)
        snprintf(more, sizeof more, ", and %lld more are missing", (long long)c->n_missing - 1);
    if (c->n_extra > 0)
        snprintf(there, sizeof there, "; of the %lld in the files %lld are no tensors of the model, the first is %.96s",
                 (long long)clv_weights_count(w), (long long)c->n_extra, c->extra[0]->name);
    return clv_fail(err, CLV_ENOTFOUND, "no tensor named \"%.128s\"%s%s", c->missing[0], more, there);
}

clv_status clv_checkpoint_inventory_check(const clv_checkpoint_inventory *c, const clv_weights *w,
                                          const clv_model_config *m, clv_error *err)
{
    for (int64_t i = 0; i < clv_model_parameter_count(m); i++) {
        const clv_parameter p = clv_model_parameter_at(m, i);
        for (int k = 0; k < clv_stored_tensor_count(m, &p, c->quant); k++) {
            const clv_model_tensor tensor = clv_stored_tensor(m, &p, c->quant, k);
            const clv_safetensor *t = NULL;
            if (clv_stored_tensor_find(&t, w, m, &tensor, NULL) == CLV_OK)
                CLV_TRY(check_tensor(t, &tensor, err));
        }
    }
    if (c->n_missing > 0)
        return fail_missing(c, w, err);
    for (int64_t i = 0; i < c->n_extra; i++)
        CLV_TRY(check_extra(c->extra[i], w, m, err));
    return CLV_OK;
}

clv_status clv_model_check_weights(const clv_weights *w, const clv_model_config *m, clv_error *err)
{
    CLV_CLEANUP(clv_checkpoint_inventory_free) clv_checkpoint_inventory inventory = {0};

    CLV_TRY(clv_checkpoint_inventory_collect(&inventory, w, m, err));
    return clv_checkpoint_inventory_check(&inventory, w, m, err);
}
