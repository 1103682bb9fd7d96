/* sharded_checkpoint_write.c - sharded checkpoint writer: each rank's file, then the manifest; several processes can
 * share the work.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint/sharded_checkpoint.h"
#include "io/files/file.h"
#include "tensor/box_runs.h"

enum { PIECE_BYTES = 4 << 20 };

/* A checkpoint that is being written as rank files. */
struct clv_sharded_writer {
    char *folder;
    const clv_safetensors *const *files;
    clv_sharded_write_options options;
    clv_manifest manifest;
    const clv_safetensor **source; /* of each of the manifest's tensors */
    char *buffer;                  /* PIECE_BYTES */
    clv_checksum *sum;
    int64_t done, total; /* bytes */
};

typedef clv_sharded_writer writing;

/* ---- the table of contents ---- */

/* Checks that names differ: a rank file holds tensors of all files. */
static clv_status check_names(const writing *w, clv_error *err)
{
    size_t n = (size_t)w->manifest.n_tensors;
    CLV_FREED const clv_safetensor **sorted = malloc((n + 1) * sizeof(const clv_safetensor *));

    if (sorted == NULL)
        return clv_fail_memory(err, "names of tensors", n * sizeof(const clv_safetensor *));
    memcpy(sorted, w->source, n * sizeof(const clv_safetensor *));
    qsort(sorted, n, sizeof(const clv_safetensor *), clv_safetensors_compare_names);
    for (size_t i = 1; i < n; i++)
        if (clv_safetensors_compare_names(&sorted[i - 1], &sorted[i]) == 0)
            return clv_fail(err, CLV_EUNSUPPORTED, "two of the files have a tensor %.128s; valid: names that differ",
                            sorted[i]->name);
    return CLV_OK;
}

static clv_status add_tensor(writing *w, const clv_safetensor *source, int file, clv_error *err)
{
    clv_manifest *m = &w->manifest;
    clv_manifest_tensor *t = &m->tensors[m->n_tensors];

    *t = (clv_manifest_tensor){.name = source->name, .dtype = source->dtype_name, .file = file, .rank = source->rank};
    memcpy(t->shape, source->shape, sizeof t->shape);
    t->placement = source->readable ? w->options.placements[m->n_tensors] : clv_placement_on_first_rank(source);
    w->source[m->n_tensors++] = source;
    w->total += (int64_t)(source->end - source->begin);
    return clv_manifest_assign_parts(t, &m->mesh, source->name, err);
}

static clv_status collect_tensors(writing *w, clv_error *err)
{
    size_t n = 0;

    for (int i = 0; i < w->manifest.n_files; i++)
        n += (size_t)clv_safetensors_count(w->files[i]);
    w->manifest.tensors = calloc(n + 1, sizeof *w->manifest.tensors);
    w->source = calloc(n + 1, sizeof(const clv_safetensor *));
    if (w->manifest.tensors == NULL || w->source == NULL)
        return clv_fail_memory(err, "a manifest", n * sizeof *w->manifest.tensors);
    for (int i = 0; i < w->manifest.n_files; i++)
        for (int64_t k = 0; k < clv_safetensors_count(w->files[i]); k++)
            CLV_TRY(add_tensor(w, clv_safetensors_at(w->files[i], k), i, err));
    return check_names(w, err);
}

static clv_status collect_files(writing *w, const char *const *names, int n, clv_error *err)
{
    clv_manifest *m = &w->manifest;

    m->n_ranks = clv_mesh_rank_count(&m->mesh);
    if (m->n_ranks > CLV_MAX_SHARD_RANKS)
        return clv_fail(err, CLV_ELIMIT, "%lld ranks; valid: at most %d files", (long long)m->n_ranks,
                        CLV_MAX_SHARD_RANKS);
    m->files = calloc((size_t)n + 1, sizeof *m->files);
    m->ranks = calloc((size_t)m->n_ranks, sizeof *m->ranks);
    if (m->files == NULL || m->ranks == NULL)
        return clv_fail_memory(err, "a manifest", (size_t)m->n_ranks * sizeof *m->ranks);
    for (; m->n_files < n; m->n_files++) {
        clv_manifest_file *file = &m->files[m->n_files];
        char *header = NULL;
        size_t size = 0;
        CLV_TRY(clv_safetensors_header(&header, &size, w->files[m->n_files], err));
        *file = (clv_manifest_file){names[m->n_files], header, clv_safetensors_data_bytes(w->files[m->n_files])};
    }
    return CLV_OK;
}

