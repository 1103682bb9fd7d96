/* zip_archive.c - zip archives: the directory at the end, then entries, inflated by zlib.
 *
 * Source: PKWARE's APPNOTE.TXT 6.3.10, 4.3 (records) and 4.5.3 (Zip64).
 */
#include "io/files/zip_archive.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/error.h"
#include "io/files/file.h"

enum {
    LOCAL = 0x04034b50,
    CENTRAL = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR64 = 0x07064b50,
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR64_SIZE = 20,
    COMMENT_MOST = 65535,
    DIRECTORY_MOST = 1 << 28,
    INFLATE_MOST = 1032 /* times the packed size: what deflate reaches at most */
};

static uint64_t number(const unsigned char *p, int size)
{
    uint64_t n = 0;
    for (int i = size - 1; i >= 0; i--)
        n = n << 8 | p[i];
    return n;
}

static clv_status damaged(const clv_zip_archive *a, clv_error *err, const char *what)
{
    return clv_fail(err, CLV_EFORMAT, "%s: a damaged or truncated zip archive: %s", a->where, what);
}

/* Reads bytes of the archive; fails with `what` if it does not have them. */
static clv_status read_at(void *out, const clv_zip_archive *a, uint64_t at, uint64_t size, const char *what,
                          clv_error *err)
{
    if (at > a->size || size > a->size - at)
        return damaged(a, err, what);
    if (!a->bytes)
        return clv_file_read_at(a->fd, out, size, at, a->where, err);
    memcpy(out, a->bytes + at, size);
    return CLV_OK;
}

bool clv_zip_is_archive(const void *p, size_t size)
{
    return size >= 4 && number(p, 4) == LOCAL;
}

/* ---- the directory ---- */

typedef struct directory {
    uint64_t at, size, n;
} directory;

static clv_status read_end64(directory *d, const clv_zip_archive *a, uint64_t end, clv_error *err)
{
    unsigned char locator[LOCATOR64_SIZE], record[END64_SIZE];
    if (end < LOCATOR64_SIZE)
        return damaged(a, err, "no Zip64 locator");
    CLV_TRY(read_at(locator, a, end - LOCATOR64_SIZE, sizeof locator, "no Zip64 locator", err));
    if (number(locator, 4) != LOCATOR64)
        return damaged(a, err, "no Zip64 locator");
    CLV_TRY(read_at(record, a, number(locator + 8, 8), sizeof record, "no Zip64 end of its directory", err));
    if (number(record, 4) != END64)
        return damaged(a, err, "no Zip64 end of its directory");
    *d = (directory){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8)};
    return CLV_OK;
}

/* The last record of the archive, before a comment. */
static clv_status read_end(directory *d, const clv_zip_archive *a, clv_error *err)
{
    uint64_t most = END_SIZE + COMMENT_MOST, n = a->size < most ? a->size : most, at = n - END_SIZE;
    CLV_FREED unsigned char *tail = malloc(n + 1);
    if (!tail)
        return clv_fail_memory(err, a->where, n);
    CLV_TRY(read_at(tail, a, a->size - n, n, "", err));
    if (n < END_SIZE)
        return damaged(a, err, "no end of its directory");
    while (number(tail + at, 4) != END || at + END_SIZE + number(tail + at + 20, 2) != n)
        if (at-- == 0)
            return damaged(a, err, "no end of its directory");
    const unsigned char *p = tail + at;
    *d = (directory){number(p + 16, 4), number(p + 12, 4), number(p + 10, 2)};
    if (number(p + 4, 2) != number(p + 6, 2))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: a zip archive of several disks", a->where);
    if (d->at == UINT32_MAX || d->size == UINT32_MAX || d->n == UINT16_MAX)
        CLV_TRY(read_end64(d, a, a->size - n + at, err));
    if (d->size > DIRECTORY_MOST || d->n > d->size / CENTRAL_SIZE)
        return damaged(a, err, "its directory does not fit");
    return CLV_OK;
}

/* The 64-bit values of the extra field, for those of 32 bits that are all ones: size, packed size, offset. */
static bool read_extra(uint64_t *values[3], const unsigned char *p, uint64_t size)
{
    while (size >= 4) {
        uint64_t id = number(p, 2), length = number(p + 2, 2);
        if (length > size - 4)
            return false;
        const unsigned char *field = p + 4, *end = field + length;
        for (int i = 0; id == 1 && i < 3; i++)
            if (*values[i] == UINT32_MAX) {
                if (end - field < 8)
                    return false;
                *values[i] = number(field, 8);
                field += 8;
            }
        p += 4 + length;
        size -= 4 + length;
    }
    return true;
}

/* The bytes of an entry follow its local header, at `local`. */
static clv_status find_bytes(clv_zip_entry *e, const clv_zip_archive *a, uint64_t local, clv_error *err)
{
    unsigned char header[LOCAL_SIZE];
    CLV_TRY(read_at(header, a, local, sizeof header, "an entry without a header", err));
    if (number(header, 4) != LOCAL)
        return damaged(a, err, "an entry without a header");
    e->at = local + LOCAL_SIZE + number(header + 26, 2) + number(header + 28, 2);
    return e->at > a->size || e->packed_size > a->size - e->at ? damaged(a, err, "an entry that does not fit") : CLV_OK;
}

