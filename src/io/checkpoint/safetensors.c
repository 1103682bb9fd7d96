/* safetensors.c - safetensors reader: validates the header, then reads tensors or sub-boxes by pread or mmap. */
#include "io/checkpoint/safetensors.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/files/file_kind.h"
#include "io/json/json.h"
#include "tensor/box_runs.h"

/* The format's own limit of a header (safetensors, MAX_HEADER_SIZE), and ours of tensors. */
static const uint64_t max_header = CLV_SAFETENSORS_HEADER_MAX;
enum { MAX_TENSORS = 1000000, WHERE_SIZE = 512, CHUNK_BYTES = 1 << 20 };

struct clv_safetensors {
    char *path;
    int fd;
    uint64_t size;                  /* of the file */
    uint64_t data;                  /* where tensor data begins */
    const char *map;                /* the whole file; NULL: it is read by pread */
    json_t *header;                 /* owns the names */
    clv_safetensor *tensors;        /* by offset */
    const clv_safetensor **by_name; /* sorted */
    int64_t n;
    _Atomic uint64_t bytes_read;
    char *text;                /* header of a virtual file; else NULL */
    clv_tensor_reader *reader; /* of a virtual file */
    const void *reader_arg;
};

/* The dtypes of the format, with their bits. Those that the library does not support are validated but cannot be read.
 * */
static const struct format_dtype {
    const char *name;
    int bits;
} format_dtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

static clv_status format_error(const char *where, clv_error *err, const char *what)
{
    return clv_fail(err, CLV_EFORMAT, "%s: %s", where, what);
}

static clv_status parse_dtype(clv_safetensor *t, int *bits, const char *name, const char *where, clv_error *err)
{
    *bits = 0;
    for (size_t i = 0; i < sizeof format_dtypes / sizeof format_dtypes[0]; i++)
        if (strcmp(format_dtypes[i].name, name) == 0) {
            t->dtype_name = format_dtypes[i].name;
            *bits = format_dtypes[i].bits;
        }
    if (*bits == 0)
        return clv_fail(err, CLV_EFORMAT, "%s: unknown dtype \"%.32s\"", where, name);
    t->readable = clv_dtype_parse(&t->dtype, name, NULL) == CLV_OK;
    return CLV_OK;
}

/* *size = the bytes of the tensor's elements. The product of the dimensions other than 0 must not overflow, even if one
 * is 0, since strides need it. */
static clv_status count_bytes(uint64_t *size, const clv_safetensor *t, int bits, const char *where, clv_error *err)
{
    int64_t product = 1;
    uint64_t total;
    bool empty = false;

    for (int d = 0; d < t->rank; d++) {
        empty = empty || t->shape[d] == 0;
        if (t->shape[d] != 0 && __builtin_mul_overflow(product, t->shape[d], &product))
            return format_error(where, err, "the product of the shape overflows");
    }
    if (__builtin_mul_overflow(empty ? 0 : (uint64_t)product, (uint64_t)bits, &total))
        return format_error(where, err, "the shape times the bits of an element overflows");
    if (total % 8 != 0)
        return format_error(where, err, "its elements do not fill whole bytes");
    *size = total / 8;
    return CLV_OK;
}

