/* safetensors.h - safetensors files: open and validate headers, read tensors or sub-boxes with dtype conversion;
 * writer API.
 *
 *   8 bytes: N, little-endian | N bytes: JSON {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ...}
 *   | the tensors' elements, row-major, little-endian, without gaps
 *
 * Files are not trusted: every size in one is checked against the file's own size before anything of that size is
 * allocated. Beyond the format's own limits: at most 8 dimensions, at most 10^6 tensors, no unknown field in an entry,
 * no product of dimensions beyond 2^63 - 1 even beside a dimension of 0.
 */
#ifndef CLEAVE_IO_CHECKPOINT_SAFETENSORS_H
#define CLEAVE_IO_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/dtype.h"
#include "cleave/layout.h"
#include "cleave/status.h"

enum { CLV_SAFETENSORS_HEADER_MAX = 100000000 }; /* bytes of a header, at most */

typedef struct clv_safetensors clv_safetensors;

/* A tensor of an open file; lives as long as the file is open. */
typedef struct clv_safetensor {
    const char *name;
    const char *dtype_name; /* as in the file: "BF16", "F8_E4M3" */
    bool readable;          /* the library has this dtype ... */
    clv_dtype dtype;        /* ... and this is it */
    int rank;
    int64_t shape[CLV_MAX_RANK];
    uint64_t begin, end; /* bytes of the file */
    clv_safetensors *file;
} clv_safetensor;

/* Opens a file and checks all of its header. Reading is safe from several threads.
 * @return CLV_ENOTFOUND, CLV_EIO; CLV_EFORMAT with what is wrong, in which tensor; CLV_ENOMEM */
clv_status clv_safetensors_open(clv_safetensors **out, const char *path, clv_error *err);
void clv_safetensors_close(clv_safetensors *file);

/* Reads from here on copy from a mapping of the file (mmap) instead of by pread. Should the file become shorter in the
 * meantime, reading what is gone raises SIGBUS, and is CLV_EIO where the program's handler calls clv_file_on_sigbus. */
clv_status clv_safetensors_map(clv_safetensors *file, clv_error *err);

/* Reads a box of a tensor, seen in `shape`, as clv_safetensors_read_as does, from wherever its elements are; from
 * several threads. */
typedef clv_status clv_tensor_reader(const void *arg, const clv_safetensor *tensor, int rank, const int64_t *shape,
                                     const clv_shard *box, clv_dtype dtype, void *out, clv_error *err);

/* A file of which only the header is at hand: its tensors are read by `reader`. `path` names it in messages;
 * `data_bytes` is what would follow the header. A dtype that the library lacks is asked for as one dimension of u8. The
 * text is copied. */
clv_status clv_safetensors_open_header(clv_safetensors **out, const char *path, const char *text, size_t size,
                                       uint64_t data_bytes, clv_tensor_reader *reader, const void *arg, clv_error *err);
/* The header's JSON text as it stands in the file, with its padding; the caller frees it. */
clv_status clv_safetensors_header(char **text, size_t *size, const clv_safetensors *file, clv_error *err);
/* Bytes of tensor data, and of the file. */
uint64_t clv_safetensors_data_bytes(const clv_safetensors *file);
uint64_t clv_safetensors_file_bytes(const clv_safetensors *file);

/* Tensors in the order of their data. */
int64_t clv_safetensors_count(const clv_safetensors *file);
const clv_safetensor *clv_safetensors_at(const clv_safetensors *file, int64_t i);
/* CLV_ENOTFOUND when the file has no such tensor. */
clv_status clv_safetensors_find(const clv_safetensor **out, const clv_safetensors *file, const char *name,
                                clv_error *err);

/* For sorting pointers to tensors. */
int clv_safetensors_by_name(const void *a, const void *b);

/* Reads the elements of a box ([lo, hi) a dimension; NULL for all) into out, row-major and without gaps, converted to
 * `dtype`. Only the bytes of the box are read from the file.
 * @return CLV_ESHAPE for a box that is not within the tensor; CLV_EUNSUPPORTED for a dtype that the library lacks;
 *         CLV_EIO; CLV_ENOMEM */
