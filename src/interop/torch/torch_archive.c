/* torch_archive.c - torch.export's archive: finds its documents, and reads weights. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "io/files/file.h"
#include "interop/torch/torch.h"
#include "tensor/box_runs.h"

enum { DOCUMENT_MOST = 1 << 30 /* bytes */, DEFLATED_MOST = 1 << 30 };

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The archive's root is what precedes archive_format. Archives of other releases are told by what they have. */
static clv_status find_root(torch_archive *a, clv_arena *arena, clv_error *err)
{
    for (int64_t i = 0; i < a->zip.n; i++) {
        const char *name = a->zip.entries[i].name;
        if (ends_with(name, "archive_format")) {
            char *root = clv_arena_string(arena, name);
            if (!root)
                return clv_fail_memory(err, "a program", strlen(name));
            root[strlen(root) - strlen("archive_format")] = '\0';
            a->root = root;
            return CLV_OK;
        }
    }
    for (int64_t i = 0; i < a->zip.n; i++)
        if (ends_with(a->zip.entries[i].name, "serialized_exported_program.json"))
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s: an archive of torch.export before models/model.json (PyTorch 2.7 and older); save it "
                            "again with a newer PyTorch",
                            a->zip.where);
        else if (ends_with(a->zip.entries[i].name, "data.pkl"))
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s: weights as torch.save writes them, not a program; write one with torch.export.save",
                            a->zip.where);
    return clv_fail(err, CLV_EFORMAT, "%s: a zip archive, but not torch.export's: it has no archive_format",
                    a->zip.where);
}

static const clv_zip_entry *find(const torch_archive *a, const char *folder, const char *name)
{
    char path[512];
    clv_snprintf(path, sizeof path, "%s%s%s", a->root, folder, name);
    return clv_zip_find(&a->zip, path);
}

/* A document of the archive; *out stays NULL where it has none. */
static clv_status read_document(json_t **out, const torch_archive *a, const char *folder, const char *name,
                                clv_error *err)
{
    char where[512];
    const clv_zip_entry *entry = find(a, folder, name);
    if (!entry)
        return CLV_OK;
    if (entry->size > DOCUMENT_MOST)
        return clv_fail(err, CLV_ELIMIT, "%s: %s%s has more than %d bytes", a->zip.where, folder, name, DOCUMENT_MOST);
    CLV_FREED char *text = malloc(entry->size + 1);
    if (!text)
        return clv_fail_memory(err, name, entry->size);
    CLV_TRY(clv_zip_read(text, &a->zip, entry, err));
    clv_snprintf(where, sizeof where, "%.300s: %s%s", a->zip.where, folder, name);
    return clv_json_parse(out, text, entry->size, CLV_JSON_KEYS_LAST_WINS, where, err);
}

static clv_status check_byte_order(const torch_archive *a, clv_error *err)
{
    char order[8] = "";
    const clv_zip_entry *entry = find(a, "", "byteorder");
    if (entry && entry->size < sizeof order)
        CLV_TRY(clv_zip_read(order, &a->zip, entry, err));
    return entry && strcmp(order, "little") != 0
               ? clv_fail(err, CLV_EUNSUPPORTED, "%s: weights of byte order '%s'; little is read", a->zip.where, order)
               : CLV_OK;
}

/* The program is models/model.json, or the only one of models/. */
static clv_status find_model(char name[256], const torch_archive *a, clv_error *err)
{
    int n = 0;
    size_t root = strlen(a->root);
    clv_snprintf(name, 256, "model.json");
    if (find(a, "models/", name))
        return CLV_OK;
    for (int64_t i = 0; i < a->zip.n; i++) {
        const char *entry = a->zip.entries[i].name;
        if (strncmp(entry, a->root, root) == 0 && strncmp(entry + root, "models/", 7) == 0 &&
            ends_with(entry, ".json")) {
            clv_snprintf(name, 256, "%s", entry + root + 7);
            n++;
        }
    }
    if (n != 1)
        return clv_fail(err, n ? CLV_EUNSUPPORTED : CLV_EFORMAT, "%s: %s", a->zip.where,
                        n ? "several programs; archives of one are read" : "no program: models/model.json");
    return CLV_OK;
}

