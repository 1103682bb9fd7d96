/* token_file.c - token file reader: checks the header and checksum, maps the ids. */
#include "tokens/data/token_file.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file.h"

static const char magic[8] = {'C', 'L', 'V', 'T', 'O', 'K', 'E', 'N'};
static const uint8_t unknown[CLV_TOKEN_FILE_DIGEST_SIZE];

enum { VERSION = 1, MASKED = 1, CHECKED_HEADER_BYTES = 56, READ = 1 << 20 /* bytes at once */ };

/* ---- the header ---- */

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

void clv_token_file_digest_from_hex(uint8_t out[CLV_TOKEN_FILE_DIGEST_SIZE], const char digits[CLV_CHECKSUM_SIZE])
{
    for (size_t i = 0; i < CLV_TOKEN_FILE_DIGEST_SIZE; i++) {
        const char pair[] = {digits[2 * i], digits[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

static void header_checksum(uint8_t out[CLV_TOKEN_FILE_DIGEST_SIZE], const uint8_t bytes[CLV_TOKEN_FILE_HEADER_SIZE])
{
    char digits[CLV_CHECKSUM_SIZE];
    clv_checksum_of(digits, bytes, CHECKED_HEADER_BYTES);
    clv_token_file_digest_from_hex(out, digits);
}

void clv_token_file_header_write(uint8_t out[CLV_TOKEN_FILE_HEADER_SIZE], const clv_token_file_header *h)
{
    uint8_t digest[CLV_TOKEN_FILE_DIGEST_SIZE];
    memcpy(out, magic, sizeof magic);
    put32(out + 8, VERSION);
    put32(out + 12, (uint32_t)h->width);
    put64(out + 16, (uint64_t)h->count);
    put32(out + 24, (uint32_t)h->vocab);
    put32(out + 28, (uint32_t)(int32_t)h->end);
    put64(out + 32, h->masked ? MASKED : 0);
    memcpy(out + 40, h->digest, sizeof h->digest);
    header_checksum(digest, out);
    memcpy(out + CHECKED_HEADER_BYTES, digest, CLV_TOKEN_FILE_HEADER_SIZE - CHECKED_HEADER_BYTES);
}

static uint64_t mask_bytes(const clv_token_file_header *h)
{
    return h->masked ? ((uint64_t)h->count + 7) / 8 : 0;
}

/* Numbers that are not trusted: no product of them is made before it is known to fit. */
static clv_status check_header(const clv_token_file_header *h, const uint8_t *bytes, uint64_t size, const char *path,
                               clv_error *err)
{
    uint64_t count = get64(bytes + 16), flags = get64(bytes + 32);
    if (h->width != 2 && h->width != 4)
        return clv_fail(err, CLV_EFORMAT, "%s: ids of %u bytes; valid: 2, 4", path, get32(bytes + 12));
    if (h->vocab < 1 || h->vocab > INT32_MAX || h->end < -1 || h->end >= h->vocab)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: a vocabulary of %u and %d behind documents; valid: 1 to %d, and -1 or "
                        "an id",
                        path, get32(bytes + 24), (int)get32(bytes + 28), INT32_MAX);
    if (flags > MASKED)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: flags %llu; valid: 0, 1", path, (unsigned long long)flags);
    if (count == 0)
        return clv_fail(err, CLV_EINVAL, "%s: holds no id, there is nothing to train on", path);
    if (count > (size - CLV_TOKEN_FILE_HEADER_SIZE) / (uint64_t)h->width ||
        CLV_TOKEN_FILE_HEADER_SIZE + count * (uint64_t)h->width + mask_bytes(h) != size)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: has %llu bytes, and not those of the %llu ids that its header says: is "
                        "it cut?",
                        path, (unsigned long long)size, (unsigned long long)count);
    return CLV_OK;
}

clv_status clv_token_file_header_read(clv_token_file_header *out, const uint8_t bytes[CLV_TOKEN_FILE_HEADER_SIZE],
                                      uint64_t size, const char *path, clv_error *err)
{
    uint8_t digest[CLV_TOKEN_FILE_DIGEST_SIZE];
    if (size < CLV_TOKEN_FILE_HEADER_SIZE || memcmp(bytes, magic, sizeof magic) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: no token file: it does not begin with %.8s (cleave data makes one)",
                        path, magic);
    if (get32(bytes + 8) != VERSION)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: version %u of token files; valid: %d", path, get32(bytes + 8),
                        VERSION);
    header_checksum(digest, bytes);
    if (memcmp(bytes + CHECKED_HEADER_BYTES, unknown, CLV_TOKEN_FILE_HEADER_SIZE - CHECKED_HEADER_BYTES) != 0 &&
        memcmp(bytes + CHECKED_HEADER_BYTES, digest, CLV_TOKEN_FILE_HEADER_SIZE - CHECKED_HEADER_BYTES) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: its header is not what its checksum says: the file is damaged", path);
    clv_token_file_header h = {.width = (int)get32(bytes + 12),
                               .count = (int64_t)get64(bytes + 16),
                               .vocab = get32(bytes + 24),
                               .end = (int32_t)get32(bytes + 28),
                               .masked = get64(bytes + 32) == MASKED};
    memcpy(h.digest, bytes + 40, sizeof h.digest);
    CLV_TRY(check_header(&h, bytes, size, path, err));
    *out = h;
    return CLV_OK;
}

/* ---- a file that is mapped ---- */

static clv_status map(clv_token_file *f, clv_error *err)
{
    uint8_t header[CLV_TOKEN_FILE_HEADER_SIZE] = {0};
    int fd;
    CLV_TRY(clv_file_open(&fd, &f->size, f->path, err));
    size_t there = f->size < sizeof header ? (size_t)f->size : sizeof header;
    clv_status status = f->size == 0 ? clv_fail(err, CLV_EINVAL, "%s: empty, there is nothing to train on", f->path)
                                     : clv_file_read_at(fd, header, there, 0, f->path, err);
    if (status == CLV_OK)
        status = clv_token_file_header_read(&f->header, header, f->size, f->path, err);
    if (status == CLV_OK) {
        void *at = mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, fd, 0);
        f->map = at == MAP_FAILED ? NULL : at;
        status = f->map ? CLV_OK : clv_fail_errno(err, "map", f->path);
    }
    close(fd);
    return status;
}

static int32_t id_at(const uint8_t *bytes, int width, int64_t i)
{
    uint16_t narrow;
    if (width == 4)
        return (int32_t)get32(bytes + 4 * i);
    memcpy(&narrow, bytes + 2 * i, sizeof narrow);
    return le16toh(narrow);
}

static clv_status check_ids(const clv_token_file *f, const uint8_t *bytes, int64_t first, int64_t n, int64_t vocab,
                            clv_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)id_at(bytes, f->header.width, i);
        if (id >= vocab)
            return clv_fail(err, CLV_EINVAL, "%s: id %u at %lld; the vocabulary is 0 to %lld", f->path, id,
                            (long long)(first + i), (long long)vocab - 1);
    }
    return CLV_OK;
}

