/* gzip_reader.c - gzip reader: bytes of a file or pipe, decompressed if gzip (multi-member, bgzip), strict about
 * damage.
 */
#include "io/files/gzip_reader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"

enum { BUFFER = 1 << 18, MOST_AT_ONCE = 1 << 28, GZIP_WINDOW = 16 + MAX_WBITS };

struct clv_gzip_reader {
    int fd;
    const char *name;
    bool known, zipped; /* whether it is compressed, when its first bytes have been read */
    bool ended;         /* of the file */
    bool within;        /* a member has begun that has not ended */
    z_stream z;         /* next_in, avail_in: what was read and not taken, also of what is not compressed */
    unsigned char ahead[BUFFER];
};

clv_status clv_gzip_reader_open(clv_gzip_reader **out, int fd, const char *name, clv_error *err)
{
    clv_gzip_reader *in = calloc(1, sizeof *in);
    if (!in || inflateInit2(&in->z, GZIP_WINDOW) != Z_OK) {
        free(in);
        close(fd);
        return clv_fail_memory(err, name, sizeof *in);
    }
    in->fd = fd;
    in->name = name;
    *out = in;
    return CLV_OK;
}

void clv_gzip_reader_close(clv_gzip_reader *in)
{
    if (!in)
        return;
    inflateEnd(&in->z);
    close(in->fd);
    free(in);
}

/* Reads on, where nothing is left of what was read, until `least` bytes are there or the file ends. */
static clv_status fill(clv_gzip_reader *in, unsigned least, clv_error *err)
{
    if (in->z.avail_in == 0)
        in->z.next_in = in->ahead;
    while (!in->ended && in->z.avail_in < least) {
        ssize_t got = read(in->fd, in->z.next_in + in->z.avail_in, BUFFER - in->z.avail_in);
        if (got < 0 && errno != EINTR)
            return clv_fail_errno(err, "read", in->name);
        in->ended = got == 0;
        in->z.avail_in += got > 0 ? (unsigned)got : 0;
    }
    return CLV_OK;
}

/* What the first two bytes say. */
static clv_status detect_gzip(clv_gzip_reader *in, clv_error *err)
{
    CLV_TRY(fill(in, 2, err));
    in->zipped = in->z.avail_in >= 2 && in->z.next_in[0] == 0x1f && in->z.next_in[1] == 0x8b;
    in->within = in->zipped;
    in->known = true;
    return CLV_OK;
}

static clv_status damaged(const clv_gzip_reader *in, const char *why, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: cannot be decompressed%s%s", in->name, why ? ": " : "", why ? why : "");
}

/* Behind a member: passes over zeros, and begins the next one where there is more. */
static clv_status next_member(clv_gzip_reader *in, clv_error *err)
{
    do {
        CLV_TRY(fill(in, 1, err));
        while (in->z.avail_in > 0 && *in->z.next_in == 0) {
            in->z.next_in++;
            in->z.avail_in--;
        }
    } while (in->z.avail_in == 0 && !in->ended);
    in->within = in->z.avail_in > 0;
    return in->within && inflateReset(&in->z) != Z_OK ? damaged(in, in->z.msg, err) : CLV_OK;
}

/* Some bytes more, where the file does not end here. */
static clv_status inflate_some(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err)
{
    CLV_TRY(in->within ? CLV_OK : next_member(in, err));
    *n = 0;
    if (!in->within)
        return CLV_OK;
    CLV_TRY(fill(in, 1, err));
    if (in->z.avail_in == 0)
        return damaged(in, "unexpected end of file", err);
    in->z.next_out = (unsigned char *)out;
    in->z.avail_out = size < MOST_AT_ONCE ? (unsigned)size : MOST_AT_ONCE;
    unsigned room = in->z.avail_out;
    int code = inflate(&in->z, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR)
        return clv_fail_memory(err, in->name, BUFFER);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return damaged(in, in->z.msg, err);
    in->within = code != Z_STREAM_END;
    *n = room - in->z.avail_out;
    return CLV_OK;
}

/* The same of what is not compressed. */
static clv_status copy_some(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err)
{
    CLV_TRY(fill(in, 1, err));
    *n = in->z.avail_in < size ? in->z.avail_in : size;
    memcpy(out, in->z.next_in, *n);
    in->z.next_in += *n;
    in->z.avail_in -= (unsigned)*n;
    return CLV_OK;
}

static bool at_end(const clv_gzip_reader *in)
{
    return in->ended && in->z.avail_in == 0 && !in->within;
}

clv_status clv_gzip_reader_read(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err)
{
    size_t got;
    CLV_TRY(in->known ? CLV_OK : detect_gzip(in, err));
    for (*n = 0; *n < size && !at_end(in); *n += got)
        CLV_TRY((in->zipped ? inflate_some : copy_some)(in, out + *n, size - *n, &got, err));
    return CLV_OK;
}

int64_t clv_gzip_reader_position(const clv_gzip_reader *in)
{
    off_t at = lseek(in->fd, 0, SEEK_CUR);
    return at > 0 ? (int64_t)at - in->z.avail_in : 0;
}