static clv_status read_documents(torch_archive *a, clv_error *err)
{
    char model[256], config[280];
    CLV_TRY(check_byte_order(a, err));
    CLV_TRY(find_model(model, a, err));
    CLV_TRY(read_document(&a->program, a, "models/", model, err));
    int stem = (int)strlen(model) - 5;
    clv_snprintf(config, sizeof config, "%.*s_weights_config.json", stem, model);
    CLV_TRY(read_document(&a->weights, a, "data/weights/", config, err));
    clv_snprintf(config, sizeof config, "%.*s.pt", stem, model);
    if (!a->weights && find(a, "data/weights/", config))
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: weights in data/weights/%s, one pickle (PyTorch 2.8); save it again with a newer PyTorch, "
                        "which stores each by itself",
                        a->zip.where, config);
    clv_snprintf(config, sizeof config, "%.*s_constants_config.json", stem, model);
    return read_document(&a->constants, a, "data/constants/", config, err);
}

static clv_status open_bytes(torch_archive *a, const void *bytes, size_t size, const char *file, clv_error *err)
{
    if (!bytes)
        return clv_file_open(&a->fd, &a->zip.size, file, err);
    a->bytes = malloc(size + 1);
    if (!a->bytes)
        return clv_fail_memory(err, file, size);
    memcpy(a->bytes, bytes, size);
    a->zip.bytes = a->bytes;
    a->zip.size = size;
    return CLV_OK;
}

clv_status torch_open(torch_archive **out, clv_arena *arena, const void *bytes, size_t size, const char *file,
                      clv_error *err)
{
    torch_archive *a = clv_arena_alloc(arena, 1, sizeof *a);
    if (!a)
        return clv_fail_memory(err, "a program", sizeof *a);
    a->fd = -1;
    a->zip.where = file;
    *out = a; /* who frees the module closes it */
    CLV_TRY(open_bytes(a, bytes, size, file, err));
    a->zip.fd = a->fd;
    CLV_TRY(clv_zip_open(&a->zip, err));
    CLV_TRY(find_root(a, arena, err));
    return read_documents(a, err);
}

void torch_close(torch_archive *a)
{
    if (!a)
        return;
    json_decref(a->program);
    json_decref(a->weights);
    json_decref(a->constants);
    clv_zip_close(&a->zip);
    free(a->bytes);
    if (a->fd >= 0)
        close(a->fd);
}

/* ---- weights ---- */

static clv_status weight_fault(const torch_archive *a, const char *name, clv_error *err, const char *what)
{
    return clv_fail(err, CLV_EFORMAT, "%s: %.200s: %s", a->zip.where, name, what);
}

/* Strides and offset, whose elements must all be in the entry. */
static clv_status read_strides(torch_weight *w, const json_t *meta, clv_error *err)
{
    const json_t *strides = json_object_get(meta, "strides"), *offset = json_object_get(meta, "storage_offset");
    const clv_type *type = &w->type.tensor;
    int64_t end, dense = 1;
    if ((int)json_array_size(strides) != type->rank || !torch_int(&w->offset, offset) || w->offset < 0)
        return weight_fault(w->archive, w->name, err, "strides or an offset that do not fit its shape");
    end = w->offset;
    w->contiguous = true;
    for (int d = type->rank - 1; d >= 0; d--) {
        int64_t reach;
        if (!torch_int(&w->strides[d], json_array_get(strides, (size_t)d)) || w->strides[d] < 0 ||
            __builtin_mul_overflow(type->shape[d] - 1, w->strides[d], &reach) ||
            (type->shape[d] > 0 && __builtin_add_overflow(end, reach, &end)))
            return weight_fault(w->archive, w->name, err, "strides or an offset that do not fit its shape");
        w->contiguous = w->contiguous && (w->strides[d] == dense || type->shape[d] <= 1);
        dense *= type->shape[d];
    }
    if (dense > 0 && end >= (int64_t)(w->entry->size / clv_dtype_size(type->dtype)))
        return weight_fault(w->archive, w->name, err, "more elements than are stored");
    return CLV_OK;
}

/* Deflated bytes are inflated once, as boxes of them are read. torch.save deflates none. */
static clv_status inflate_weight(torch_weight *w, clv_arena *arena, clv_error *err)
{
    if (!w->entry->deflated)
        return CLV_OK;
    if (w->entry->size > DEFLATED_MOST)
        return clv_fail(err, CLV_ELIMIT, "%s: %.200s: more than %d deflated bytes; store it", w->archive->zip.where,
                        w->name, DEFLATED_MOST);
    unsigned char *bytes = clv_arena_alloc(arena, w->entry->size + 1, 1);
    if (!bytes)
        return clv_fail_memory(err, w->name, w->entry->size);
    w->inflated = bytes;
    return clv_zip_read(bytes, &w->archive->zip, w->entry, err);
}