/* ---- rank files ---- */

/* Copies a part in pieces, and computes its checksum. */
static clv_status write_part(writing *w, clv_safetensors_writer *writer, int64_t index, const clv_safetensor *source,
                             const clv_tensor_placement *p, clv_manifest_part *part, clv_error *err)
{
    clv_dtype dtype = source->readable ? source->dtype : CLV_U8;
    int64_t most = PIECE_BYTES / (int64_t)clv_dtype_size(dtype), done = 0, extent[CLV_MAX_RANK];
    clv_shard piece;

    for (int d = 0; d < p->rank; d++)
        extent[d] = part->box.hi[d] - part->box.lo[d];
    clv_checksum_reset(w->sum);
    while (clv_box_next_chunk(&piece, &done, &part->box, most)) {
        size_t bytes = (size_t)clv_shard_elems(&piece) * clv_dtype_size(dtype);
        clv_shard within = piece;
        if (source->readable)
            CLV_TRY(clv_safetensors_read_as(source, p->rank, p->view, &piece, dtype, w->buffer, err));
        else
            CLV_TRY(clv_safetensors_read_bytes(source, (uint64_t)piece.lo[0], bytes, w->buffer, err));
        for (int d = 0; d < p->rank; d++) {
            within.lo[d] -= part->box.lo[d];
            within.hi[d] -= part->box.lo[d];
        }
        CLV_TRY(clv_safetensors_write_as(writer, index, p->rank, extent, &within, w->buffer, err));
        clv_checksum_add(w->sum, w->buffer, bytes);
        w->done += (int64_t)bytes;
        if (w->options.progress != NULL)
            w->options.progress(w->options.progress_arg, w->done, w->total);
    }
    clv_checksum_text(part->checksum, w->sum);
    return CLV_OK;
}

static int by_rank(const void *a, const void *b)
{
    const clv_manifest_part *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

clv_manifest_part *clv_manifest_part_of(const clv_manifest_tensor *t, int64_t rank)
{
    if (t->n_parts == 0)
        return NULL;
    return bsearch(&(clv_manifest_part){.rank = rank}, t->parts, (size_t)t->n_parts, sizeof *t->parts, by_rank);
}

static int64_t specs_of(clv_tensor_spec *specs, writing *w, int64_t rank)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->manifest.n_tensors; i++) {
        clv_manifest_tensor *t = &w->manifest.tensors[i];
        const clv_manifest_part *part = clv_manifest_part_of(t, rank);
        if (part == NULL)
            continue;
        specs[n] = (clv_tensor_spec){.name = t->name, .dtype = w->source[i]->readable ? w->source[i]->dtype : CLV_U8};
        specs[n].rank = clv_manifest_part_shape(specs[n].shape, t, part);
        n++;
    }
    return n;
}

static clv_status write_parts(writing *w, clv_safetensors_writer *writer, int64_t rank, clv_error *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->manifest.n_tensors; i++) {
        clv_manifest_tensor *t = &w->manifest.tensors[i];
        clv_manifest_part *part = clv_manifest_part_of(t, rank);
        if (part != NULL)
            CLV_TRY(write_part(w, writer, n++, w->source[i], &t->placement, part, err));
    }
    return CLV_OK;
}