/* All that is behind the header, a piece at a time: what the file holds is known to be good then. */
static clv_status verify_body(clv_token_file *f, int64_t vocab, clv_checksum *sum, uint8_t *piece, clv_error *err)
{
    const clv_token_file_header *h = &f->header;
    uint64_t ids_end = CLV_TOKEN_FILE_HEADER_SIZE + (uint64_t)h->count * (uint64_t)h->width;
    for (uint64_t at = CLV_TOKEN_FILE_HEADER_SIZE; at < f->size;) {
        uint64_t end = at < ids_end ? ids_end : f->size;
        size_t n = end - at < READ ? (size_t)(end - at) : READ;
        CLV_TRY(clv_file_copy_mapped(piece, f->map + at, n, f->path, err));
        clv_checksum_add(sum, piece, n);
        if (at < ids_end)
            CLV_TRY(check_ids(f, piece, (int64_t)(at - CLV_TOKEN_FILE_HEADER_SIZE) / h->width, (int64_t)n / h->width,
                              vocab, err));
        at += n;
    }
    return CLV_OK;
}

static clv_status verify(clv_token_file *f, int64_t vocab, clv_error *err)
{
    clv_token_file_header *h = &f->header;
    clv_checksum *sum = clv_checksum_new();
    uint8_t *piece = malloc(READ), digest[CLV_TOKEN_FILE_DIGEST_SIZE];
    clv_status status = sum && piece ? verify_body(f, vocab, sum, piece, err) : clv_fail_memory(err, f->path, READ);
    if (status == CLV_OK) {
        char digits[CLV_CHECKSUM_SIZE];
        clv_checksum_text(digits, sum);
        clv_token_file_digest_from_hex(digest, digits);
        if (memcmp(h->digest, unknown, sizeof unknown) != 0 && memcmp(h->digest, digest, sizeof digest) != 0)
            status =
                clv_fail(err, CLV_EFORMAT, "%s: its ids are not what its checksum says: the file is damaged", f->path);
        memcpy(h->digest, digest, sizeof digest);
    }
    clv_checksum_free(sum);
    free(piece);
    return status;
}

