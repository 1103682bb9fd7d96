/* token_file_writer.c - token file writer: appends ids and loss mask, commits atomically; or to memory. Ids are written
 * in blocks; the loss mask stays in memory until the end.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory/grow.h"
#include "cleave/data.h"
#include "io/files/file.h"
#include "tokens/data/token_file.h"

enum { BLOCK = 1 << 20, NARROW = 1 << 16, BITS = 8 };

struct clv_token_writer {
    bool in_memory;
    uint8_t *image; /* the whole file, if in_memory */
    int64_t image_capacity;
    clv_atomic_file file;
    clv_token_file_header header;
    clv_checksum *sum;
    char *path;
    uint8_t *block, *mask;
    size_t used;           /* bytes of the block */
    int64_t mask_capacity; /* bytes */
    uint64_t written;      /* bytes of the file */
};

static void free_writer(clv_token_writer *w)
{
    clv_checksum_free(w->sum);
    free(w->path);
    free(w->block);
    free(w->mask);
    free(w->image);
    free(w);
}

static clv_status create(clv_token_writer **out, const char *path, const clv_token_writer_options *options,
                         bool in_memory, clv_error *err)
{
    static const char call[] = "clv_token_writer_create";
    clv_token_writer_options o;
    CLV_TRY(clv_require(out && path && options, call, "out, a path and options", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, call, err));
    if (o.vocab < 1 || o.vocab > INT32_MAX || o.end_id < -1 || o.end_id >= o.vocab)
        return clv_fail(err, CLV_EINVAL, "a vocabulary of %lld and end id %lld; valid: 1 to %d, and -1 or an id",
                        (long long)o.vocab, (long long)o.end_id, INT32_MAX);
    clv_token_writer *w = calloc(1, sizeof *w);
    if (!w)
        return clv_fail_memory(err, path, sizeof *w);
    w->header = (clv_token_file_header){
        .width = o.vocab <= NARROW ? 2 : 4, .vocab = o.vocab, .end_id = o.end_id, .has_loss_mask = o.has_loss_mask};
    w->written = CLV_TOKEN_FILE_HEADER_SIZE;
    w->in_memory = in_memory;
    w->sum = clv_checksum_new();
    w->path = strdup(path);
    w->block = malloc(BLOCK);
    clv_status status = w->sum && w->path && w->block ? CLV_OK : clv_fail_memory(err, path, BLOCK);
    if (status == CLV_OK && !in_memory)
        status = clv_atomic_file_open(&w->file, path, err);
    if (status == CLV_OK)
        *out = w;
    else
        free_writer(w);
    return status;
}

clv_status clv_token_writer_create(clv_token_writer **out, const char *path, const clv_token_writer_options *options,
                                   clv_error *err)
{
    return create(out, path, options, false, err);
}

clv_status clv_token_writer_create_memory(clv_token_writer **out, const char *path,
                                          const clv_token_writer_options *options, clv_error *err)
{
    return create(out, path, options, true, err);
}

static clv_status write_at(clv_token_writer *w, const void *bytes, size_t size, uint64_t at, clv_error *err)
{
    if (!w->in_memory)
        return clv_atomic_file_write(&w->file, bytes, size, at, err);
    CLV_TRY(clv_grow(&w->image, &w->image_capacity, (int64_t)(at + size), 1, w->path, err));
    memcpy(w->image + at, bytes, size);
    return CLV_OK;
}

static clv_status put(clv_token_writer *w, const void *bytes, size_t size, clv_error *err)
{
    CLV_TRY(write_at(w, bytes, size, w->written, err));
    clv_checksum_add(w->sum, bytes, size);
    w->written += size;
    return CLV_OK;
}

static clv_status flush(clv_token_writer *w, clv_error *err)
{
    size_t used = w->used;
    w->used = 0;
    return used > 0 ? put(w, w->block, used, err) : CLV_OK;
}

static clv_status mark(clv_token_writer *w, int64_t n, const uint8_t *loss_mask, clv_error *err)
{
    size_t first = (size_t)w->header.count, needed = (first + (size_t)n + BITS - 1) / BITS;
    int64_t before = w->mask_capacity;
    CLV_TRY(clv_grow(&w->mask, &w->mask_capacity, (int64_t)needed, 1, w->path, err));
    if (w->mask_capacity > before)
        memset(w->mask + before, 0, (size_t)(w->mask_capacity - before));
    for (size_t i = 0; i < (size_t)n; i++)
        if (!loss_mask || loss_mask[i])
            w->mask[(first + i) / BITS] |= (uint8_t)(1 << (first + i) % BITS);
    return CLV_OK;
}

clv_status clv_token_writer_add(clv_token_writer *w, const int32_t *ids, const uint8_t *loss_mask, int64_t n,
                                clv_error *err)
{
    CLV_TRY(clv_require(w && (ids || n == 0), __func__, "a writer and ids", err));
    CLV_TRY(clv_require_count(n, 0, __func__, "ids", err));
    if (loss_mask && !w->header.has_loss_mask)
        return clv_fail(err, CLV_EINVAL, "%s: a loss mask needs the option has_loss_mask", w->path);
    if (w->header.has_loss_mask)
        CLV_TRY(mark(w, n, loss_mask, err));
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->header.vocab)
            return clv_fail(err, CLV_EINVAL, "%s: id %d at %lld; the vocabulary is 0 to %lld", w->path, ids[i],
                            (long long)w->header.count + i, (long long)w->header.vocab - 1);
        uint32_t wide = htole32((uint32_t)ids[i]);
        uint16_t narrow = htole16((uint16_t)ids[i]);
        memcpy(w->block + w->used, w->header.width == 4 ? (const void *)&wide : &narrow, (size_t)w->header.width);
        w->used += (size_t)w->header.width;
        if (w->used == BLOCK)
            CLV_TRY(flush(w, err));
    }
    w->header.count += n;
    return CLV_OK;
}

static clv_status finish(clv_token_writer *w, clv_error *err)
{
    uint8_t header[CLV_TOKEN_FILE_HEADER_SIZE];
    if (w->header.count == 0)
        return clv_fail(err, CLV_EINVAL, "%s: would hold no id", w->path);
    CLV_TRY(flush(w, err));
    if (w->header.has_loss_mask)
        CLV_TRY(put(w, w->mask, ((size_t)w->header.count + BITS - 1) / BITS, err));
    clv_token_file_digest(w->header.digest, w->sum);
    clv_token_file_header_write(header, &w->header);
    return write_at(w, header, sizeof header, 0, err);
}

clv_status clv_token_writer_commit(clv_token_writer *w, clv_error *err)
{
    CLV_TRY(clv_require(w != NULL, __func__, "a writer", err));
    clv_status status = finish(w, err);
    if (status == CLV_OK)
        status = clv_atomic_file_commit(&w->file, err);
    else
        clv_atomic_file_abort(&w->file);
    free_writer(w);
    return status;
}

clv_status clv_token_writer_finish_memory(clv_token_writer *w, uint8_t **image, uint64_t *size, clv_error *err)
{
    clv_status status = finish(w, err);
    if (status == CLV_OK) {
        *image = w->image;
        *size = w->written;
        w->image = NULL;
    }
    free_writer(w);
    return status;
}

void clv_token_writer_abort(clv_token_writer *w)
{
    if (!w)
        return;
    if (!w->in_memory)
        clv_atomic_file_abort(&w->file);
    free_writer(w);
}
