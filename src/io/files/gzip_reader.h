/* gzip_reader.h - gzip reader: bytes of a file or pipe, decompressed if gzip (multi-member, bgzip), strict about
 * damage.
 *
 * Members that follow each other are one text, as bgzip and `cat` make them; zeros may stand behind a member. Anything
 * else there is damage, and an error: zlib's gzread takes it for the end, so that the rest would be missing unsaid.
 */
#ifndef CLEAVE_IO_FILES_GZIP_READER_H
#define CLEAVE_IO_FILES_GZIP_READER_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_gzip_reader clv_gzip_reader;

/* The descriptor is the reader's from here on, also where this fails. `name` is for messages, and outlives it. */
clv_status clv_gzip_reader_open(clv_gzip_reader **out, int fd, const char *name, clv_error *err);
/* NULL is a no-op. */
void clv_gzip_reader_close(clv_gzip_reader *in);
/* Reads `size` bytes, fewer at the end alone. @return CLV_EFORMAT for what is cut or damaged; CLV_EIO, CLV_ENOMEM */
clv_status clv_gzip_reader_read(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err);
/* Bytes that were taken of the file as it lies on the disk; 0 where nobody can say. */
int64_t clv_gzip_reader_position(const clv_gzip_reader *in);

#endif