/* begin and end stay relative to the data until all are checked. */
static clv_status parse_tensor(clv_safetensor *t, const char *name, const json_t *entry, const char *where,
                               clv_error *err)
{
    int64_t offsets[2] = {0, 0};
    const char *dtype = "";
    uint64_t size = 0;
    int n = 0, bits = 0;

    CLV_TRY(clv_json_check_object(entry, where, err));
    CLV_TRY(clv_json_get_string(&dtype, entry, "dtype", CLV_JSON_REQUIRED, where, err));
    CLV_TRY(parse_dtype(t, &bits, dtype, where, err));
    CLV_TRY(clv_json_get_ints(t->shape, &t->rank, CLV_MAX_RANK, entry, "shape", CLV_JSON_REQUIRED, 0, INT64_MAX, where,
                              err));
    CLV_TRY(clv_json_get_ints(offsets, &n, 2, entry, "data_offsets", CLV_JSON_REQUIRED, 0, INT64_MAX, where, err));
    if (n != 2)
        return format_error(where, err, "\"data_offsets\" must be two integers");
    if (json_object_size(entry) != 3)
        return format_error(where, err, "unknown field (valid are dtype, shape, data_offsets)");
    if (offsets[1] < offsets[0])
        return format_error(where, err, "\"data_offsets\" end before they begin");
    CLV_TRY(count_bytes(&size, t, bits, where, err));
    if ((uint64_t)(offsets[1] - offsets[0]) != size)
        return clv_fail(err, CLV_EFORMAT, "%s: %lld bytes of data, its shape needs %llu", where,
                        (long long)(offsets[1] - offsets[0]), (unsigned long long)size);
    t->name = name;
    t->begin = (uint64_t)offsets[0];
    t->end = (uint64_t)offsets[1];
    return CLV_OK;
}

static clv_status check_metadata(const json_t *metadata, const char *path, clv_error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return format_error(path, err, "\"__metadata__\" must be an object of strings");
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return clv_fail(
        err, CLV_EFORMAT, "%s: \"__metadata__\": \"%.64s\" must be a string", path, key);
    return CLV_OK;
}

static int by_offset(const void *a, const void *b)
{
    const clv_safetensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

int clv_safetensors_compare_names(const void *a, const void *b)
{
    return strcmp((*(const clv_safetensor *const *)a)->name, (*(const clv_safetensor *const *)b)->name);
}

/* Tensors must tile the data exactly. */
static clv_status check_tiling(const clv_safetensors *f, clv_error *err)
{
    uint64_t end = 0;

    for (int64_t i = 0; i < f->n; i++) {
        const clv_safetensor *t = &f->tensors[i];
        if (t->begin != end)
            return clv_fail(err, CLV_EFORMAT, "%s: %.128s: data begins at %llu, the data before it ends at %llu",
                            f->path, t->name, (unsigned long long)t->begin, (unsigned long long)end);
        end = t->end;
    }
    if (end != f->size - f->data)
        return clv_fail(err, CLV_EFORMAT, "%s: the header describes %llu bytes of data, the file holds %llu", f->path,
                        (unsigned long long)end, (unsigned long long)(f->size - f->data));
    return CLV_OK;
}

static clv_status parse_tensors(clv_safetensors *f, clv_error *err)
{
    const char *name;
    json_t *entry;

    json_object_foreach(f->header, name, entry)
    {
        char where[WHERE_SIZE];
        if (strcmp(name, "__metadata__") == 0) {
            CLV_TRY(check_metadata(entry, f->path, err));
            continue;
        }
        snprintf(where, sizeof where, "%s: %.128s", f->path, name);
        f->tensors[f->n].file = f;
        CLV_TRY(parse_tensor(&f->tensors[f->n], name, entry, where, err));
        f->n++;
    }
    qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_offset);
    CLV_TRY(check_tiling(f, err));
    for (int64_t i = 0; i < f->n; i++) {
        f->tensors[i].begin += f->data;
        f->tensors[i].end += f->data;
        f->by_name[i] = &f->tensors[i];
    }
    qsort(f->by_name, (size_t)f->n, sizeof(const clv_safetensor *), clv_safetensors_compare_names);
    return CLV_OK;
}

/* Rejects a file of another known kind. */
static clv_status check_kind(const clv_safetensors *f, clv_error *err)
{
    char bytes[CLV_FILE_KIND_BYTES];
    size_t n = f->size < sizeof bytes ? (size_t)f->size : sizeof bytes;

    CLV_TRY(clv_file_read_at(f->fd, bytes, n, 0, f->path, err));
    if (clv_file_kind_of(bytes, n) == CLV_FILE_SAFETENSORS)
        return CLV_OK;
    return clv_file_kind_refuse(bytes, n, "safetensors", f->path, err);
}

