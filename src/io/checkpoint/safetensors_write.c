/* safetensors_write.c - safetensors writer: header first, then boxes in any order and from several processes,
 * committed atomically.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint/safetensors.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "tensor/box_runs.h"

struct clv_safetensors_writer {
    clv_atomic_file file;
    clv_tensor_spec *specs; /* names are not kept */
    uint64_t *begin;        /* [n + 1] bytes of the file */
    int64_t n;
    _Atomic uint64_t missing; /* bytes not written yet */
    atomic_bool failed;
};

static const char *const format_names[] = {
#define NAME(code, name, bytes, safetensors) safetensors,
    CLV_DTYPE_TABLE(NAME)
#undef NAME
};

static clv_status spec_bytes(uint64_t *out, const clv_tensor_spec *spec, clv_error *err)
{
    uint64_t bytes = clv_dtype_size(spec->dtype);

    for (int d = 0; d < spec->rank; d++)
        if (spec->shape[d] < 0 || __builtin_mul_overflow(bytes, (uint64_t)spec->shape[d], &bytes) ||
            bytes > INT64_MAX / 2)
            return clv_fail(err, CLV_ELIMIT, "%s: the shape is negative or too large to write", spec->name);
    *out = bytes;
    return CLV_OK;
}

/* Fills begin[] relative to the data. */
static clv_status assign_offsets(clv_safetensors_writer *w, clv_error *err)
{
    for (int64_t i = 0; i < w->n; i++) {
        uint64_t bytes = 0;
        CLV_TRY(spec_bytes(&bytes, &w->specs[i], err));
        if (__builtin_add_overflow(w->begin[i], bytes, &w->begin[i + 1]) || w->begin[i + 1] > INT64_MAX / 2)
            return clv_fail(err, CLV_ELIMIT, "%s: the file would be too large", w->specs[i].name);
    }
    w->missing = w->begin[w->n];
    return CLV_OK;
}

