/* weights_convert.c - checkpoint conversion: merges a sharded checkpoint into plain safetensors files, or shards
 * plain ones.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint/weights.h"
#include "io/files/file.h"

enum { CHUNK_BYTES = 4 << 20 };

/* ---- one form: the files that it was made of ---- */

typedef struct merging {
    const char *folder;
    char *buffer; /* CHUNK_BYTES */
    int64_t done, total;
    clv_progress_callback *progress;
    void *progress_arg;
} merging;

static clv_status write_tensor(merging *m, const clv_atomic_file *to, const clv_safetensor *t, clv_error *err)
{
    uint64_t bytes = t->end - t->begin;

    for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t n = bytes - at < CHUNK_BYTES ? (size_t)(bytes - at) : CHUNK_BYTES;
        CLV_TRY(clv_safetensors_read_bytes(t, at, n, m->buffer, err));
        CLV_TRY(clv_atomic_file_write(to, m->buffer, n, t->begin + at, err));
        m->done += (int64_t)n;
        if (m->progress != NULL)
            m->progress(m->progress_arg, m->done, m->total);
    }
    return CLV_OK;
}

static clv_status write_content(merging *m, const clv_atomic_file *to, const clv_safetensors *file, clv_error *err)
{
    uint8_t length[8];
    char *header = NULL;
    size_t size = 0;

    CLV_TRY(clv_safetensors_header(&header, &size, file, err));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)size >> (8 * i));
    clv_status status = clv_atomic_file_write(to, length, sizeof length, 0, err);
    if (status == CLV_OK)
        status = clv_atomic_file_write(to, header, size, sizeof length, err);
    free(header);
    for (int64_t i = 0; status == CLV_OK && i < clv_safetensors_count(file); i++)
        status = write_tensor(m, to, clv_safetensors_at(file, i), err);
    return status;
}

static clv_status write_file(merging *m, const clv_safetensors *file, const char *name, clv_error *err)
{
    clv_atomic_file to = {.fd = -1};
    char path[CLV_PATH_SIZE];

    CLV_TRY(clv_path_join(path, m->folder, name, err));
    CLV_TRY(clv_atomic_file_open(&to, path, err));
    clv_status status = write_content(m, &to, file, err);
    if (status == CLV_OK)
        return clv_atomic_file_commit(&to, err);
    clv_atomic_file_abort(&to);
    return status;
}

static clv_status write_index(const merging *m, const clv_weights *w, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_FREED char *text = NULL;

    CLV_TRY(clv_weights_index_json(&text, w, err));
    if (text == NULL)
        return CLV_OK;
    CLV_TRY(clv_path_join(path, m->folder, clv_weights_index_name, err));
    return clv_file_write(path, text, strlen(text), err);
}

clv_status clv_weights_merge(const clv_weights *w, const char *folder, clv_progress_callback *progress,
                             void *progress_arg, clv_error *err)
{
    merging m = {.folder = folder, .progress = progress, .progress_arg = progress_arg, .buffer = malloc(CHUNK_BYTES)};
    clv_status status = m.buffer != NULL ? CLV_OK : clv_fail_memory(err, "a copy", CHUNK_BYTES);

    for (int i = 0; i < clv_weights_file_count(w); i++)
        m.total += (int64_t)clv_safetensors_data_bytes(clv_weights_file(w, i));
    for (int i = 0; status == CLV_OK && i < clv_weights_file_count(w); i++)
        status = write_file(&m, clv_weights_file(w, i), clv_weights_file_name(w, i), err);
    if (status == CLV_OK)
        status = write_index(&m, w, err);
    free(m.buffer);
    return status;
}

/* ---- the other: a file a rank ---- */

clv_status clv_weights_shard(const clv_weights *w, const char *folder, const clv_sharded_write_options *options,
                             clv_error *err)
{
    size_t n = (size_t)clv_weights_file_count(w);
    CLV_FREED const clv_safetensors **files = calloc(n + 1, sizeof(const clv_safetensors *));
    CLV_FREED const char **names = calloc(n + 1, sizeof(const char *));
    CLV_FREED char *index = NULL;
    clv_sharded_write_options with_index = *options;

    if (files == NULL || names == NULL)
        return clv_fail_memory(err, "the files", n * sizeof(const char *));
    CLV_TRY(clv_weights_index_json(&index, w, err));
    for (size_t i = 0; i < n; i++) {
        files[i] = clv_weights_file(w, (int)i);
        names[i] = clv_weights_file_name(w, (int)i);
    }
    with_index.index = index;
    return clv_sharded_checkpoint_write(folder, files, names, (int)n, &with_index, err);
}
