/* sharded_checkpoint.c - sharded checkpoint reader: presents the original files, assembles boxes from rank files,
 * verifies each part once.
 */
#include "io/checkpoint/sharded_checkpoint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files/file.h"
#include "tensor/box_copy.h"
#include "tensor/box_runs.h"

enum { PIECE_ELEMS = 1 << 18 };

/* A part's tensor in its rank file, and whether its checksum was verified. Two threads may both verify it, with the
 * same result. */
typedef struct stored_part {
    const clv_safetensor *stored;
    atomic_bool verified;
} stored_part;

/* An original file: the argument of the reader of its tensors. */
typedef struct original {
    const struct clv_sharded_checkpoint *shards;
    clv_safetensors *file;
    int64_t first; /* of the manifest's tensors */
} original;

struct clv_sharded_checkpoint {
    char *folder;
    clv_manifest manifest;
    clv_safetensors **ranks;
    original *originals;
    stored_part **parts; /* [tensor][part] */
};

clv_status clv_sharded_checkpoint_map(clv_sharded_checkpoint *s, clv_error *err)
{
    for (int64_t rank = 0; rank < s->manifest.n_ranks; rank++)
        CLV_TRY(clv_safetensors_map(s->ranks[rank], err));
    return CLV_OK;
}

const clv_manifest *clv_sharded_checkpoint_manifest(const clv_sharded_checkpoint *s)
{
    return &s->manifest;
}

clv_safetensors *clv_sharded_checkpoint_file(const clv_sharded_checkpoint *s, int i)
{
    return s->originals[i].file;
}

/* ---- reading ---- */

static clv_status damaged(const clv_sharded_checkpoint *s, const clv_manifest_tensor *t, const clv_manifest_part *part,
                          const char *what, clv_error *err)
{
    char name[CLV_RANK_FILE_SIZE];

    clv_rank_file_name(name, part->rank, s->manifest.n_ranks);
    return clv_fail(err, CLV_EFORMAT, "%s/%s: %.128s: %s", s->folder, name, t->name, what);
}

clv_status clv_tensor_checksum(char sum[CLV_CHECKSUM_SIZE], const clv_safetensor *stored, clv_error *err)
{
    size_t bytes = (size_t)(stored->end - stored->begin), chunk = PIECE_ELEMS * sizeof(float);
    char *buffer = malloc(chunk);
    clv_checksum *state = clv_checksum_new();
    clv_status status = buffer && state ? CLV_OK : clv_fail_memory(err, "a checksum", chunk);

    for (size_t at = 0; status == CLV_OK && at < bytes; at += chunk) {
        size_t n = bytes - at < chunk ? bytes - at : chunk;
        status = clv_safetensors_read_bytes(stored, at, n, buffer, err);
        if (status == CLV_OK)
            clv_checksum_add(state, buffer, n);
    }
    if (status == CLV_OK)
        clv_checksum_text(sum, state);
    clv_checksum_free(state);
    free(buffer);
    return status;
}

static clv_status verify(const clv_sharded_checkpoint *s, const clv_manifest_tensor *t, const clv_manifest_part *part,
                         stored_part *held, clv_error *err)
{
    char sum[CLV_CHECKSUM_SIZE];

    if (atomic_load(&held->verified))
        return CLV_OK;
    CLV_TRY(clv_tensor_checksum(sum, held->stored, err));
    if (strcmp(sum, part->checksum) != 0)
        return damaged(s, t, part, "its checksum differs from the manifest's: the file is damaged", err);
    atomic_store(&held->verified, true);
    return CLV_OK;
}

/* Copies `common`, which lies in both the part and `box`, to where it belongs in out, which holds `box`. */
static clv_status copy_intersection(const stored_part *held, const clv_shard *part, const clv_shard *box,
                                    const clv_shard *common, clv_dtype dtype, void *out, clv_error *err)
{
    int64_t elems = clv_shard_elems(common), done = 0, extent[CLV_MAX_RANK];
    CLV_FREED void *buffer = malloc((size_t)(elems < PIECE_ELEMS ? elems : PIECE_ELEMS) * clv_dtype_size(dtype));
    if (!buffer)
        return clv_fail_memory(err, "a read buffer", PIECE_ELEMS * sizeof(double));
    clv_shard piece;

    for (int d = 0; d < part->rank; d++)
        extent[d] = part->hi[d] - part->lo[d];
    while (clv_box_next_chunk(&piece, &done, common, PIECE_ELEMS)) {
        clv_shard within = piece;
        for (int d = 0; d < part->rank; d++) {
            within.lo[d] -= part->lo[d];
            within.hi[d] -= part->lo[d];
        }
        CLV_TRY(clv_safetensors_read_as(held->stored, part->rank, extent, &within, dtype, buffer, err));
        clv_box_copy(out, box, buffer, &piece, &piece, clv_dtype_size(dtype));
    }
    return CLV_OK;
}

