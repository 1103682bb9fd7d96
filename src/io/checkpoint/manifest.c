/* manifest.c - manifest (cleave.json) of a sharded checkpoint: mesh, rank files, and each tensor's layout, parts and
 * checksums.
 */
#include "io/checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/json/checksummed_json.h"
#include "tensor/box_runs.h"

const char clv_manifest_name[] = "cleave.json";

static const char format_name[] = "cleave sharded checkpoint";
enum { MANIFEST_LIMIT = 1 << 29, MAX_FILES = 4096, WHERE_SIZE = 512 };
void clv_rank_file_name(char out[CLV_RANK_FILE_SIZE], int64_t rank, int64_t ranks)
{
    snprintf(out, CLV_RANK_FILE_SIZE, "rank-%05d-of-%05d.safetensors", (int)rank, (int)ranks);
}

void clv_manifest_free(clv_manifest *m)
{
    for (int64_t i = 0; m->tensors != NULL && i < m->n_tensors; i++)
        free(m->tensors[i].parts);
    free(m->tensors);
    free(m->files);
    free(m->ranks);
    json_decref(m->document);
    *m = (clv_manifest){0};
}

/* ---- boxes ---- */

clv_tensor_placement clv_placement_on_first_rank(const clv_safetensor *t)
{
    clv_tensor_placement whole = {.rank = t->readable ? t->rank : 1, .view = {(int64_t)(t->end - t->begin)}};

    if (t->readable)
        memcpy(whole.view, t->shape, sizeof whole.view);
    whole.layout = clv_layout_replicated(whole.rank);
    return whole;
}

/* The first rank that holds the same box: the one at 0 on every axis that the layout does not use, of the first
 * pipeline stage that holds the tensor. */
static int64_t first_holder(const clv_layout *layout, const clv_mesh *mesh, int64_t rank)
{
    int64_t first = 0;

    if (layout->stage_axis > 0)
        first = clv_mesh_with_coordinate(mesh, clv_mesh_whole_axis(mesh, layout->stage_axis - 1), first,
                                         __builtin_ctz(layout->stages));
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int i = 0; i < n; i++)
            first = clv_mesh_with_coordinate(mesh, axes[i], first, clv_mesh_coordinate(mesh, axes[i], rank));
    }
    return first;
}

/* The view must have the tensor's elements. Without any, it has no parts. */
static clv_status check_placement(int64_t *elems, const clv_tensor_placement *p, const clv_mesh *mesh,
                                  const char *where, clv_error *err)
{
    *elems = 1;
    for (int d = 0; d < p->rank; d++)
        if (p->view[d] < 0 || __builtin_mul_overflow(*elems, p->view[d], elems))
            return clv_fail(err, CLV_ESHAPE, "%s: the view's dimensions are negative, or their product overflows",
                            where);
    if (p->layout.rank != p->rank || clv_layout_is_partial(&p->layout))
        return clv_fail(err, CLV_EINVAL, "%s: the layout must be of the view's %d dimensions, and not partial", where,
                        p->rank);
    return clv_layout_check(&p->layout, mesh, p->view, err);
}

static int64_t blocks_of(const clv_layout *layout)
{
    int64_t blocks = 1;

    for (int d = 0; d < layout->rank; d++)
        blocks *= clv_layout_block_count(layout, d);
    return blocks;
}

clv_status clv_manifest_assign_parts(clv_manifest_tensor *t, const clv_mesh *mesh, const char *where, clv_error *err)
{
    const clv_tensor_placement *p = &t->placement;
    int64_t ranks = clv_mesh_rank_count(mesh), elems = 0;

    CLV_TRY(check_placement(&elems, p, mesh, where, err));
    int64_t blocks = blocks_of(&p->layout);
    t->n_parts = 0;
    t->parts = calloc((size_t)blocks, sizeof *t->parts);
    if (t->parts == NULL)
        return clv_fail_memory(err, where, (size_t)blocks * sizeof *t->parts);
    for (int64_t rank = 0; elems > 0 && rank < ranks; rank++) {
        clv_shard box = clv_layout_shard(&p->layout, mesh, p->view, rank);
        if (first_holder(&p->layout, mesh, rank) == rank && clv_shard_elems(&box) > 0)
            t->parts[t->n_parts++] = (clv_manifest_part){.rank = rank, .box = box};
    }
    return CLV_OK;
}

