/* row_file.c - reads a safetensors file of rows: ids, labels and padding mask. */
#include "tokens/data/row_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint/safetensors.h"

enum { BLOCK = 1 << 16 /* numbers */ };

/* Integers of the shape of the first tensor. */
static clv_status check_tensor(clv_row_file *f, const clv_safetensor *t, const char *path, clv_error *err)
{
    bool whole = t->readable && (t->dtype == CLV_I64 || t->dtype == CLV_I32 || t->dtype == CLV_U8);
    if (!whole || t->rank != 2 || t->shape[0] < 1 || t->shape[1] < 1)
        return clv_fail(err, CLV_EINVAL, "%s: %s must be integers (i64, i32 or u8) [N,S], N and S at least 1", path,
                        t->name);
    if (f->rows == 0) {
        f->rows = t->shape[0];
        f->seq = t->shape[1];
    }
    if (t->shape[0] != f->rows || t->shape[1] != f->seq)
        return clv_fail(err, CLV_EINVAL, "%s: %s is [%lld,%lld] and ids are [%lld,%lld]; they must be alike", path,
                        t->name, (long long)t->shape[0], (long long)t->shape[1], (long long)f->rows, (long long)f->seq);
    return CLV_OK;
}

/* Stores numbers [first, first + n) of a row. */
static clv_status take(clv_row_file *f, int32_t *out, const clv_safetensor *t, int64_t row, int64_t first,
                       const int64_t *numbers, int64_t n, int64_t vocab, int64_t least, const char *path,
                       clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = numbers[i];
        if ((id < 0 && id != least) || id >= vocab)
            return clv_fail(err, CLV_EINVAL, "%s: %s is %lld at [%lld,%lld]; the vocabulary is 0 to %lld", path,
                            t->name, (long long)id, (long long)row, (long long)(first + i), (long long)vocab - 1);
        f->vocab = id >= f->vocab ? id + 1 : f->vocab;
        out[row * f->seq + first + i] = (int32_t)id;
    }
    return CLV_OK;
}

/* least: a number below 0 that is valid, too. */
static clv_status read_tensor(clv_row_file *f, int32_t **out, const clv_safetensor *t, int64_t vocab, int64_t least,
                              const char *path, clv_error *err)
{
    size_t bytes = (size_t)f->rows * (size_t)f->seq * sizeof **out;
    CLV_FREED int64_t *numbers = malloc(BLOCK * sizeof *numbers);
    *out = malloc(bytes);
    if (!*out || !numbers)
        return clv_fail_memory(err, path, bytes);
    for (int64_t row = 0; row < f->rows; row++)
        for (int64_t s = 0; s < f->seq; s += BLOCK) {
            int64_t n = f->seq - s < BLOCK ? f->seq - s : BLOCK;
            clv_shard box = {.rank = 2, .lo = {row, s}, .hi = {row + 1, s + n}};
            CLV_TRY(clv_safetensors_read(t, &box, CLV_I64, numbers, err));
            CLV_TRY(take(f, *out, t, row, s, numbers, n, vocab, least, path, err));
        }
    return CLV_OK;
}

/* Labels of a file without them. Padding is no label and, since it attends to nothing, predicts none. */
static clv_status make_labels(clv_row_file *f, const char *path, int64_t label_offset, clv_error *err)
{
    size_t bytes = (size_t)f->rows * (size_t)f->seq * sizeof *f->labels;
    f->labels = malloc(bytes);
    if (!f->labels)
        return clv_fail_memory(err, path, bytes);
    for (int64_t i = 0; i < f->rows * f->seq; i++) {
        bool has = i % f->seq + label_offset < f->seq && (!f->mask || (f->mask[i] && f->mask[i + label_offset]));
        f->labels[i] = has ? f->ids[i + label_offset] : CLV_IGNORE_INDEX;
    }
    return CLV_OK;
}

static clv_status read_mask(clv_row_file *f, const clv_safetensor *t, const char *path, clv_error *err)
{
    enum { FLAGS = 2 };
    int64_t ids = f->vocab;
    CLV_TRY(read_tensor(f, &f->mask, t, FLAGS, 0, path, err));
    f->vocab = ids;
    for (int64_t row = 0; row < f->rows; row++) {
        int64_t tokens = 0;
        for (int64_t s = 0; s < f->seq; s++)
            tokens += f->mask[row * f->seq + s];
        if (tokens == 0)
            return clv_fail(err, CLV_EINVAL, "%s: row %lld is all padding; valid: at least one token", path,
                            (long long)row);
    }
    return CLV_OK;
}

static clv_status read_tensors(clv_row_file *f, const clv_safetensors *file, const char *path, int64_t vocab,
                               int64_t label_offset, clv_error *err)
{
    enum { IDS, LABELS, MASK, TENSORS };
    static const char *const names[TENSORS] = {"ids", "labels", "mask"};
    const clv_safetensor *of[TENSORS] = {NULL};
    CLV_TRY(clv_safetensors_find(&of[IDS], file, names[IDS], err));
    for (int64_t i = 0; i < clv_safetensors_count(file); i++) {
        const clv_safetensor *t = clv_safetensors_at(file, i);
        int k = 0;
        while (k < TENSORS && strcmp(t->name, names[k]) != 0)
            k++;
        if (k == TENSORS)
            return clv_fail(err, CLV_EINVAL, "%s: unknown tensor '%.128s'; valid: ids, labels, mask", path, t->name);
        of[k] = t;
    }
    for (int k = 0; k < TENSORS; k++)
        if (of[k])
            CLV_TRY(check_tensor(f, of[k], path, err));
    vocab = vocab ? vocab : INT32_MAX;
    CLV_TRY(read_tensor(f, &f->ids, of[IDS], vocab, 0, path, err));
    if (of[MASK])
        CLV_TRY(read_mask(f, of[MASK], path, err));
    f->labelled = of[LABELS] != NULL;
    return f->labelled ? read_tensor(f, &f->labels, of[LABELS], vocab, CLV_IGNORE_INDEX, path, err)
                       : make_labels(f, path, label_offset, err);
}

clv_status clv_row_file_open(clv_row_file *out, const char *path, int64_t vocab, int64_t label_offset, clv_error *err)
{
    clv_row_file f = {0};
    clv_safetensors *file;
    CLV_TRY(clv_safetensors_open(&file, path, err));
    clv_status status = read_tensors(&f, file, path, vocab, label_offset, err);
    clv_safetensors_close(file);
    if (status == CLV_OK)
        *out = f;
    else
        clv_row_file_close(&f);
    return status;
}

void clv_row_file_close(clv_row_file *f)
{
    free(f->ids);
    free(f->labels);
    free(f->mask);
    *f = (clv_row_file){0};
}