/* An entry of the directory at *p, which is moved behind it; *names: where names are copied. */
static clv_status read_entry(clv_zip_entry *e, char **names, const clv_zip_archive *a, const unsigned char **p,
                             const unsigned char *end, clv_error *err)
{
    const unsigned char *h = *p;
    uint64_t left = (uint64_t)(end - h);
    if (left < CENTRAL_SIZE || number(h, 4) != CENTRAL)
        return damaged(a, err, "its directory ends early");
    uint64_t flags = number(h + 8, 2), method = number(h + 10, 2), name = number(h + 28, 2), extra = number(h + 30, 2),
             size = number(h + 24, 4), packed = number(h + 20, 4), local = number(h + 42, 4);
    uint64_t whole = CENTRAL_SIZE + name + extra + number(h + 32, 2);
    if (left < whole || !read_extra((uint64_t *[3]){&size, &packed, &local}, h + CENTRAL_SIZE + name, extra))
        return damaged(a, err, "its directory ends early");
    *e = (clv_zip_entry){*names, 0, packed, size, (uint32_t)number(h + 16, 4), method == 8};
    memcpy(*names, h + CENTRAL_SIZE, name);
    (*names)[name] = '\0';
    *names += name + 1;
    *p += whole;
    if (flags & 1)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: %.200s is encrypted", a->where, e->name);
    if (method != 0 && method != 8)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: %.200s has compression %d; stored and deflated entries are read",
                        a->where, e->name, (int)method);
    if (method == 0 ? size != packed : size / INFLATE_MOST > packed)
        return damaged(a, err, "an entry whose sizes do not fit");
    return find_bytes(e, a, local, err);
}

clv_status clv_zip_open(clv_zip_archive *a, clv_error *err)
{
    directory d;
    CLV_TRY(read_end(&d, a, err));
    CLV_FREED unsigned char *text = malloc(d.size + 1);
    char *names = a->names = malloc(d.size + 1); /* a name and its end need less than an entry of the directory */
    a->entries = calloc(d.n + 1, sizeof *a->entries);
    clv_status status = text && names && a->entries ? CLV_OK : clv_fail_memory(err, a->where, d.size);
    if (status == CLV_OK)
        status = read_at(text, a, d.at, d.size, "its directory does not fit", err);
    const unsigned char *p = text;
    for (a->n = 0; status == CLV_OK && (uint64_t)a->n < d.n; a->n++)
        status = read_entry(&a->entries[a->n], &names, a, &p, text + d.size, err);
    if (status != CLV_OK)
        clv_zip_close(a);
    return status;
}

void clv_zip_close(clv_zip_archive *a)
{
    free(a->names);
    free(a->entries);
    a->names = NULL;
    a->entries = NULL;
    a->n = 0;
}

const clv_zip_entry *clv_zip_find(const clv_zip_archive *a, const char *name)
{
    for (int64_t i = 0; i < a->n; i++)
        if (strcmp(a->entries[i].name, name) == 0)
            return &a->entries[i];
    return NULL;
}

/* ---- reading ---- */

enum { CHUNK = 1 << 30 /* zlib counts in 32 bits */ };

static unsigned part(uint64_t size, uint64_t done)
{
    return (unsigned)(size - done < CHUNK ? size - done : CHUNK);
}

static bool inflate_all(unsigned char *out, unsigned char *packed, const clv_zip_entry *e)
{
    z_stream s = {0};
    uint64_t in = 0, made = 0;
    int code = inflateInit2(&s, -MAX_WBITS);
    if (code != Z_OK)
        return false;
    while (code == Z_OK) {
        if (s.avail_in == 0) {
            s.next_in = packed + in;
            s.avail_in = part(e->packed_size, in);
            in += s.avail_in;
        }
        if (s.avail_out == 0) {
            s.next_out = out + made;
            s.avail_out = part(e->size, made);
            made += s.avail_out;
        }
        code = inflate(&s, Z_NO_FLUSH); /* Z_BUF_ERROR: nothing left to read, or no room */
    }
    bool whole = code == Z_STREAM_END && made == e->size && s.avail_out == 0 && in == e->packed_size && s.avail_in == 0;
    inflateEnd(&s);
    return whole;
}

static uint32_t checksum(const unsigned char *p, uint64_t size)
{
    uLong sum = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < size; at += CHUNK)
        sum = crc32(sum, p + at, part(size, at));
    return (uint32_t)sum;
}

clv_status clv_zip_read_part(void *out, const clv_zip_archive *a, const clv_zip_entry *e, uint64_t at, size_t size,
                             clv_error *err)
{
    return read_at(out, a, e->at + at, size, e->name, err);
}

clv_status clv_zip_read(void *out, const clv_zip_archive *a, const clv_zip_entry *e, clv_error *err)
{
    if (!e->deflated)
        CLV_TRY(clv_zip_read_part(out, a, e, 0, e->size, err));
    else {
        CLV_FREED unsigned char *packed = malloc(e->packed_size + 1);
        if (!packed)
            return clv_fail_memory(err, e->name, e->packed_size);
        CLV_TRY(clv_zip_read_part(packed, a, e, 0, e->packed_size, err));
        if (!inflate_all(out, packed, e))
            return clv_fail(err, CLV_EFORMAT, "%s: %.200s is damaged", a->where, e->name);
    }
    if (checksum(out, e->size) != e->checksum)
        return clv_fail(err, CLV_EFORMAT, "%s: %.200s is damaged: its checksum differs", a->where, e->name);
    return CLV_OK;
}