int clv_manifest_part_shape(int64_t *shape, const clv_manifest_tensor *t, const clv_manifest_part *part)
{
    const clv_tensor_placement *p = &t->placement;
    int v = 0, d = 0;

    /* A dimension of the tensor is a run of the view's. Bytes of a foreign dtype, or views of another kind, stay apart.
     */
    for (; d < t->rank && v < p->rank; d++) {
        int64_t whole = 1;
        shape[d] = 1;
        while (v < p->rank && (whole < t->shape[d] || (p->view[v] == 1 && d == t->rank - 1))) {
            whole *= p->view[v];
            shape[d] *= part->box.hi[v] - part->box.lo[v];
            v++;
        }
        if (whole != t->shape[d])
            break;
    }
    if (d == t->rank && v == p->rank)
        return t->rank;
    for (v = 0; v < p->rank; v++)
        shape[v] = part->box.hi[v] - part->box.lo[v];
    return p->rank;
}

/* ---- writing ---- */

static json_t *ints(int n, const int64_t *values)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *part_object(const clv_manifest_part *part)
{
    json_t *box = json_array();

    for (int d = 0; d < part->box.rank; d++)
        json_array_append_new(box, json_pack("[I,I]", (json_int_t)part->box.lo[d], (json_int_t)part->box.hi[d]));
    return json_pack("{s:I, s:o, s:s}", "rank", (json_int_t)part->rank, "box", box, "checksum", part->checksum);
}

static json_t *tensor_object(const clv_manifest_tensor *t, const clv_mesh *mesh)
{
    char layout[CLV_LAYOUT_TEXT];
    const clv_tensor_placement *p = &t->placement;
    json_t *parts = json_array();

    for (int64_t i = 0; i < t->n_parts; i++)
        json_array_append_new(parts, part_object(&t->parts[i]));
    clv_layout_print(layout, sizeof layout, &p->layout, mesh);
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:s, s:I, s:o}", "name", t->name, "file", t->file, "dtype", t->dtype,
                     "shape", ints(t->rank, t->shape), "view", ints(p->rank, p->view), "layout", layout, "copies",
                     (json_int_t)(clv_mesh_rank_count(mesh) / blocks_of(&p->layout)), "parts", parts);
}

static json_t *document_of(const clv_manifest *m)
{
    char mesh[CLV_MESH_TEXT];
    json_t *files = json_array(), *ranks = json_array(), *tensors = json_array();

    clv_mesh_print(mesh, sizeof mesh, &m->mesh);
    for (int i = 0; i < m->n_files; i++)
        json_array_append_new(files, json_pack("{s:s, s:s, s:I}", "name", m->files[i].name, "header",
                                               m->files[i].header, "data_bytes", (json_int_t)m->files[i].data_bytes));
    for (int64_t i = 0; i < m->n_ranks; i++) {
        char name[CLV_RANK_FILE_SIZE];
        clv_rank_file_name(name, i, m->n_ranks);
        json_array_append_new(ranks, json_pack("{s:s, s:I, s:s}", "file", name, "bytes", (json_int_t)m->ranks[i].bytes,
                                               "header_checksum", m->ranks[i].header));
    }
    for (int64_t i = 0; i < m->n_tensors; i++)
        json_array_append_new(tensors, tensor_object(&m->tensors[i], &m->mesh));
    return json_pack("{s:s, s:i, s:s, s:s, s:s?, s:o, s:o, s:o}", "format", format_name, "version",
                     CLV_MANIFEST_VERSION, "mesh", mesh, "rules", m->rules, "index", m->index, "files", files, "ranks",
                     ranks, "tensors", tensors);
}

clv_status clv_manifest_write(const clv_manifest *m, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, clv_manifest_name, err));
    json_auto_t *document = document_of(m);
    return clv_checksummed_json_write(path, document, MANIFEST_LIMIT, err);
}

/* ---- reading ---- */

/* A required list of at most `most` elements. */
static clv_status get_list(const json_t **out, const json_t *o, const char *key, size_t most, const char *where,
                           clv_error *err)
{
    CLV_TRY(clv_json_check_object(o, where, err));
    *out = json_object_get(o, key);
    if (!json_is_array(*out) || json_array_size(*out) > most)
        return clv_fail(err, CLV_EFORMAT, "%s: \"%s\" must be a list of at most %zu elements", where, key, most);
    return CLV_OK;
}

