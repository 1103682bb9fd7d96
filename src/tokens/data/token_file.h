/* token_file.h - token file format: 64-byte header, ids, optional loss-mask bits; memory-mapped reader.
 *
 *   bytes   0  "CLVTOKEN"
 *           8  u32 version, 1               12  u32 bytes of an id: 2 or 4
 *          16  u64 number of ids            24  u32 vocabulary: every id is below
 *          28  i32 id behind each document, -1: none
 *          32  u64 flags: 1 = a bit of each id follows them
 *          40  XXH3 (128 bits) of all behind the header; zeros: not known
 *          56  the first 8 bytes of XXH3 (128 bits) of the 56 before; zeros: not known
 *          64  ids, then the bits: 1 = this id is learned, lowest bit first
 *
 * all little-endian, checksums in the order of their digits. Files are not trusted.
 */
#ifndef CLEAVE_TOKENS_DATA_TOKEN_FILE_H
#define CLEAVE_TOKENS_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/data.h"
#include "io/files/checksum.h"

enum { CLV_TOKEN_FILE_HEADER_SIZE = 64, CLV_TOKEN_FILE_DIGEST_SIZE = 16 };

typedef struct clv_token_file_header {
    int width;     /* bytes of an id */
    int64_t count; /* ids */
    int64_t vocab, end;
    bool masked;
    uint8_t digest[CLV_TOKEN_FILE_DIGEST_SIZE]; /* zeros: not known */
} clv_token_file_header;

void clv_token_file_header_write(uint8_t out[CLV_TOKEN_FILE_HEADER_SIZE], const clv_token_file_header *header);
/* Of a file of `size` bytes. @return CLV_EFORMAT, CLV_EUNSUPPORTED */
clv_status clv_token_file_header_read(clv_token_file_header *out, const uint8_t bytes[CLV_TOKEN_FILE_HEADER_SIZE],
                                      uint64_t size, const char *path, clv_error *err);
/* The digits of a checksum as bytes. */
void clv_token_file_digest_from_hex(uint8_t out[CLV_TOKEN_FILE_DIGEST_SIZE], const char digits[CLV_CHECKSUM_SIZE]);

typedef struct clv_token_file {
    char *path;
    clv_token_file_header header;
    const uint8_t *map; /* of the whole file, or its own memory */
    bool own;
    uint64_t size;
} clv_token_file;

/* Maps a file and reads all of it once: the digest is known then. vocab 0: the file's own.
 * @return as clv_data_open */
clv_status clv_token_file_open(clv_token_file *out, const char *path, int64_t vocab, clv_error *err);
/* The same of what such a file would hold, malloc'd, which becomes the object's, whether it succeeds or not. */
clv_status clv_token_file_open_memory(clv_token_file *out, const char *path, uint8_t *image, uint64_t size,
                                      int64_t vocab, clv_error *err);
/* One of zeros is none. */
void clv_token_file_close(clv_token_file *file);
/* Ids [first, first + n). */
clv_status clv_token_file_read(const clv_token_file *file, int64_t first, int64_t n, int32_t *ids, clv_error *err);
/* Labels of the same: ids where they are learned, else CLV_IGNORE_INDEX. */
clv_status clv_token_file_read_labels(const clv_token_file *file, int64_t first, int64_t n, int32_t *labels,
                                      clv_error *err);

/* ---- token_file_writer.c ---- */

/* As clv_token_writer_create, but into memory, which clv_token_writer_finish_memory hands out instead of a commit,
 * malloc'd, and frees the writer. `path` names it in messages. */
clv_status clv_token_writer_create_memory(clv_token_writer **out, const char *path,
                                          const clv_token_writer_options *options, clv_error *err);
clv_status clv_token_writer_finish_memory(clv_token_writer *writer, uint8_t **image, uint64_t *size, clv_error *err);

#endif
