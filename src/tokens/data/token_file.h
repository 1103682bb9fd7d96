/* token_file.h - token file format: 64-byte header, ids, optional loss-mask bits; memory-mapped reader.
 *
 * docs/data.md describes the format, version 1. Files are not trusted.
 */
#pragma once

#include <stdbool.h>

#include "cleave/data.h"
#include "io/files/checksum.h"

enum { CLV_TOKEN_FILE_HEADER_SIZE = 64, CLV_TOKEN_FILE_DIGEST_SIZE = 16 };

typedef struct clv_token_file_header {
    int width;                                  /* bytes of an id: 2 or 4 */
    int64_t count;                              /* ids */
    int64_t vocab, end_id;                      /* every id is below; id that ends a document, -1: none */
    bool has_loss_mask;                         /* a bit of each id follows the ids */
    uint8_t digest[CLV_TOKEN_FILE_DIGEST_SIZE]; /* XXH3 of all after the header; zeros: not known */
} clv_token_file_header;

void clv_token_file_header_write(uint8_t out[CLV_TOKEN_FILE_HEADER_SIZE], const clv_token_file_header *header);
/* Reads the header of a file of `size` bytes. @return CLV_EFORMAT, CLV_EUNSUPPORTED, CLV_EINVAL for no id */
clv_status clv_token_file_header_read(clv_token_file_header *out, const uint8_t bytes[CLV_TOKEN_FILE_HEADER_SIZE],
                                      uint64_t size, const char *path, clv_error *err);
/* A checksum as bytes. */
void clv_token_file_digest(uint8_t out[CLV_TOKEN_FILE_DIGEST_SIZE], const clv_checksum *sum);

typedef struct clv_token_file {
    char *path;
    clv_token_file_header header;
    const uint8_t *map; /* the whole file: mapped, or malloc'd and owned */
    bool owned;
    uint64_t size;
} clv_token_file;

/* Maps a file and verifies ids and checksum; header.digest is known then. vocab 0: the file's. @return clv_data_open's
 */
clv_status clv_token_file_open(clv_token_file *out, const char *path, int64_t vocab, clv_error *err);
/* The same for the content of a file in malloc'd memory, which the object takes over, also after a failure. */
clv_status clv_token_file_open_memory(clv_token_file *out, const char *path, uint8_t *image, uint64_t size,
                                      int64_t vocab, clv_error *err);
/* Does nothing for a zeroed object. */
void clv_token_file_close(clv_token_file *file);
/* Reads ids [first, first + n). */
clv_status clv_token_file_read(const clv_token_file *file, int64_t first, int64_t n, int32_t *ids, clv_error *err);
/* Sets labels [n] of ids [first, first + n) to CLV_IGNORE_INDEX where the loss mask is 0; the others stay. */
clv_status clv_token_file_apply_loss_mask(const clv_token_file *file, int64_t first, int64_t n, int32_t *labels,
                                          clv_error *err);

/* ---- document_index.c ---- */

/* Document starts of a list of token files. */
typedef struct clv_document_index {
    int64_t n, capacity;
    int64_t *first; /* [n + 1] index of each document's first id among the joined files, then the number of ids */
} clv_document_index;

/* Ids after the last end of a file are a document, too.
 * @return CLV_EINVAL for a file without an end id; CLV_EIO, CLV_ENOMEM */
clv_status clv_document_index_build(clv_document_index *out, const clv_token_file *files, int n, clv_error *err);
/* Does nothing for a zeroed index. */
void clv_document_index_free(clv_document_index *documents);

/* ---- token_file_writer.c ---- */

/* clv_token_writer_create into memory; `path` names it in messages. Instead of a commit
 * clv_token_writer_finish_memory returns the malloc'd content and frees the writer. */
clv_status clv_token_writer_create_memory(clv_token_writer **out, const char *path,
                                          const clv_token_writer_options *options, clv_error *err);
clv_status clv_token_writer_finish_memory(clv_token_writer *writer, uint8_t **image, uint64_t *size, clv_error *err);
