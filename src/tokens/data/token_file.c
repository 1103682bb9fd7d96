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
static const uint8_t no_digest[CLV_TOKEN_FILE_DIGEST_SIZE];

enum { VERSION = 1, HAS_LOSS_MASK = 1, READ_BYTES = 1 << 20 };

/* ---- header ---- */

/* The bytes of a file's header, little-endian. */
typedef struct raw_header {
    char magic[8];
    uint32_t version, width;
    uint64_t count;
    uint32_t vocab, end_id;
    uint64_t flags;
    uint8_t digest[CLV_TOKEN_FILE_DIGEST_SIZE];
    uint8_t header_digest[8]; /* of all bytes before it */
} raw_header;
_Static_assert(sizeof(raw_header) == CLV_TOKEN_FILE_HEADER_SIZE, "no padding");

static void digest_of_hex(uint8_t *out, size_t size, const char *hex)
{
    for (size_t i = 0; i < size; i++) {
        const char pair[] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

void clv_token_file_digest(uint8_t out[CLV_TOKEN_FILE_DIGEST_SIZE], const clv_checksum *sum)
{
    char hex[CLV_CHECKSUM_SIZE];
    clv_checksum_text(hex, sum);
    digest_of_hex(out, CLV_TOKEN_FILE_DIGEST_SIZE, hex);
}

static void add_header_digest(raw_header *raw)
{
    char hex[CLV_CHECKSUM_SIZE];
    clv_checksum_of(hex, raw, offsetof(raw_header, header_digest));
    digest_of_hex(raw->header_digest, sizeof raw->header_digest, hex);
}

void clv_token_file_header_write(uint8_t out[CLV_TOKEN_FILE_HEADER_SIZE], const clv_token_file_header *h)
{
    raw_header raw = {.version = htole32(VERSION),
                      .width = htole32((uint32_t)h->width),
                      .count = htole64((uint64_t)h->count),
                      .vocab = htole32((uint32_t)h->vocab),
                      .end_id = htole32((uint32_t)(int32_t)h->end_id),
                      .flags = htole64(h->has_loss_mask ? HAS_LOSS_MASK : 0)};
    memcpy(raw.magic, magic, sizeof magic);
    memcpy(raw.digest, h->digest, sizeof h->digest);
    add_header_digest(&raw);
    memcpy(out, &raw, sizeof raw);
}

/* The file is not trusted: no product of its numbers is made before it is known to fit. */
static clv_status check_header(const clv_token_file_header *h, uint64_t flags, uint64_t size, const char *path,
                               clv_error *err)
{
    uint64_t count = (uint64_t)h->count, body = size - CLV_TOKEN_FILE_HEADER_SIZE;
    if (h->width != 2 && h->width != 4)
        return clv_fail(err, CLV_EFORMAT, "%s: ids of %u bytes; valid: 2, 4", path, (unsigned)h->width);
    if (h->vocab < 1 || h->vocab > INT32_MAX || h->end_id < -1 || h->end_id >= h->vocab)
        return clv_fail(err, CLV_EFORMAT, "%s: a vocabulary of %lld and end id %lld; valid: 1 to %d, and -1 or an id",
                        path, (long long)h->vocab, (long long)h->end_id, INT32_MAX);
    if (flags > HAS_LOSS_MASK)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: flags %llu; valid: 0, 1", path, (unsigned long long)flags);
    if (count == 0)
        return clv_fail(err, CLV_EINVAL, "%s: holds no id, there is nothing to train on", path);
    uint64_t width = (uint64_t)h->width, mask = h->has_loss_mask ? (count + 7) / 8 : 0;
    if (count > body / width || count * width + mask != body)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: has %llu bytes, and not those of the %llu ids that its header says: is it cut?", path,
                        (unsigned long long)size, (unsigned long long)count);
    return CLV_OK;
}

clv_status clv_token_file_header_read(clv_token_file_header *out, const uint8_t bytes[CLV_TOKEN_FILE_HEADER_SIZE],
                                      uint64_t size, const char *path, clv_error *err)
{
    raw_header raw, summed;
    memcpy(&raw, bytes, sizeof raw);
    if (size < CLV_TOKEN_FILE_HEADER_SIZE || memcmp(raw.magic, magic, sizeof magic) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: no token file: it does not begin with %.8s (cleave data makes one)",
                        path, magic);
    if (le32toh(raw.version) != VERSION)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: version %u of token files; valid: %d", path, le32toh(raw.version),
                        VERSION);
    summed = raw;
    add_header_digest(&summed);
    if (memcmp(raw.header_digest, no_digest, sizeof raw.header_digest) != 0 && memcmp(&summed, &raw, sizeof raw) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s: its header is not what its checksum says: the file is damaged", path);
    *out = (clv_token_file_header){.width = (int)le32toh(raw.width),
                                   .count = (int64_t)le64toh(raw.count),
                                   .vocab = le32toh(raw.vocab),
                                   .end_id = (int32_t)le32toh(raw.end_id),
                                   .has_loss_mask = le64toh(raw.flags) == HAS_LOSS_MASK};
    memcpy(out->digest, raw.digest, sizeof raw.digest);
    return check_header(out, le64toh(raw.flags), size, path, err);
}

/* ---- reading ---- */

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
    uint32_t wide;
    if (width == 2) {
        memcpy(&narrow, bytes + 2 * i, sizeof narrow);
        return le16toh(narrow);
    }
    memcpy(&wide, bytes + 4 * i, sizeof wide);
    return (int32_t)le32toh(wide);
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

/* Checks ids and adds up the checksum, a block at a time. */
static clv_status verify_body(clv_token_file *f, int64_t vocab, clv_checksum *sum, uint8_t *block, clv_error *err)
{
    const clv_token_file_header *h = &f->header;
    uint64_t ids_end = CLV_TOKEN_FILE_HEADER_SIZE + (uint64_t)h->count * (uint64_t)h->width;
    for (uint64_t at = CLV_TOKEN_FILE_HEADER_SIZE; at < f->size;) {
        uint64_t end = at < ids_end ? ids_end : f->size;
        size_t n = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
        CLV_TRY(clv_file_copy_mapped(block, f->map + at, n, f->path, err));
        clv_checksum_add(sum, block, n);
        if (at < ids_end)
            CLV_TRY(check_ids(f, block, (int64_t)(at - CLV_TOKEN_FILE_HEADER_SIZE) / h->width, (int64_t)n / h->width,
                              vocab, err));
        at += n;
    }
    return CLV_OK;
}

static clv_status verify(clv_token_file *f, int64_t vocab, clv_error *err)
{
    clv_token_file_header *h = &f->header;
    clv_checksum *sum = clv_checksum_new();
    uint8_t *block = malloc(READ_BYTES), digest[CLV_TOKEN_FILE_DIGEST_SIZE];
    clv_status status =
        sum && block ? verify_body(f, vocab, sum, block, err) : clv_fail_memory(err, f->path, READ_BYTES);
    if (status == CLV_OK) {
        clv_token_file_digest(digest, sum);
        if (memcmp(h->digest, no_digest, sizeof no_digest) != 0 && memcmp(h->digest, digest, sizeof digest) != 0)
            status =
                clv_fail(err, CLV_EFORMAT, "%s: its ids are not what its checksum says: the file is damaged", f->path);
        memcpy(h->digest, digest, sizeof digest);
    }
    clv_checksum_free(sum);
    free(block);
    return status;
}

clv_status clv_token_file_open(clv_token_file *out, const char *path, int64_t vocab, clv_error *err)
{
    return clv_token_file_open_memory(out, path, NULL, 0, vocab, err);
}

clv_status clv_token_file_open_memory(clv_token_file *out, const char *path, uint8_t *image, uint64_t size,
                                      int64_t vocab, clv_error *err)
{
    *out = (clv_token_file){.path = strdup(path), .map = image, .owned = image != NULL, .size = size};
    clv_status status = out->path ? CLV_OK : clv_fail_memory(err, path, strlen(path));
    if (status == CLV_OK)
        status = image ? clv_token_file_header_read(&out->header, image, size, path, err) : map(out, err);
    if (status == CLV_OK)
        status = verify(out, vocab ? vocab : out->header.vocab, err);
    if (status != CLV_OK)
        clv_token_file_close(out);
    return status;
}

void clv_token_file_close(clv_token_file *f)
{
    if (f->owned)
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
    uint8_t *bytes = (uint8_t *)ids; /* ids of 2 bytes go to the upper half, and are read before they are overwritten */
    bytes += (4 - width) * n;
    CLV_TRY(clv_file_copy_mapped(bytes, from, (size_t)(n * width), f->path, err));
    for (int64_t i = 0; i < n; i++)
        ids[i] = id_at(bytes, width, i);
    return CLV_OK;
}

clv_status clv_token_file_apply_loss_mask(const clv_token_file *f, int64_t first, int64_t n, int32_t *labels,
                                          clv_error *err)
{
    enum { BITS = 8, AT_ONCE = 512 };
    const uint8_t *mask = f->map + CLV_TOKEN_FILE_HEADER_SIZE + f->header.count * f->header.width;
    uint8_t bits[AT_ONCE + 1];
    for (int64_t i = 0; f->header.has_loss_mask && i < n;) {
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