/* A box of the manifest's view. */
static clv_status read_box(const clv_sharded_checkpoint *s, int64_t index, const clv_shard *box, clv_dtype dtype,
                           void *out, clv_error *err)
{
    const clv_manifest_tensor *t = &s->manifest.tensors[index];

    for (int64_t i = 0; i < t->n_parts; i++) {
        clv_shard common = clv_shard_intersect(box, &t->parts[i].box);
        if (clv_shard_elems(&common) == 0)
            continue;
        CLV_TRY(verify(s, t, &t->parts[i], &s->parts[index][i], err));
        CLV_TRY(copy_intersection(&s->parts[index][i], &t->parts[i].box, box, &common, dtype, out, err));
    }
    return CLV_OK;
}

/* A clv_tensor_reader. Another view than the manifest's has the same elements in the same order: its runs are ranges of
 * that. */
static clv_status read_tensor(const void *arg, const clv_safetensor *tensor, int rank, const int64_t *shape,
                              const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    const original *o = arg;
    int64_t index = o->first + (tensor - clv_safetensors_at(o->file, 0));
    const clv_tensor_placement *p = &o->shards->manifest.tensors[index].placement;
    char *at = out;

    if (rank == p->rank && memcmp(shape, p->view, (size_t)rank * sizeof *shape) == 0)
        return read_box(o->shards, index, box, dtype, out, err);
    for (clv_box_runs runs = clv_box_runs_begin(shape, box); !runs.done; clv_box_runs_next(&runs)) {
        int64_t first = runs.first, last = runs.first + runs.run_elems;
        clv_shard range;
        while (clv_box_next_in_range(&range, &first, last, p->rank, p->view)) {
            CLV_TRY(read_box(o->shards, index, &range, dtype, at, err));
            at += (size_t)clv_shard_elems(&range) * clv_dtype_size(dtype);
        }
    }
    return CLV_OK;
}

/* ---- opening ---- */

static clv_status open_rank(clv_sharded_checkpoint *s, int64_t rank, clv_error *err)
{
    const clv_manifest_rank *expected = &s->manifest.ranks[rank];
    char name[CLV_RANK_FILE_SIZE], path[CLV_PATH_SIZE], sum[CLV_CHECKSUM_SIZE];
    CLV_FREED char *text = NULL;
    size_t size = 0;

    clv_rank_file_name(name, rank, s->manifest.n_ranks);
    CLV_TRY(clv_path_join(path, s->folder, name, err));
    CLV_TRY(clv_file_check_inside(s->folder, path, err));
    CLV_TRY(clv_safetensors_open(&s->ranks[rank], path, err));
    if (clv_safetensors_file_bytes(s->ranks[rank]) != expected->bytes)
        return clv_fail(err, CLV_EFORMAT, "%s: %llu bytes, %s says %llu", path,
                        (unsigned long long)clv_safetensors_file_bytes(s->ranks[rank]), clv_manifest_name,
                        (unsigned long long)expected->bytes);
    CLV_TRY(clv_safetensors_header(&text, &size, s->ranks[rank], err));
    clv_checksum_of(sum, text, size);
    if (strcmp(sum, expected->header) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: its header is not the one that %s was written with: damaged", path,
                        clv_manifest_name);
    return CLV_OK;
}

/* The tensors of an original file must be those that the manifest lists for it. */
static clv_status match_file(const clv_sharded_checkpoint *s, int i, clv_error *err)
{
    const original *o = &s->originals[i];

    for (int64_t k = 0; k < clv_safetensors_count(o->file); k++) {
        const clv_safetensor *header = clv_safetensors_at(o->file, k);
        const clv_manifest_tensor *listed = &s->manifest.tensors[o->first + k];
        const clv_tensor_placement *p = &listed->placement;
        int64_t elems =
            header->readable ? clv_shape_elems(header->rank, header->shape) : (int64_t)(header->end - header->begin);
        bool same = o->first + k < s->manifest.n_tensors && listed->file == i &&
                    strcmp(listed->name, header->name) == 0 && strcmp(listed->dtype, header->dtype_name) == 0 &&
                    listed->rank == header->rank &&
                    memcmp(listed->shape, header->shape, (size_t)header->rank * sizeof *header->shape) == 0 &&
                    clv_shape_elems(p->rank, p->view) == elems;
        if (!same)
            return clv_fail(err, CLV_EFORMAT, "%s/%s: %.128s: \"tensors\" does not agree with the header of %.64s",
                            s->folder, clv_manifest_name, header->name, s->manifest.files[i].name);
    }
    return CLV_OK;
}