clv_status clv_token_file_open(clv_token_file *out, const char *path, int64_t vocab, clv_error *err)
{
    *out = (clv_token_file){.path = strdup(path)};
    clv_status status = out->path ? map(out, err) : clv_fail_memory(err, path, strlen(path));
    if (status == CLV_OK)
        status = verify(out, vocab ? vocab : out->header.vocab, err);
    if (status != CLV_OK)
        clv_token_file_close(out);
    return status;
}

clv_status clv_token_file_open_memory(clv_token_file *out, const char *path, uint8_t *image, uint64_t size,
                                      int64_t vocab, clv_error *err)
{
    *out = (clv_token_file){.path = strdup(path), .map = image, .own = true, .size = size};
    clv_status status = out->path ? clv_token_file_header_read(&out->header, image, size, path, err)
                                  : clv_fail_memory(err, path, strlen(path));
    if (status == CLV_OK)
        status = verify(out, vocab ? vocab : out->header.vocab, err);
    if (status != CLV_OK)
        clv_token_file_close(out);
    return status;
}

void clv_token_file_close(clv_token_file *f)
{
    if (f->own)
        free((void *)f->map);
    else if (f->map)
        munmap((void *)f->map, (size_t)f->size);
    free(f->path);
    *f = (clv_token_file){0};
}

clv_status clv_token_file_read(const clv_token_file *f, int64_t first, int64_t n, int32_t *ids, clv_error *err)
{
    int width = f->header.width;
    const uint8_t *from = f->map + CLV_TOKEN_FILE_HEADER_SIZE + first * width;
    uint8_t *bytes = (uint8_t *)ids; /* narrow ids stand in the upper half, and are read before they are overwritten */
    bytes += (4 - width) * n;
    CLV_TRY(clv_file_copy_mapped(bytes, from, (size_t)(n * width), f->path, err));
    for (int64_t i = 0; i < n; i++)
        ids[i] = id_at(bytes, width, i);
    return CLV_OK;
}

clv_status clv_token_file_read_labels(const clv_token_file *f, int64_t first, int64_t n, int32_t *labels,
                                      clv_error *err)
{
    enum { BITS = 8, AT_ONCE = 512 };
    const uint8_t *mask = f->map + CLV_TOKEN_FILE_HEADER_SIZE + f->header.count * f->header.width;
    uint8_t bits[AT_ONCE + 1];
    for (int64_t i = 0; f->header.masked && i < n;) {
        int64_t at = first + i, take = n - i < (int64_t)AT_ONCE * BITS ? n - i : (int64_t)AT_ONCE * BITS;
        int64_t bytes = (at % BITS + take + BITS - 1) / BITS;
        CLV_TRY(clv_file_copy_mapped(bits, mask + at / BITS, (size_t)bytes, f->path, err));
        for (int64_t k = 0; k < take; k++) {
            int64_t bit = at % BITS + k;
            if (!(bits[bit / BITS] >> bit % BITS & 1))
                labels[i + k] = CLV_IGNORE_INDEX;
        }
        i += take;
    }
    return CLV_OK;
}