/* The header's length, checked against the file's. */
static clv_status read_length(uint64_t *out, const clv_safetensors *f, clv_error *err)
{
    uint8_t bytes[8];
    uint64_t n = 0;

    if (f->size < sizeof bytes)
        return format_error(f->path, err, "shorter than 8 bytes: not a safetensors file");
    CLV_TRY(clv_file_read_at(f->fd, bytes, sizeof bytes, 0, f->path, err));
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    if (n > max_header)
        return clv_fail(err, CLV_EFORMAT, "%s: a header of %llu bytes, at most %llu are valid: not a safetensors file",
                        f->path, (unsigned long long)n, (unsigned long long)max_header);
    if (n > f->size - sizeof bytes)
        return format_error(f->path, err, "ends within its header");
    *out = n;
    return CLV_OK;
}

static clv_status parse_header(clv_safetensors *f, const char *text, size_t size, clv_error *err)
{
    /* One member more than MAX_TENSORS, for the metadata. */
    if (clv_json_count_members(text, size) > MAX_TENSORS + 1)
        return clv_fail(err, CLV_ELIMIT, "%s: more than %d tensors", f->path, MAX_TENSORS);
    if (size > 0 && text[0] == '\xef') /* a byte order mark, as text files may have */
        return format_error(f->path, err, "its header does not begin with '{'");
    CLV_TRY(clv_json_parse(&f->header, text, size, CLV_JSON_KEYS_UNIQUE, f->path, err));
    CLV_TRY(clv_json_check_object(f->header, f->path, err));

    size_t n = json_object_size(f->header) + 1;
    f->tensors = calloc(n, sizeof *f->tensors);
    f->by_name = calloc(n, sizeof(const clv_safetensor *));
    if (f->tensors == NULL || f->by_name == NULL)
        return clv_fail_memory(err, f->path, n * sizeof *f->tensors);
    return parse_tensors(f, err);
}

static clv_status read_header(clv_safetensors *f, clv_error *err)
{
    uint64_t length = 0;
    CLV_FREED char *text = NULL;

    CLV_TRY(clv_file_open(&f->fd, &f->size, f->path, err));
    CLV_TRY(check_kind(f, err));
    CLV_TRY(read_length(&length, f, err));
    f->data = 8 + length;
    text = malloc((size_t)length + 1);
    if (text == NULL)
        return clv_fail_memory(err, f->path, (size_t)length);
    CLV_TRY(clv_file_read_at(f->fd, text, (size_t)length, 8, f->path, err));
    return parse_header(f, text, (size_t)length, err);
}

clv_status clv_safetensors_open(clv_safetensors **out, const char *path, clv_error *err)
{
    clv_safetensors *f = calloc(1, sizeof *f);
    clv_status status;

    if (f == NULL)
        return clv_fail_memory(err, path, sizeof *f);
    f->fd = -1;
    f->path = strdup(path);
    status = f->path != NULL ? read_header(f, err) : clv_fail_memory(err, path, strlen(path));
    if (status != CLV_OK)
        clv_safetensors_close(f);
    else
        *out = f;
    return status;
}

static clv_status copy_header(clv_safetensors *f, const char *path, const char *text, size_t size, clv_error *err)
{
    f->path = strdup(path);
    f->text = malloc(size + 1);
    if (f->path == NULL || f->text == NULL)
        return clv_fail_memory(err, path, size);
    memcpy(f->text, text, size);
    return parse_header(f, f->text, size, err);
}