static clv_status open_source_headers(clv_sharded_checkpoint *s, clv_error *err)
{
    int64_t first = 0;

    for (int i = 0; i < s->manifest.n_files; i++) {
        const clv_manifest_file *file = &s->manifest.files[i];
        original *o = &s->originals[i];
        char where[512];
        snprintf(where, sizeof where, "%s/%s: %.64s", s->folder, clv_manifest_name, file->name);
        *o = (original){.shards = s, .first = first};
        CLV_TRY(clv_safetensors_open_header(&o->file, where, file->header, strlen(file->header), file->data_bytes,
                                            read_tensor, o, err));
        first += clv_safetensors_count(o->file);
        if (first > s->manifest.n_tensors)
            return clv_fail(err, CLV_EFORMAT, "%s: has more tensors than \"tensors\" lists", where);
        CLV_TRY(match_file(s, i, err));
    }
    if (first != s->manifest.n_tensors)
        return clv_fail(err, CLV_EFORMAT, "%s/%s: \"tensors\" lists %lld, the files have %lld", s->folder,
                        clv_manifest_name, (long long)s->manifest.n_tensors, (long long)first);
    return CLV_OK;
}

static clv_status find_parts(clv_sharded_checkpoint *s, int64_t index, clv_error *err)
{
    const clv_manifest_tensor *t = &s->manifest.tensors[index];

    s->parts[index] = calloc((size_t)t->n_parts + 1, sizeof **s->parts);
    if (s->parts[index] == NULL)
        return clv_fail_memory(err, t->name, (size_t)t->n_parts * sizeof **s->parts);
    for (int64_t i = 0; i < t->n_parts; i++) {
        const clv_manifest_part *part = &t->parts[i];
        const clv_safetensor *stored = NULL;
        int64_t elems = clv_shard_elems(&part->box);
        CLV_TRY(clv_safetensors_find(&stored, s->ranks[part->rank], t->name, err));
        if (!stored->readable || clv_shape_elems(stored->rank, stored->shape) != elems)
            return damaged(s, t, part, "is not of the size that the manifest says", err);
        s->parts[index][i].stored = stored;
    }
    return CLV_OK;
}

/* A part has its tensor's dtype, or u8 if the library does not support that. */
static clv_status check_dtypes(const clv_sharded_checkpoint *s, int file, clv_error *err)
{
    const original *o = &s->originals[file];

    for (int64_t k = 0; k < clv_safetensors_count(o->file); k++) {
        const clv_safetensor *header = clv_safetensors_at(o->file, k);
        const clv_manifest_tensor *t = &s->manifest.tensors[o->first + k];
        clv_dtype dtype = header->readable ? header->dtype : CLV_U8;
        for (int64_t i = 0; i < t->n_parts; i++)
            if (s->parts[o->first + k][i].stored->dtype != dtype)
                return damaged(s, t, &t->parts[i], "is not of the dtype that the manifest says", err);
    }
    return CLV_OK;
}

static clv_status open_all(clv_sharded_checkpoint *s, const char *folder, clv_error *err)
{
    s->folder = strdup(folder);
    if (s->folder == NULL)
        return clv_fail_memory(err, folder, strlen(folder));
    CLV_TRY(clv_manifest_read(&s->manifest, folder, err));
    s->ranks = calloc((size_t)s->manifest.n_ranks + 1, sizeof(clv_safetensors *));
    s->originals = calloc((size_t)s->manifest.n_files + 1, sizeof *s->originals);
    s->parts = calloc((size_t)s->manifest.n_tensors + 1, sizeof *s->parts);
    if (s->ranks == NULL || s->originals == NULL || s->parts == NULL)
        return clv_fail_memory(err, folder, (size_t)s->manifest.n_tensors * sizeof *s->parts);
    CLV_TRY(open_source_headers(s, err));
    for (int64_t rank = 0; rank < s->manifest.n_ranks; rank++)
        CLV_TRY(open_rank(s, rank, err));
    for (int64_t i = 0; i < s->manifest.n_tensors; i++)
        CLV_TRY(find_parts(s, i, err));
    for (int i = 0; i < s->manifest.n_files; i++)
        CLV_TRY(check_dtypes(s, i, err));
    return CLV_OK;
}

clv_status clv_sharded_checkpoint_open(clv_sharded_checkpoint **out, const char *folder, clv_error *err)
{
    clv_sharded_checkpoint *s = calloc(1, sizeof *s);

    if (s == NULL)
        return clv_fail_memory(err, folder, sizeof *s);
    clv_status status = open_all(s, folder, err);
    if (status == CLV_OK)
        *out = s;
    else
        clv_sharded_checkpoint_close(s);
    return status;
}

void clv_sharded_checkpoint_close(clv_sharded_checkpoint *s)
{
    if (s == NULL)
        return;
    for (int64_t i = 0; s->ranks != NULL && i < s->manifest.n_ranks; i++)
        clv_safetensors_close(s->ranks[i]);
    for (int i = 0; s->originals != NULL && i < s->manifest.n_files; i++)
        clv_safetensors_close(s->originals[i].file);
    for (int64_t i = 0; s->parts != NULL && i < s->manifest.n_tensors; i++)
        free(s->parts[i]);
    free(s->ranks);
    free(s->originals);
    free(s->parts);
    clv_manifest_free(&s->manifest);
    free(s->folder);
    free(s);
}