clv_status torch_find_weight(torch_weight **out, const torch_archive *a, clv_arena *arena, bool constant,
                             const char *name, const mlir_type *type, clv_error *err)
{
    static const char *const folders[] = {"data/weights/", "data/constants/"};
    torch_weight *w = clv_arena_alloc(arena, 1, sizeof *w);
    const json_t *payload = NULL;
    int at = 0;
    if (!w)
        return clv_fail_memory(err, "a program", sizeof *w);
    *w = (torch_weight){.name = name, .type = *type, .archive = a};
    *out = w;
    for (at = constant; at < 2 && !payload; at++) /* buffers that are not persistent are constants */
        payload = json_object_get(json_object_get(at ? a->constants : a->weights, "config"), name);
    const char *path = torch_string(payload, "path_name");
    w->entry = path ? find(a, folders[at - 1], path) : NULL;
    if (!w->entry || type->fault)
        return CLV_OK;
    if (json_is_true(json_object_get(payload, "use_pickle")))
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: %.200s is pickled, as tensors of subclasses (DTensor) are; export "
                        "the module of plain tensors, and state layouts",
                        a->zip.where, name);
    const json_t *meta = json_object_get(payload, "tensor_meta");
    const char *device = torch_string(json_object_get(meta, "device"), "type");
    if (device && strcmp(device, "meta") == 0) { /* a program to be planned, without values */
        w->entry = NULL;
        return CLV_OK;
    }
    const mlir_type *stored = torch_type(arena, meta, type->at);
    if (!stored)
        return clv_fail_memory(err, "a program", sizeof *stored);
    if (stored->fault || !clv_type_equal(&stored->tensor, &type->tensor))
        return weight_fault(a, name, err, "what is stored is not of the type that the graph states");
    CLV_TRY(read_strides(w, meta, err));
    return inflate_weight(w, arena, err);
}

static clv_status read_elements(void *out, const torch_weight *w, int64_t at, int64_t n, clv_error *err)
{
    size_t size = clv_dtype_size(w->type.tensor.dtype);
    if (!w->inflated)
        return clv_zip_read_part(out, &w->archive->zip, w->entry, (uint64_t)at * size, (size_t)n * size, err);
    memcpy(out, w->inflated + (size_t)at * size, (size_t)n * size);
    return CLV_OK;
}

/* Element after element, of strides that are not those of the shape (a transposed weight, a view). */
static clv_status read_strided(char *out, const torch_weight *w, const clv_shard *box, clv_error *err)
{
    size_t size = clv_dtype_size(w->type.tensor.dtype), all = (size_t)w->entry->size;
    CLV_FREED char *bytes = malloc(all + 1);
    int64_t at[CLV_MAX_RANK];
    if (!bytes)
        return clv_fail_memory(err, w->name, all);
    CLV_TRY(read_elements(bytes, w, 0, (int64_t)(all / size), err));
    memcpy(at, box->lo, sizeof at);
    for (int d = 0; d < box->rank; d++)
        if (box->hi[d] <= box->lo[d])
            return CLV_OK;
    for (;; out += size) {
        int64_t from = w->offset;
        for (int d = 0; d < box->rank; d++)
            from += at[d] * w->strides[d];
        memcpy(out, bytes + (size_t)from * size, size);
        int d = box->rank - 1;
        for (; d >= 0 && ++at[d] == box->hi[d]; d--)
            at[d] = box->lo[d];
        if (d < 0)
            return CLV_OK;
    }
}

clv_status torch_read_weight(void *out, const torch_weight *w, const clv_shard *box, clv_error *err)
{
    size_t size = clv_dtype_size(w->type.tensor.dtype);
    if (!w->entry)
        return clv_fail(err, CLV_ENOTFOUND, "%s has no values of %.200s; give them by name, with the inputs",
                        w->archive->zip.where, w->name);
    if (!w->contiguous)
        return read_strided(out, w, box, err);
    for (clv_box_runs r = clv_box_runs_begin(w->type.tensor.shape, box); !r.done; clv_box_runs_next(&r))
        CLV_TRY(read_elements((char *)out + (size_t)r.in_first * size, w, w->offset + r.first, r.run_elems, err));
    return CLV_OK;
}