static clv_status read_files(clv_manifest *m, const char *path, clv_error *err)
{
    const json_t *list = NULL;

    CLV_TRY(get_list(&list, m->document, "files", MAX_FILES, path, err));
    m->files = calloc(json_array_size(list) + 1, sizeof *m->files);
    if (m->files == NULL)
        return clv_fail_memory(err, path, json_array_size(list) * sizeof *m->files);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        clv_manifest_file *file = &m->files[m->n_files];
        int64_t bytes = 0;
        CLV_TRY(clv_json_get_string(&file->name, o, "name", CLV_JSON_REQUIRED, path, err));
        CLV_TRY(clv_json_get_string(&file->header, o, "header", CLV_JSON_REQUIRED, path, err));
        CLV_TRY(clv_json_get_int(&bytes, o, "data_bytes", CLV_JSON_REQUIRED, 0, INT64_MAX / 2, path, err));
        if (!clv_is_plain_file_name(file->name) || strcmp(file->name, clv_manifest_name) == 0)
            return clv_fail(err, CLV_EFORMAT, "%s: \"%.128s\" is not the name of a file in the folder", path,
                            file->name);
        for (int k = 0; k < m->n_files; k++)
            if (strcmp(m->files[k].name, file->name) == 0)
                return clv_fail(err, CLV_EFORMAT, "%s: the file \"%.128s\" is listed twice", path, file->name);
        file->data_bytes = (uint64_t)bytes;
        m->n_files++;
    }
    return CLV_OK;
}

