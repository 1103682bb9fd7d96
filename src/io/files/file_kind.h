/* file_kind.h - file type detection by magic bytes: safetensors, GGUF, pickle, LFS pointer, HTML, gzip...; errors
 * with advice.
 *
 * A clone without Git LFS, a download that failed, weights in another format, a compressed file: each begins so that it
 * can be told, and each has its remedy.
 */
#ifndef CLEAVE_IO_FILES_FILE_KIND_H
#define CLEAVE_IO_FILES_FILE_KIND_H

#include <stddef.h>

#include "cleave/status.h"

typedef enum clv_file_kind {
    CLV_FILE_OTHER, /* none of those below: a text, JSON, tokens, anything */
    CLV_FILE_EMPTY,
    CLV_FILE_SAFETENSORS,
    CLV_FILE_LFS_POINTER,
    CLV_FILE_HTML,
    CLV_FILE_SERVER_ERROR, /* what a server said in place of the file */
    CLV_FILE_PICKLE,
    CLV_FILE_ZIP, /* torch.save writes one */
    CLV_FILE_GGUF,
    CLV_FILE_HDF5,
    CLV_FILE_NUMPY,
    CLV_FILE_PARQUET,
    CLV_FILE_ARROW,
    CLV_FILE_UTF16,  /* or UTF-32 */
    CLV_FILE_TOKENS, /* of our own (docs/data.md) */
    CLV_FILE_PDF,
    CLV_FILE_GZIP,
    CLV_FILE_ZSTD,
    CLV_FILE_XZ,
    CLV_FILE_BZIP2,
    CLV_FILE_TAR,
    CLV_FILE_PACKED,
} clv_file_kind;

/* As many bytes of a file as any kind is told by. */
enum { CLV_FILE_KIND_BYTES = 512 };

/* The kind of a file that begins with these bytes; `size` may be all of the file, or its first CLV_FILE_KIND_BYTES. */
clv_file_kind clv_file_kind_of(const void *bytes, size_t size);
/* "a Git LFS pointer", and what to do: "run 'git lfs pull' in the clone". NULL for CLV_FILE_OTHER. */
const char *clv_file_kind_name(clv_file_kind kind);
const char *clv_file_kind_advice(clv_file_kind kind);

/* CLV_EFORMAT, "PATH: is a Git LFS pointer, not JSON; ADVICE", for bytes of any kind but CLV_FILE_OTHER. `wanted` says
 * what the file should be. */
clv_status clv_file_kind_refuse(const void *bytes, size_t size, const char *wanted, const char *path, clv_error *err);

#endif
