/* input_batch_file.c - reads a command's input batch from safetensors (ids [B,S], optional mask and token_types),
 * checks it against the model, and makes the next-token labels.
 */
#include "cli/input/input_batch_file.h"

#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cli/parser/did_you_mean.h"

void clv_input_batch_free(clv_input_batch *ids)
{
    free(ids->ids);
    free(ids->labels);
    free(ids->token_types);
    free(ids->mask);
    *ids = (clv_input_batch){0};
}

/* An int64 tensor [B,S] of the file, the caller's to free. The first one says what B and S are. */
static clv_status read_rows(int64_t **out, clv_input_batch *b, const clv_checkpoint *file, const char *name,
                            const char *where, clv_error *err)
{
    clv_tensor_info t = {.size = sizeof t};
    int64_t i;
    CLV_TRY(clv_checkpoint_find(&i, file, name, err));
    CLV_TRY(clv_checkpoint_tensor(file, i, &t, err));
    if (b->rows == 0 && t.rank == 2) {
        b->rows = t.shape[0];
        b->columns = t.shape[1];
    }
    if (t.rank == 2 && (t.shape[0] != b->rows || t.shape[1] != b->columns))
        return clv_fail(err, CLV_ESHAPE, "%s: %s is [%lld,%lld] and ids are [%lld,%lld]; they must be alike", where,
                        name, (long long)t.shape[0], (long long)t.shape[1], (long long)b->rows, (long long)b->columns);
    bool fits = t.rank == 2 && b->rows > 0 && b->columns > 0;
    if (!fits || !t.readable || (t.dtype != CLV_I64 && t.dtype != CLV_I32 && t.dtype != CLV_U8))
        return clv_fail(err, CLV_ESHAPE, "%s: %s must be integers (i64, i32 or u8) [B,S], B and S at least 1", where,
                        name);
    *out = calloc((size_t)(b->rows * b->columns), sizeof **out);
    if (!*out)
        return clv_fail_memory(err, name, (size_t)(b->rows * b->columns) * sizeof **out);
    return clv_checkpoint_read(file, i, NULL, CLV_I64, *out, err);
}

/* The label of a token is the next one. Padding is no label and has none. */
static void make_labels(clv_input_batch *b)
{
    for (int64_t i = 0; i < b->rows * b->columns; i++) {
        bool last = i % b->columns == b->columns - 1;
        bool padded = b->mask && (!b->mask[i] || (!last && !b->mask[i + 1]));
        b->labels[i] = last || padded ? CLV_IGNORE_INDEX : b->ids[i + 1];
    }
}

static clv_status take_ids(clv_input_batch *b, const int64_t *ids, int64_t vocabulary, const char *where,
                           clv_error *err)
{
    size_t n = (size_t)(b->rows * b->columns) + 1;
    b->ids = calloc(n, sizeof *b->ids);
    b->labels = malloc(n * sizeof *b->labels);
    if (!b->ids || !b->labels)
        return clv_fail_memory(err, "a batch", n * sizeof *b->ids);
    for (int64_t i = 0; i < b->rows * b->columns; i++) {
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return clv_fail(err, CLV_EINVAL, "%s: id %lld at [%lld,%lld]; the vocabulary is 0 to %lld", where,
                            (long long)ids[i], (long long)(i / b->columns), (long long)(i % b->columns),
                            (long long)vocabulary - 1);
        b->ids[i] = (int32_t)ids[i];
    }
    make_labels(b);
    return CLV_OK;
}

static clv_status take_token_types(clv_input_batch *b, const int64_t *types, int64_t kinds, const char *where,
                                   clv_error *err)
{
    int64_t n = b->rows * b->columns;
    if (kinds == 0)
        return clv_fail(err, CLV_EINVAL, "%s: token_types are given, and the model has no token types", where);
    b->token_types = malloc((size_t)n * sizeof *b->token_types);
    if (!b->token_types)
        return clv_fail_memory(err, "token types", (size_t)n * sizeof *b->token_types);
    for (int64_t i = 0; i < n; i++) {
        if (types[i] < 0 || types[i] >= kinds)
            return clv_fail(err, CLV_EINVAL, "%s: token type %lld at [%lld,%lld]; the model has %lld", where,
                            (long long)types[i], (long long)(i / b->columns), (long long)(i % b->columns),
                            (long long)kinds);
        b->token_types[i] = (int32_t)types[i];
    }
    return CLV_OK;
}

static clv_status take_mask(clv_input_batch *b, const int64_t *mask, const char *where, clv_error *err)
{
    int64_t n = b->rows * b->columns;
    b->mask = malloc((size_t)n);
    if (!b->mask)
        return clv_fail_memory(err, "a mask", (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (mask[i] != 0 && mask[i] != 1)
            return clv_fail(err, CLV_EINVAL, "%s: mask is %lld at [%lld,%lld]; valid: 1, and 0 for padding", where,
                            (long long)mask[i], (long long)(i / b->columns), (long long)(i % b->columns));
        b->mask[i] = mask[i] == 1;
    }
    return CLV_OK;
}

/* A tensor that nothing reads likely has a wrong name. */
static clv_status check_names(const clv_checkpoint *file, const char *where, clv_error *err)
{
    static const char *const known[] = {"ids", "mask", "token_types"};
    enum { KNOWN = sizeof known / sizeof *known };
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(file); i++) {
        clv_tensor_info t = {.size = sizeof t};
        int k = 0;
        CLV_TRY(clv_checkpoint_tensor(file, i, &t, err));
        const char *name = t.name;
        while (k < KNOWN && strcmp(name, known[k]) != 0)
            k++;
        if (k < KNOWN)
            continue;
        const char *nearest = clv_did_you_mean(name, known, KNOWN);
        return clv_fail(err, CLV_EINVAL, "%s: unknown tensor '%.128s'%s%s%s; valid: ids, mask, token_types", where,
                        name, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    return CLV_OK;
}

static clv_status read_tensors(clv_input_batch *b, const clv_checkpoint *file, const char *where,
                               const clv_model_info *model, clv_error *err)
{
    int64_t *ids = NULL, *mask = NULL, *types = NULL;
    int64_t found;
    clv_status status = read_rows(&ids, b, file, "ids", where, err);
    if (status == CLV_OK && clv_checkpoint_find(&found, file, "mask", NULL) == CLV_OK)
        status = read_rows(&mask, b, file, "mask", where, err);
    if (status == CLV_OK && clv_checkpoint_find(&found, file, "token_types", NULL) == CLV_OK)
        status = read_rows(&types, b, file, "token_types", where, err);
    if (status == CLV_OK && types)
        status = take_token_types(b, types, model->token_types, where, err);
    if (status == CLV_OK && mask)
        status = take_mask(b, mask, where, err);
    if (status == CLV_OK)
        status = take_ids(b, ids, model->vocab, where, err);
    free(ids);
    free(mask);
    free(types);
    return status;
}

clv_status clv_input_batch_read(clv_input_batch *out, const char *path, const clv_model_info *model,
                                bool allow_other_tensors, clv_error *err)
{
    clv_checkpoint *file;
    *out = (clv_input_batch){0};
    CLV_TRY(clv_checkpoint_open(&file, path, NULL, err));
    clv_status status = allow_other_tensors ? CLV_OK : check_names(file, path, err);
    if (status == CLV_OK)
        status = read_tensors(out, file, path, model, err);
    clv_checkpoint_close(file);
    if (status != CLV_OK)
        clv_input_batch_free(out);
    return status;
}