static clv_status read_ranks(clv_manifest *m, const char *path, clv_error *err)
{
    const json_t *list = NULL;

    CLV_TRY(get_list(&list, m->document, "ranks", CLV_MAX_SHARD_RANKS, path, err));
    m->n_ranks = (int64_t)json_array_size(list);
    if (m->n_ranks != clv_mesh_rank_count(&m->mesh))
        return clv_fail(err, CLV_EFORMAT, "%s: \"ranks\" lists %lld files, the mesh has %lld ranks", path,
                        (long long)m->n_ranks, (long long)clv_mesh_rank_count(&m->mesh));
    m->ranks = calloc((size_t)m->n_ranks + 1, sizeof *m->ranks);
    if (m->ranks == NULL)
        return clv_fail_memory(err, path, (size_t)m->n_ranks * sizeof *m->ranks);
    for (int64_t i = 0; i < m->n_ranks; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        const char *name = NULL;
        char expected[CLV_RANK_FILE_SIZE];
        int64_t bytes = 0;
        CLV_TRY(clv_json_get_string(&name, o, "file", CLV_JSON_REQUIRED, path, err));
        CLV_TRY(clv_json_get_int(&bytes, o, "bytes", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
        CLV_TRY(clv_checksummed_json_get_checksum(m->ranks[i].header, o, "header_checksum", path, err));
        clv_rank_file_name(expected, i, m->n_ranks);
        if (strcmp(name, expected) != 0)
            return clv_fail(err, CLV_EFORMAT, "%s: the file of rank %lld is \"%.64s\", valid is %s", path, (long long)i,
                            name, expected);
        m->ranks[i].bytes = (uint64_t)bytes;
    }
    return CLV_OK;
}

/* A part as written must equal the part that mesh and layout imply. */
static clv_status read_part(clv_manifest_part *part, const json_t *o, const char *where, clv_error *err)
{
    int64_t rank = 0;
    const json_t *box = NULL;

    CLV_TRY(clv_json_get_int(&rank, o, "rank", CLV_JSON_REQUIRED, 0, CLV_MAX_SHARD_RANKS, where, err));
    CLV_TRY(get_list(&box, o, "box", CLV_MAX_RANK, where, err));
    bool same = rank == part->rank && json_array_size(box) == (size_t)part->box.rank;
    for (int d = 0; same && d < part->box.rank; d++) {
        const json_t *range = json_array_get(box, (size_t)d), *lo = json_array_get(range, 0),
                     *hi = json_array_get(range, 1);
        same = json_array_size(range) == 2 && json_is_integer(lo) && json_is_integer(hi) &&
               json_integer_value(lo) == part->box.lo[d] && json_integer_value(hi) == part->box.hi[d];
    }
    if (!same)
        return clv_fail(err, CLV_EFORMAT, "%s: the part of rank %lld is not the one that mesh and layout give", where,
                        (long long)rank);
    return clv_checksummed_json_get_checksum(part->checksum, o, "checksum", where, err);
}

static clv_status read_placement(clv_tensor_placement *p, const json_t *o, const clv_mesh *mesh, const char *where,
                                 clv_error *err)
{
    const char *layout = NULL;
    clv_error fault = {0};

    CLV_TRY(clv_json_get_ints(p->view, &p->rank, CLV_MAX_RANK, o, "view", CLV_JSON_REQUIRED, 0, INT64_MAX, where, err));
    CLV_TRY(clv_json_get_string(&layout, o, "layout", CLV_JSON_REQUIRED, where, err));
    if (clv_layout_parse(&p->layout, layout, mesh, p->rank, &fault) != CLV_OK)
        return clv_fail(err, CLV_EFORMAT, "%s: \"layout\" does not fit the mesh: %.256s", where, fault.message);
    return CLV_OK;
}

static clv_status read_tensor(clv_manifest_tensor *t, const clv_manifest *m, const json_t *o, const char *where,
                              clv_error *err)
{
    const json_t *parts = NULL;
    clv_error fault = {0};
    int64_t file = 0, copies = 0;

    CLV_TRY(clv_json_get_int(&file, o, "file", CLV_JSON_REQUIRED, 0, m->n_files - 1, where, err));
    CLV_TRY(clv_json_get_int(&copies, o, "copies", CLV_JSON_REQUIRED, 1, CLV_MAX_SHARD_RANKS, where, err));
    CLV_TRY(clv_json_get_string(&t->dtype, o, "dtype", CLV_JSON_REQUIRED, where, err));
    CLV_TRY(
        clv_json_get_ints(t->shape, &t->rank, CLV_MAX_RANK, o, "shape", CLV_JSON_REQUIRED, 0, INT64_MAX, where, err));
    CLV_TRY(read_placement(&t->placement, o, &m->mesh, where, err));
    CLV_TRY(get_list(&parts, o, "parts", CLV_MAX_SHARD_RANKS, where, err));
    t->file = (int)file;
    clv_status status = clv_manifest_assign_parts(t, &m->mesh, where, &fault);
    if (status != CLV_OK)
        return clv_fail(err, status == CLV_ENOMEM ? status : CLV_EFORMAT, "%s: %.256s", where, fault.message);
    if (copies != m->n_ranks / blocks_of(&t->placement.layout))
        return clv_fail(err, CLV_EFORMAT, "%s: \"copies\" is %lld, mesh and layout give %lld", where, (long long)copies,
                        (long long)(m->n_ranks / blocks_of(&t->placement.layout)));
    if (json_array_size(parts) != (size_t)t->n_parts)
        return clv_fail(err, CLV_EFORMAT, "%s: %zu parts, mesh and layout give %lld", where, json_array_size(parts),
                        (long long)t->n_parts);
    for (int64_t i = 0; i < t->n_parts; i++)
        CLV_TRY(read_part(&t->parts[i], json_array_get(parts, (size_t)i), where, err));
    return CLV_OK;
}

static clv_status read_tensors(clv_manifest *m, const char *path, clv_error *err)
{
    const json_t *list = NULL;

    CLV_TRY(get_list(&list, m->document, "tensors", 1000000, path, err));
    m->tensors = calloc(json_array_size(list) + 1, sizeof *m->tensors);
    if (m->tensors == NULL)
        return clv_fail_memory(err, path, json_array_size(list) * sizeof *m->tensors);
    m->n_tensors = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        char where[WHERE_SIZE];
        CLV_TRY(clv_json_get_string(&m->tensors[i].name, o, "name", CLV_JSON_REQUIRED, path, err));
        snprintf(where, sizeof where, "%s: %.128s", path, m->tensors[i].name);
        CLV_TRY(read_tensor(&m->tensors[i], m, o, where, err));
    }
    return CLV_OK;
}

static clv_status parse(clv_manifest *m, const char *text, size_t size, const char *path, clv_error *err)
{
    const char *mesh = NULL;
    clv_error fault = {0};

    CLV_TRY(clv_checksummed_json_verify(text, size, path, err));
    CLV_TRY(clv_json_parse(&m->document, text, size, CLV_JSON_KEYS_UNIQUE, path, err));
    CLV_TRY(clv_checksummed_json_check_version(m->document, format_name, CLV_MANIFEST_VERSION, path, err));
    CLV_TRY(clv_json_get_string(&mesh, m->document, "mesh", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_string(&m->rules, m->document, "rules", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_string(&m->index, m->document, "index", CLV_JSON_OPTIONAL, path, err));
    if (clv_mesh_parse(&m->mesh, mesh, &fault) != CLV_OK)
        return clv_fail(err, CLV_EFORMAT, "%s: %.256s", path, fault.message);
    CLV_TRY(read_ranks(m, path, err));
    CLV_TRY(read_files(m, path, err));
    return read_tensors(m, path, err);
}

clv_status clv_manifest_parse(clv_manifest *out, const char *text, size_t size, const char *path, clv_error *err)
{
    clv_manifest m = {0};
    clv_status status = parse(&m, text, size, path, err);

    if (status == CLV_OK)
        *out = m;
    else
        clv_manifest_free(&m);
    return status;
}

clv_status clv_manifest_read(clv_manifest *out, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_FREED char *text = NULL;
    size_t size = 0;

    CLV_TRY(clv_path_join(path, folder, clv_manifest_name, err));
    CLV_TRY(clv_file_read(&text, &size, path, MANIFEST_LIMIT, err));
    return clv_manifest_parse(out, text, size, path, err);
}
