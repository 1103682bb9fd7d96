/* gzip_reader.h - gzip reader: bytes of a file or pipe, decompressed if gzip (multi-member, bgzip), strict about
 * damage.
 *
 * Consecutive members are one text, as bgzip and `cat` write them; zeros may follow a member. Anything else there is an
 * error: zlib's gzread would take it for the end and silently drop the rest.
 */
#pragma once

#include "cleave/status.h"

typedef struct clv_gzip_reader clv_gzip_reader;

/* Takes ownership of fd, also on failure. `name` is for messages and must outlive the reader. */
clv_status clv_gzip_reader_open(clv_gzip_reader **out, int fd, const char *name, clv_error *err);
/* Does nothing for NULL. */
void clv_gzip_reader_close(clv_gzip_reader *in);
/* Reads `size` bytes, fewer only at the end. @return CLV_EFORMAT for truncated or damaged files; CLV_EIO, CLV_ENOMEM */
clv_status clv_gzip_reader_read(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err);
/* Returns the bytes of the (compressed) file that were consumed; 0 if unknown. */
int64_t clv_gzip_reader_position(const clv_gzip_reader *in);
