/* safetensors.h - safetensors files: open and validate headers, read tensors or sub-boxes with dtype conversion;
 * writer API.
 *
 *   8 bytes: N, little-endian | N bytes: JSON {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ...}
 *   | the tensors' elements, row-major, little-endian, without gaps
 *
 * Files are not trusted: every size in one is checked against the file's own size before anything of that size is
 * allocated. Beyond the format's own limits: at most 8 dimensions, at most 10^6 tensors, no unknown field in an entry,
 * no product of dimensions beyond 2^63 - 1, even if another dimension is 0.
 */
#pragma once

#include "cleave/dtype.h"
#include "cleave/layout.h"

enum { CLV_SAFETENSORS_HEADER_MAX = 100000000 }; /* bytes of a header, at most */

typedef struct clv_safetensors clv_safetensors;

/* A tensor of an open file; lives as long as the file is open. */
typedef struct clv_safetensor {
    const char *name;
    const char *dtype_name; /* as in the file: "BF16", "F8_E4M3" */
    bool readable;          /* the library supports this dtype */
    clv_dtype dtype;        /* valid if readable */
    int rank;
    int64_t shape[CLV_MAX_RANK];
    uint64_t begin, end; /* byte range in the file */
    clv_safetensors *file;
} clv_safetensor;

/* Opens a file and validates its header. Reading is thread-safe.
 * @return CLV_ENOTFOUND, CLV_EIO; CLV_EFORMAT with what is wrong, in which tensor; CLV_ENOMEM */
clv_status clv_safetensors_open(clv_safetensors **out, const char *path, clv_error *err);
void clv_safetensors_close(clv_safetensors *file);

/* Makes reads copy from a mapping of the file (mmap) instead of using pread. If the file is truncated meanwhile, reads
 * raise SIGBUS, which becomes CLV_EIO if the program's handler calls clv_file_handle_sigbus. */
clv_status clv_safetensors_map(clv_safetensors *file, clv_error *err);

/* A source of tensor data other than the file: reads a box as clv_safetensors_read_as does. Called from several
 * threads. */
typedef clv_status clv_tensor_reader(const void *arg, const clv_safetensor *tensor, int rank, const int64_t *shape,
                                     const clv_shard *box, clv_dtype dtype, void *out, clv_error *err);

/* Opens a virtual file from the text of its header, which is copied; its tensors are read by `reader`. `path` is for
 * messages; `data_bytes` is the size of the data after the header. Tensors of unsupported dtypes are read as one
 * dimension of u8. */
clv_status clv_safetensors_open_header(clv_safetensors **out, const char *path, const char *text, size_t size,
                                       uint64_t data_bytes, clv_tensor_reader *reader, const void *arg, clv_error *err);
/* Returns the JSON text of the header, including padding; the caller frees it. */
clv_status clv_safetensors_header(char **text, size_t *size, const clv_safetensors *file, clv_error *err);
/* Return the bytes of tensor data, and of the whole file. */
uint64_t clv_safetensors_data_bytes(const clv_safetensors *file);
uint64_t clv_safetensors_file_bytes(const clv_safetensors *file);

/* Return the number of tensors, and tensor i in the order of their data. */
int64_t clv_safetensors_count(const clv_safetensors *file);
const clv_safetensor *clv_safetensors_at(const clv_safetensors *file, int64_t i);
/* Finds a tensor by name. @return CLV_ENOTFOUND */
clv_status clv_safetensors_find(const clv_safetensor **out, const clv_safetensors *file, const char *name,
                                clv_error *err);

/* Compares the names of tensors, for qsort of pointers to them. */
int clv_safetensors_compare_names(const void *a, const void *b);

/* Reads the elements of a box ([lo, hi) a dimension; NULL for all) into out, row-major and without gaps, converted to
 * `dtype`. Only the bytes of the box are read from the file.
 * @return CLV_ESHAPE for a box that is not within the tensor; CLV_EUNSUPPORTED for an unsupported dtype;
 *         CLV_EIO; CLV_ENOMEM */