clv_status clv_safetensors_open_header(clv_safetensors **out, const char *path, const char *text, size_t size,
                                       uint64_t data_bytes, clv_tensor_reader *reader, const void *arg, clv_error *err)
{
    if (size > max_header || data_bytes > INT64_MAX / 2)
        return clv_fail(err, CLV_EFORMAT, "%s: a header of %zu bytes for %llu of data is too large", path, size,
                        (unsigned long long)data_bytes);
    clv_safetensors *f = calloc(1, sizeof *f);
    if (f == NULL)
        return clv_fail_memory(err, path, sizeof *f);
    f->fd = -1;
    f->data = 8 + size;
    f->size = f->data + data_bytes;
    f->reader = reader;
    f->reader_arg = arg;
    clv_status status = copy_header(f, path, text, size, err);
    if (status != CLV_OK)
        clv_safetensors_close(f);
    else
        *out = f;
    return status;
}

clv_status clv_safetensors_header(char **text, size_t *size, const clv_safetensors *f, clv_error *err)
{
    size_t length = (size_t)(f->data - 8);
    char *copy = malloc(length + 1);

    if (copy == NULL)
        return clv_fail_memory(err, f->path, length);
    if (f->text != NULL)
        memcpy(copy, f->text, length);
    clv_status status = f->text != NULL ? CLV_OK : clv_file_read_at(f->fd, copy, length, 8, f->path, err);
    if (status != CLV_OK) {
        free(copy);
        return status;
    }
    copy[length] = '\0';
    *text = copy;
    *size = length;
    return CLV_OK;
}

uint64_t clv_safetensors_data_bytes(const clv_safetensors *f)
{
    return f->size - f->data;
}

uint64_t clv_safetensors_file_bytes(const clv_safetensors *f)
{
    return f->size;
}

void clv_safetensors_close(clv_safetensors *f)
{
    if (f == NULL)
        return;
    if (f->map != NULL)
        munmap((void *)f->map, (size_t)f->size);
    if (f->fd >= 0)
        close(f->fd);
    json_decref(f->header);
    free(f->tensors);
    free(f->by_name);
    free(f->text);
    free(f->path);
    free(f);
}

clv_status clv_safetensors_map(clv_safetensors *f, clv_error *err)
{
    void *map = f->map == NULL ? mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, f->fd, 0) : (void *)f->map;

    if (map == MAP_FAILED)
        return clv_fail_errno(err, "map", f->path);
    f->map = map;
    return CLV_OK;
}

int64_t clv_safetensors_count(const clv_safetensors *f)
{
    return f->n;
}

const clv_safetensor *clv_safetensors_at(const clv_safetensors *f, int64_t i)
{
    return &f->tensors[i];
}

uint64_t clv_safetensors_bytes_read(const clv_safetensors *f)
{
    return atomic_load(&f->bytes_read);
}

clv_status clv_safetensors_find(const clv_safetensor **out, const clv_safetensors *f, const char *name, clv_error *err)
{
    const clv_safetensor wanted = {.name = name}, *key = &wanted;
    const clv_safetensor *const *found =
        bsearch(&key, f->by_name, (size_t)f->n, sizeof(const clv_safetensor *), clv_safetensors_compare_names);

    if (found == NULL)
        return clv_fail(err, CLV_ENOTFOUND, "%s: no tensor named \"%.128s\"", f->path, name);
    *out = *found;
    return CLV_OK;
}

/* ---- elements ---- */

static clv_status read_bytes(const clv_safetensors *f, void *out, size_t size, uint64_t offset, clv_error *err)
{
    if (f->map == NULL)
        return clv_file_read_at(f->fd, out, size, offset, f->path, err);
    return clv_file_copy_mapped(out, f->map + offset, size, f->path, err);
}

/* Reads count elements from `offset` of the file and converts them, a chunk at a time through `staging`; elements may
 * be at any byte offset, so they are never read in place. */