clv_status clv_safetensors_read(const clv_safetensor *tensor, const clv_shard *box, clv_dtype dtype, void *out,
                                clv_error *err);

/* The same, with tensor and box seen in another shape of as many elements: a [heads * head_dim, width] matrix as
 * [heads, head_dim, width]. CLV_ESHAPE when the numbers of elements differ. */
clv_status clv_safetensors_read_as(const clv_safetensor *tensor, int rank, const int64_t *shape, const clv_shard *box,
                                   clv_dtype dtype, void *out, clv_error *err);

/* Reads bytes [at, at + size) of a tensor of any dtype as they are in the file: whole elements, where the library has
 * the dtype. */
clv_status clv_safetensors_read_bytes(const clv_safetensor *tensor, uint64_t at, size_t size, void *out,
                                      clv_error *err);

/* Bytes of tensor data that reads have asked for so far. */
uint64_t clv_safetensors_bytes_read(const clv_safetensors *file);

/* ---- writing ---- */

typedef struct clv_tensor_spec {
    const char *name;
    clv_dtype dtype;
    int rank;
    int64_t shape[CLV_MAX_RANK];
} clv_tensor_spec;

typedef struct clv_safetensors_writer clv_safetensors_writer;

/* The text of the header that a file of these tensors has, which the caller frees, and the bytes of their data: for
 * clv_safetensors_open_header. */
clv_status clv_safetensors_make_header(char **text, uint64_t *data_bytes, const clv_tensor_spec *specs, int64_t n,
                                       clv_error *err);
/* Starts a file that will replace `path` when it is committed. The specs are copied.
 * @return CLV_EINVAL for a name used twice or "__metadata__"; CLV_ELIMIT; CLV_EIO; CLV_ENOMEM */
clv_status clv_safetensors_create(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs,
                                  int64_t n, clv_error *err);
/* The same with notes beside the tensors, in the header's "__metadata__": UTF-8, copied. Readers get them as strings by
 * key. CLV_ELIMIT when the header is longer than readers take. */
typedef struct clv_metadata_entry {
    const char *key, *text;
} clv_metadata_entry;
clv_status clv_safetensors_create_with_metadata(clv_safetensors_writer **out, const char *path,
                                                const clv_tensor_spec *specs, int64_t n,
                                                const clv_metadata_entry *notes, int n_notes, clv_error *err);
/* Several processes write one file: one creates it and tells the number, -1 where none can join, to the others. They
 * join with the same specs, write, and leave, which tells the bytes that each wrote; of these the first is told, and
 * commits when all have left. */
int clv_safetensors_writer_id(const clv_safetensors_writer *w);
clv_status clv_safetensors_join(clv_safetensors_writer **out, const char *path, const clv_tensor_spec *specs, int64_t n,
                                int number, clv_error *err);
clv_status clv_safetensors_detach(clv_safetensors_writer *w, int64_t *bytes, clv_error *err);
void clv_safetensors_add_written_bytes(clv_safetensors_writer *w, int64_t bytes);
/* Writes a box (NULL for all) of tensor i, of the spec's dtype, row-major and without gaps. In any order, from any
 * thread; every element exactly once. A failure is final. */
clv_status clv_safetensors_write(clv_safetensors_writer *w, int64_t i, const clv_shard *box, const void *data,
                                 clv_error *err);
/* The same with tensor and box seen in another shape of as many elements. */
clv_status clv_safetensors_write_as(clv_safetensors_writer *w, int64_t i, int rank, const int64_t *shape,
                                    const clv_shard *box, const void *data, clv_error *err);
/* Puts the finished file in its place and frees the writer, whether it succeeds or not: on failure the old file, if
 * there was one, is as it was. CLV_EINVAL when elements are missing. */
clv_status clv_safetensors_commit(clv_safetensors_writer *w, clv_error *err);
/* Gives up: removes what was written and frees the writer. NULL is a no-op. */
void clv_safetensors_abort(clv_safetensors_writer *w);

#endif
