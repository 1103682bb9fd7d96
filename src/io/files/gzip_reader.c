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
    bool detected;  /* the first bytes have been read, and `is_gzip` is set */
    bool is_gzip;   /* the file is compressed */
    bool at_eof;    /* the end of the file was read */
    bool in_member; /* within a gzip member */
    z_stream z;     /* next_in, avail_in: bytes read and not consumed, also of uncompressed files */
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

/* Reads until at least `least` bytes are available or the file ends. */
static clv_status fill(clv_gzip_reader *in, unsigned least, clv_error *err)
{
    if (in->z.avail_in == 0)
        in->z.next_in = in->ahead;
    while (!in->at_eof && in->z.avail_in < least) {
        ssize_t got = read(in->fd, in->z.next_in + in->z.avail_in, BUFFER - in->z.avail_in);
        if (got < 0 && errno != EINTR)
            return clv_fail_errno(err, "read", in->name);
        in->at_eof = got == 0;
        in->z.avail_in += got > 0 ? (unsigned)got : 0;
    }
    return CLV_OK;
}

/* Sets is_gzip by the first two bytes. */
static clv_status detect_gzip(clv_gzip_reader *in, clv_error *err)
{
    CLV_TRY(fill(in, 2, err));
    in->is_gzip = in->z.avail_in >= 2 && in->z.next_in[0] == 0x1f && in->z.next_in[1] == 0x8b;
    in->in_member = in->is_gzip;
    in->detected = true;
    return CLV_OK;
}

static clv_status damaged(const clv_gzip_reader *in, const char *why, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: cannot be decompressed%s%s", in->name, why ? ": " : "", why ? why : "");
}

/* Behind a member: skips zeros, and begins the next member if a byte other than 0 follows. Zeros up to the end of the
 * buffer begin none; the caller goes on with the next buffer. */
static clv_status next_member(clv_gzip_reader *in, clv_error *err)
{
    CLV_TRY(fill(in, 1, err));
    while (in->z.avail_in > 0 && *in->z.next_in == 0) {
        in->z.next_in++;
        in->z.avail_in--;
    }
    in->in_member = in->z.avail_in > 0;
    return in->in_member && inflateReset(&in->z) != Z_OK ? damaged(in, in->z.msg, err) : CLV_OK;
}

/* Decompresses some bytes into out; *n may be 0 before the end. */
static clv_status inflate_some(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err)
{
    CLV_TRY(in->in_member ? CLV_OK : next_member(in, err));
    *n = 0;
    if (!in->in_member)
        return CLV_OK;
    CLV_TRY(fill(in, 1, err));
    if (in->z.avail_in == 0)
        return damaged(in, "unexpected end of file", err);
    in->z.next_out = (unsigned char *)out;
    in->z.avail_out = size < MOST_AT_ONCE ? (unsigned)size : MOST_AT_ONCE;
    unsigned capacity = in->z.avail_out;
    int code = inflate(&in->z, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR)
        return clv_fail_memory(err, in->name, BUFFER);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return damaged(in, in->z.msg, err);
    in->in_member = code != Z_STREAM_END;
    *n = capacity - in->z.avail_out;
    return CLV_OK;
}

/* Copies some bytes of a file that is not compressed. */
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
    return in->at_eof && in->z.avail_in == 0 && !in->in_member;
}

clv_status clv_gzip_reader_read(clv_gzip_reader *in, char *out, size_t size, size_t *n, clv_error *err)
{
    size_t got;
    CLV_TRY(in->detected ? CLV_OK : detect_gzip(in, err));
    for (*n = 0; *n < size && !at_end(in); *n += got)
        CLV_TRY((in->is_gzip ? inflate_some : copy_some)(in, out + *n, size - *n, &got, err));
    return CLV_OK;
}

int64_t clv_gzip_reader_position(const clv_gzip_reader *in)
{
    off_t at = lseek(in->fd, 0, SEEK_CUR);
    return at > 0 ? (int64_t)at - in->z.avail_in : 0;
}