/* Reads back the size and header checksum of a rank file for the manifest. */
static clv_status checksum_rank_file(clv_manifest_rank *rank, const char *path, clv_error *err)
{
    clv_safetensors *file;
    char *text = NULL;
    size_t size = 0;

    CLV_TRY(clv_safetensors_open(&file, path, err));
    clv_status status = clv_safetensors_header(&text, &size, file, err);
    if (status == CLV_OK) {
        clv_checksum_of(rank->header, text, size);
        rank->bytes = clv_safetensors_file_bytes(file);
    }
    free(text);
    clv_safetensors_close(file);
    return status;
}

static clv_status write_rank(writing *w, int64_t rank, clv_tensor_spec *specs, clv_error *err)
{
    char name[CLV_RANK_FILE_SIZE], path[CLV_PATH_SIZE];
    clv_safetensors_writer *writer;
    int64_t n = specs_of(specs, w, rank);

    clv_rank_file_name(name, rank, w->manifest.n_ranks);
    CLV_TRY(clv_path_join(path, w->folder, name, err));
    CLV_TRY(clv_safetensors_create(&writer, path, specs, n, err));
    clv_status status = write_parts(w, writer, rank, err);
    if (status != CLV_OK) {
        clv_safetensors_abort(writer);
        return status;
    }
    CLV_TRY(clv_safetensors_commit(writer, err));
    return checksum_rank_file(&w->manifest.ranks[rank], path, err);
}

clv_status clv_sharded_writer_write_ranks(clv_sharded_writer *w, int64_t first, int64_t last, clv_error *err)
{
    clv_tensor_spec *specs = calloc((size_t)w->manifest.n_tensors + 1, sizeof *specs);
    clv_status status = CLV_OK;

    w->buffer = malloc(PIECE_BYTES);
    w->sum = clv_checksum_new();
    if (specs == NULL || w->buffer == NULL || w->sum == NULL)
        status = clv_fail_memory(err, "a rank's file", PIECE_BYTES);
    for (int64_t rank = first; status == CLV_OK && rank < last; rank++)
        status = write_rank(w, rank, specs, err);
    free(specs);
    free(w->buffer);
    clv_checksum_free(w->sum);
    w->buffer = NULL;
    w->sum = NULL;
    return status;
}

/* ---- all of it ---- */

clv_manifest *clv_sharded_writer_manifest(clv_sharded_writer *w)
{
    return &w->manifest;
}

clv_status clv_sharded_writer_write_manifest(const clv_sharded_writer *w, clv_error *err)
{
    return clv_manifest_write(&w->manifest, w->folder, err);
}

void clv_sharded_writer_free(clv_sharded_writer *w)
{
    if (w == NULL)
        return;
    for (int i = 0; i < w->manifest.n_files; i++)
        free((char *)w->manifest.files[i].header);
    clv_manifest_free(&w->manifest);
    free(w->source);
    free(w->folder);
    free(w);
}

clv_status clv_sharded_writer_new(clv_sharded_writer **out, const char *folder, const clv_safetensors *const *files,
                                  const char *const *names, int n, const clv_sharded_write_options *options,
                                  clv_error *err)
{
    writing *w = calloc(1, sizeof *w);

    if (w == NULL)
        return clv_fail_memory(err, folder, sizeof *w);
    w->files = files;
    w->options = *options;
    w->manifest.mesh = options->mesh;
    w->manifest.rules = options->rules;
    w->manifest.index = options->index;
    w->folder = strdup(folder);
    clv_status status =
        w->folder != NULL ? collect_files(w, names, n, err) : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = collect_tensors(w, err);
    if (status == CLV_OK)
        *out = w;
    else
        clv_sharded_writer_free(w);
    return status;
}

clv_status clv_sharded_checkpoint_write(const char *folder, const clv_safetensors *const *files,
                                        const char *const *names, int n, const clv_sharded_write_options *options,
                                        clv_error *err)
{
    clv_sharded_writer *w;

    CLV_TRY(clv_sharded_writer_new(&w, folder, files, names, n, options, err));
    clv_status status = clv_sharded_writer_write_ranks(w, 0, w->manifest.n_ranks, err);
    if (status == CLV_OK)
        status = clv_sharded_writer_write_manifest(w, err);
    clv_sharded_writer_free(w);
    return status;
}