static clv_status read_run(const clv_safetensor *t, uint64_t offset, int64_t count, clv_dtype dtype, char *out,
                           void *staging, clv_error *err)
{
    size_t from = clv_dtype_size(t->dtype), to = clv_dtype_size(dtype);
    int64_t chunk = CHUNK_BYTES / (int64_t)from;

    if (staging == NULL)
        return read_bytes(t->file, out, (size_t)count * from, offset, err);
    for (int64_t done = 0; done < count; done += chunk) {
        int64_t n = count - done < chunk ? count - done : chunk;
        CLV_TRY(read_bytes(t->file, staging, (size_t)n * from, offset + (uint64_t)done * from, err));
        clv_dtype_convert(dtype, out + (size_t)done * to, t->dtype, staging, n);
    }
    return CLV_OK;
}

static clv_status read_box(const clv_safetensor *t, const int64_t *shape, const clv_shard *box, clv_dtype dtype,
                           char *out, void *staging, clv_error *err)
{
    size_t from = clv_dtype_size(t->dtype), to = clv_dtype_size(dtype);

    for (clv_box_runs runs = clv_box_runs_begin(shape, box); !runs.done; clv_box_runs_next(&runs)) {
        CLV_TRY(read_run(t, t->begin + (uint64_t)runs.first * from, runs.run_elems, dtype, out, staging, err));
        atomic_fetch_add(&t->file->bytes_read, (uint64_t)runs.run_elems * from);
        out += (size_t)runs.run_elems * to;
    }
    return CLV_OK;
}

clv_status clv_safetensors_read_as(const clv_safetensor *t, int rank, const int64_t *shape, const clv_shard *box,
                                   clv_dtype dtype, void *out, clv_error *err)
{
    CLV_FREED void *staging = NULL;

    if (!t->readable)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: %.128s: dtype %s is not supported", t->file->path, t->name,
                        t->dtype_name);
    if (clv_shape_elems(rank, shape) != clv_shape_elems(t->rank, t->shape))
        return clv_fail(err, CLV_ESHAPE, "%s: %.128s: has %lld elements, %lld were expected", t->file->path, t->name,
                        (long long)clv_shape_elems(t->rank, t->shape), (long long)clv_shape_elems(rank, shape));
    if (!clv_box_within(box, rank, shape))
        return clv_fail(err, CLV_ESHAPE, "%s: %.128s: the box to read is not within the tensor", t->file->path,
                        t->name);
    if (t->file->reader != NULL) {
        atomic_fetch_add(&t->file->bytes_read, (uint64_t)clv_shard_elems(box) * clv_dtype_size(t->dtype));
        return t->file->reader(t->file->reader_arg, t, rank, shape, box, dtype, out, err);
    }
    if (t->dtype != dtype) {
        staging = malloc(CHUNK_BYTES);
        if (staging == NULL)
            return clv_fail_memory(err, "a read buffer", CHUNK_BYTES);
    }
    return read_box(t, shape, box, dtype, out, staging, err);
}

clv_status clv_safetensors_read(const clv_safetensor *t, const clv_shard *box, clv_dtype dtype, void *out,
                                clv_error *err)
{
    clv_shard whole = clv_box_whole(t->rank, t->shape);

    return clv_safetensors_read_as(t, t->rank, t->shape, box != NULL ? box : &whole, dtype, out, err);
}

clv_status clv_safetensors_read_bytes(const clv_safetensor *t, uint64_t at, size_t size, void *out, clv_error *err)
{
    clv_dtype dtype = t->readable ? t->dtype : CLV_U8;
    int64_t elem = (int64_t)clv_dtype_size(dtype), elems = (int64_t)(t->end - t->begin) / elem;
    clv_shard box = {.rank = 1, .lo = {(int64_t)at / elem}, .hi = {(int64_t)(at + size) / elem}};

    if (at > t->end - t->begin || size > t->end - t->begin - at)
        return clv_fail(err, CLV_ESHAPE, "%s: %.128s: the bytes to read are not within the tensor", t->file->path,
                        t->name);
    atomic_fetch_add(&t->file->bytes_read, size);
    if (t->file->reader == NULL)
        return read_bytes(t->file, out, size, t->begin + at, err);
    return t->file->reader(t->file->reader_arg, t, 1, &elems, &box, dtype, out, err);
}