static json_t *entry_of(const clv_safetensors_writer *w, int64_t i)
{
    const clv_tensor_spec *spec = &w->specs[i];
    json_t *shape = json_array();

    for (int d = 0; d < spec->rank; d++)
        json_array_append_new(shape, json_integer(spec->shape[d]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", format_names[spec->dtype], "shape", shape, "data_offsets",
                     (json_int_t)w->begin[i], (json_int_t)w->begin[i + 1]);
}

static clv_status add_notes(json_t *header, const clv_metadata_entry *notes, int n_notes, clv_error *err)
{
    /* transformers refuses files that do not say which framework they are for. */
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    if (json_object_set_new(header, "__metadata__", metadata) != 0)
        return clv_fail_memory(err, "a safetensors header", 0);
    for (int i = 0; i < n_notes; i++)
        if (json_object_set_new(metadata, notes[i].key, json_string(notes[i].text)) != 0)
            return clv_fail(err, CLV_EINVAL, "note \"%.128s\" is not UTF-8, or memory is out", notes[i].key);
    return CLV_OK;
}

static clv_status add_tensors(json_t *header, const clv_safetensors_writer *w, clv_error *err)
{
    for (int64_t i = 0; i < w->n; i++) {
        const char *name = w->specs[i].name;
        if (json_object_get(header, name) != NULL)
            return clv_fail(err, CLV_EINVAL, "tensor name \"%.128s\" is used twice, or reserved", name);
        if (json_object_set_new(header, name, entry_of(w, i)) != 0)
            return clv_fail(err, CLV_EINVAL, "tensor name \"%.128s\" is not UTF-8, or memory is out", name);
    }
    return CLV_OK;
}

static size_t padded_size(const char *text)
{
    return (strlen(text) + 7) / 8 * 8;
}

/* Writes length and header, padded with spaces so that data begins at a multiple of 8. */
static clv_status write_header(clv_safetensors_writer *w, const char *text, clv_error *err)
{
    static const char spaces[] = "       ";
    size_t size = strlen(text), padded = padded_size(text);
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    CLV_TRY(clv_atomic_file_write(&w->file, length, sizeof length, 0, err));
    CLV_TRY(clv_atomic_file_write(&w->file, text, size, 8, err));
    return clv_atomic_file_write(&w->file, spaces, padded - size, 8 + size, err);
}

/* The caller frees *out. */
static clv_status make_header(char **out, clv_safetensors_writer *w, const char *path, const clv_metadata_entry *notes,
                              int n_notes, clv_error *err)
{
    json_t *header = json_object();
    char *text = NULL;
    clv_status status = assign_offsets(w, err);

    if (status == CLV_OK)
        status = add_notes(header, notes, n_notes, err);
    if (status == CLV_OK)
        status = add_tensors(header, w, err);
    if (status == CLV_OK && (text = json_dumps(header, JSON_COMPACT)) == NULL)
        status = clv_fail_memory(err, "a safetensors header", 0);
    if (status == CLV_OK && strlen(text) > CLV_SAFETENSORS_HEADER_MAX)
        status = clv_fail(err, CLV_ELIMIT, "%s: a header of %zu bytes; safetensors may have %d", path, strlen(text),
                          CLV_SAFETENSORS_HEADER_MAX);
    json_decref(header);
    if (status == CLV_OK)
        *out = text;
    else
        free(text);
    return status;
}

/* number: id of the file that another process has created; -1: creates one. */
static clv_status start(clv_safetensors_writer *w, const char *path, const clv_metadata_entry *notes, int n_notes,
                        int number, clv_error *err)
{
    CLV_FREED char *text = NULL;
    CLV_TRY(make_header(&text, w, path, notes, n_notes, err));

    if (number >= 0)
        CLV_TRY(clv_atomic_file_attach(&w->file, path, number, err));
    else
        CLV_TRY(clv_atomic_file_open(&w->file, path, err));
    if (number < 0)
        CLV_TRY(write_header(w, text, err));
    for (int64_t i = 0; i <= w->n; i++)
        w->begin[i] += 8 + padded_size(text);
    return CLV_OK;
}

clv_status clv_safetensors_make_header(char **text, uint64_t *data_bytes, const clv_tensor_spec *specs, int64_t n,
                                       clv_error *err)
{
    clv_safetensors_writer w = {.n = n, .specs = (clv_tensor_spec *)specs};

    w.begin = calloc((size_t)n + 1, sizeof *w.begin);
    if (w.begin == NULL)
        return clv_fail_memory(err, "a safetensors header", (size_t)n * sizeof *w.begin);
    clv_status status = make_header(text, &w, "a header", NULL, 0, err);
    *data_bytes = w.begin[n];
    free(w.begin);
    return status;
}

clv_status clv_safetensors_create(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs,
                                  int64_t n, clv_error *err)
{
    return clv_safetensors_create_with_metadata(out, path, specs, n, NULL, 0, err);
}

static clv_status begin(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs, int64_t n,
                        const clv_metadata_entry *notes, int n_notes, int number, clv_error *err)
{
    clv_safetensors_writer *w = calloc(1, sizeof *w);
    clv_status status;

    if (w == NULL)
        return clv_fail_memory(err, path, sizeof *w);
    w->file = (clv_atomic_file){.fd = -1, .pipe_fd = -1};
    w->n = n;
    w->specs = calloc((size_t)n + 1, sizeof *w->specs);
    w->begin = calloc((size_t)n + 1, sizeof *w->begin);
    if (w->specs == NULL || w->begin == NULL) {
        clv_safetensors_abort(w);
        return clv_fail_memory(err, path, (size_t)n * sizeof *w->specs);
    }
    memcpy(w->specs, specs, (size_t)n * sizeof *specs);
    status = start(w, path, notes, n_notes, number, err);
    for (int64_t i = 0; i < n; i++)
        w->specs[i].name = NULL; /* owned by the caller, who may free it from here on */
    if (status != CLV_OK)
        clv_safetensors_abort(w);
    else
        *out = w;
    return status;
}

clv_status clv_safetensors_create_with_metadata(clv_safetensors_writer **out, const char *path,
                                                const clv_tensor_spec *specs, int64_t n,
                                                const clv_metadata_entry *notes, int n_notes, clv_error *err)
{
    return begin(out, path, specs, n, notes, n_notes, -1, err);
}

int clv_safetensors_writer_number_or_negative(const clv_safetensors_writer *w)
{
    return clv_atomic_file_number_or_negative(&w->file);
}

clv_status clv_safetensors_attach(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs,
                                  int64_t n, int number, clv_error *err)
{
    return begin(out, path, specs, n, NULL, 0, number, err);
}

clv_status clv_safetensors_write_as(clv_safetensors_writer *w, int64_t i, int rank, const int64_t *shape,
                                    const clv_shard *box, const void *data, clv_error *err)
{
    const clv_tensor_spec *spec = &w->specs[i];
    size_t size = clv_dtype_size(spec->dtype);
    const char *at = data;

    if (clv_shape_elems(rank, shape) != clv_shape_elems(spec->rank, spec->shape) || !clv_box_within(box, rank, shape))
        return clv_fail(err, CLV_ESHAPE, "%s: the box to write is not within tensor %lld", w->file.path, (long long)i);
    for (clv_box_runs runs = clv_box_runs_begin(shape, box); !runs.done; clv_box_runs_next(&runs)) {
        size_t bytes = (size_t)runs.run_elems * size;
        clv_status status = clv_atomic_file_write(&w->file, at, bytes, w->begin[i] + (uint64_t)runs.first * size, err);
        if (status != CLV_OK) {
            atomic_store(&w->failed, true);
            return status;
        }
        atomic_fetch_sub(&w->missing, bytes);
        at += bytes;
    }
    return CLV_OK;
}

clv_status clv_safetensors_write(clv_safetensors_writer *w, int64_t i, const clv_shard *box, const void *data,
                                 clv_error *err)
{
    const clv_tensor_spec *spec = &w->specs[i];
    clv_shard whole = clv_box_whole(spec->rank, spec->shape);

    return clv_safetensors_write_as(w, i, spec->rank, spec->shape, box != NULL ? box : &whole, data, err);
}

static void free_writer(clv_safetensors_writer *w)
{
    free(w->specs);
    free(w->begin);
    free(w);
}

clv_status clv_safetensors_detach(clv_safetensors_writer *w, int64_t *bytes, clv_error *err)
{
    bool failed = atomic_load(&w->failed);
    uint64_t all = w->begin[w->n] - w->begin[0];

    *bytes = (int64_t)(all - atomic_load(&w->missing));
    clv_status status = failed ? clv_fail(err, CLV_EIO, "%s: an earlier write failed", w->file.path) : CLV_OK;
    if (failed)
        clv_atomic_file_abort(&w->file);
    else
        status = clv_atomic_file_detach(&w->file, err);
    free_writer(w);
    return status;
}

void clv_safetensors_add_written_bytes(clv_safetensors_writer *w, int64_t bytes)
{
    atomic_fetch_sub(&w->missing, (uint64_t)bytes);
}

clv_status clv_safetensors_commit(clv_safetensors_writer *w, clv_error *err)
{
    uint64_t missing = atomic_load(&w->missing);
    clv_status status;

    if (atomic_load(&w->failed))
        status = clv_fail(err, CLV_EIO, "%s: an earlier write failed; the file was not replaced", w->file.path);
    else if (missing != 0)
        status = clv_fail(err, CLV_EINVAL, "%s: elements were not written, or written twice (%lld bytes)", w->file.path,
                          (long long)missing);
    else
        status = CLV_OK;
    if (status == CLV_OK)
        status = clv_atomic_file_commit(&w->file, err);
    else
        clv_atomic_file_abort(&w->file);
    free_writer(w);
    return status;
}

void clv_safetensors_abort(clv_safetensors_writer *w)
{
    if (w == NULL)
        return;
    clv_atomic_file_abort(&w->file);
    free_writer(w);
}