clv_status clv_safetensors_read(const clv_safetensor *tensor, const clv_shard *box, clv_dtype dtype, void *out,
                                clv_error *err);

/* The same with tensor and box reshaped, such as a [heads * head_dim, width] matrix to [heads, head_dim, width].
 * CLV_ESHAPE if the numbers of elements differ. */
clv_status clv_safetensors_read_as(const clv_safetensor *tensor, int rank, const int64_t *shape, const clv_shard *box,
                                   clv_dtype dtype, void *out, clv_error *err);

/* Reads bytes [at, at + size) of a tensor of any dtype unconverted; whole elements, if the dtype is supported. */
clv_status clv_safetensors_read_bytes(const clv_safetensor *tensor, uint64_t at, size_t size, void *out,
                                      clv_error *err);

/* Returns the bytes of tensor data that were read so far. */
uint64_t clv_safetensors_bytes_read(const clv_safetensors *file);

/* ---- writing ---- */

typedef struct clv_tensor_spec {
    const char *name;
    clv_dtype dtype;
    int rank;
    int64_t shape[CLV_MAX_RANK];
} clv_tensor_spec;

typedef struct clv_safetensors_writer clv_safetensors_writer;

/* Returns the header text of a file of these tensors, which the caller frees, and the bytes of their data, for
 * clv_safetensors_open_header. */
clv_status clv_safetensors_make_header(char **text, uint64_t *data_bytes, const clv_tensor_spec *specs, int64_t n,
                                       clv_error *err);
/* Starts a file that replaces `path` when it is committed. The specs are copied.
 * @return CLV_EINVAL for a name used twice or "__metadata__"; CLV_ELIMIT; CLV_EIO; CLV_ENOMEM */
clv_status clv_safetensors_create(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs,
                                  int64_t n, clv_error *err);
/* The same with entries of the header's "__metadata__": UTF-8, copied. CLV_ELIMIT if the header exceeds the format's
 * limit. */
typedef struct clv_metadata_entry {
    const char *key, *text;
} clv_metadata_entry;
clv_status clv_safetensors_create_with_metadata(clv_safetensors_writer **out, const char *path,
                                                const clv_tensor_spec *specs, int64_t n,
                                                const clv_metadata_entry *metadata, int n_metadata, clv_error *err);
/* Several processes can write one file: one creates it and sends the number of its temporary file (negative: no other
 * can write to it) to the others. These attach to it with the same specs, write, and detach, which returns the bytes
 * that they wrote. The first adds those bytes to its own and commits when all have detached. */
int clv_safetensors_writer_number_or_negative(const clv_safetensors_writer *w);
clv_status clv_safetensors_attach(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs,
                                  int64_t n, int number, clv_error *err);
clv_status clv_safetensors_detach(clv_safetensors_writer *w, int64_t *bytes, clv_error *err);
void clv_safetensors_add_written_bytes(clv_safetensors_writer *w, int64_t bytes);
/* Writes a box (NULL for all) of tensor i, of the spec's dtype, row-major and without gaps. In any order, from any
 * thread; every element exactly once. After a failure the file cannot be committed. */
clv_status clv_safetensors_write(clv_safetensors_writer *w, int64_t i, const clv_shard *box, const void *data,
                                 clv_error *err);
/* The same with tensor and box reshaped. */
clv_status clv_safetensors_write_as(clv_safetensors_writer *w, int64_t i, int rank, const int64_t *shape,
                                    const clv_shard *box, const void *data, clv_error *err);
/* Renames the finished file into place and frees the writer, also on failure, when the old file, if any, is unchanged.
 * CLV_EINVAL if elements were not written. */
clv_status clv_safetensors_commit(clv_safetensors_writer *w, clv_error *err);
/* Removes the unfinished file and frees the writer; does nothing for NULL. */
void clv_safetensors_abort(clv_safetensors_writer *w);
