/* file_kind.h - file type detection by magic bytes: safetensors, GGUF, pickle, LFS pointer, HTML, gzip...; errors
 * with advice.
 *
 * A clone without Git LFS, a failed download, weights in another format, a compressed file: each is recognized by its
 * first bytes and reported with advice.
 */
#pragma once

#include "cleave/status.h"

typedef enum clv_file_kind {
    CLV_FILE_OTHER, /* none of the others */
    CLV_FILE_EMPTY,
    CLV_FILE_SAFETENSORS,
    CLV_FILE_LFS_POINTER,
    CLV_FILE_HTML,
    CLV_FILE_SERVER_ERROR, /* an error message from a server instead of the file */
    CLV_FILE_PICKLE,
    CLV_FILE_ZIP, /* as torch.save writes */
    CLV_FILE_GGUF,
    CLV_FILE_HDF5,
    CLV_FILE_NUMPY,
    CLV_FILE_PARQUET,
    CLV_FILE_ARROW,
    CLV_FILE_UTF16,  /* or UTF-32 */
    CLV_FILE_TOKENS, /* cleave's token file (docs/data.md) */
    CLV_FILE_PDF,
    CLV_FILE_GZIP,
    CLV_FILE_ZSTD,
    CLV_FILE_XZ,
    CLV_FILE_BZIP2,
    CLV_FILE_TAR,
    CLV_FILE_PACKED,
} clv_file_kind;

/* The first bytes of a file that suffice to detect any kind. */
enum { CLV_FILE_KIND_BYTES = 512 };

/* Detects the kind of a file by its first bytes: CLV_FILE_KIND_BYTES, or all if it is shorter. */
clv_file_kind clv_file_kind_of(const void *bytes, size_t size);
/* Return a description, "a Git LFS pointer", and advice, "run 'git lfs pull' in the clone"; NULL for CLV_FILE_OTHER. */
const char *clv_file_kind_name(clv_file_kind kind);
const char *clv_file_kind_advice(clv_file_kind kind);

/* Fails with CLV_EFORMAT, "PATH: is a Git LFS pointer, not JSON; ADVICE", for any kind but CLV_FILE_OTHER. `wanted` is
 * what the file should be ("JSON"). */
clv_status clv_file_kind_refuse(const void *bytes, size_t size, const char *wanted, const char *path, clv_error *err);
