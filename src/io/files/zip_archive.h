/* zip_archive.h - zip archives, of a file or in memory: lists entries, finds one by name, reads stored and deflated
 * ones.
 *
 * Archives are not trusted: every offset and size is checked against the archive before it is used. An entry has the
 * size that it states, to the byte, and its checksum is compared when it is read whole. Zip64 is read. Refused:
 * encryption, archives of several disks, compressions other than deflate.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cleave/status.h"

typedef struct clv_zip_entry {
    const char *name;
    uint64_t at, packed_size; /* where its bytes are in the archive */
    uint64_t size;
    uint32_t checksum; /* CRC-32 */
    bool deflated;     /* false: they are stored as they are */
} clv_zip_entry;

typedef struct clv_zip_archive {
    const unsigned char *bytes; /* in memory; NULL: a file */
    int fd;
    uint64_t size;
    const char *where; /* for messages */
    char *names;       /* of all entries */
    clv_zip_entry *entries;
    int64_t n;
} clv_zip_archive;

/* Whether bytes begin as an archive does. */
bool clv_zip_is_archive(const void *bytes, size_t size);
/* Lists the entries of the archive, of which bytes or fd, size and where are given; they are borrowed.
 * @return CLV_EFORMAT, CLV_EUNSUPPORTED, CLV_EIO, CLV_ENOMEM */
clv_status clv_zip_open(clv_zip_archive *archive, clv_error *err);
/* Frees the list of entries. */
void clv_zip_close(clv_zip_archive *archive);
/* NULL: there is none. */
const clv_zip_entry *clv_zip_find(const clv_zip_archive *archive, const char *name);
/* Reads all bytes of an entry to out. @return CLV_EFORMAT for a damaged one; CLV_EIO, CLV_ENOMEM */
clv_status clv_zip_read(void *out, const clv_zip_archive *archive, const clv_zip_entry *entry, clv_error *err);
/* Reads bytes [at, at + size) of a stored entry, which it has, without its checksum. Thread-safe. */
clv_status clv_zip_read_part(void *out, const clv_zip_archive *archive, const clv_zip_entry *entry, uint64_t at,
                             size_t size, clv_error *err);
