/* checksummed_json.h - checksummed JSON documents: the first key is the checksum of all that follows; read, write,
 * verify.
 *
 *   {"checksum":"<32 digits>", ...
 *
 * The checksum covers every byte after its closing quote.
 */
#pragma once

#include "io/files/checksum.h"
#include "io/json/json.h"

/* Replaces the file at path with the document, a non-empty object. CLV_ELIMIT if it is longer than `limit` bytes;
 * CLV_ENOMEM if document is NULL. */
clv_status clv_checksummed_json_write(const char *path, const json_t *document, size_t limit, clv_error *err);
/* Fails with CLV_EFORMAT unless the text begins with its checksum. `path` is for messages. */
clv_status clv_checksummed_json_verify(const char *text, size_t size, const char *path, clv_error *err);
/* Reads, verifies and parses a file of at most `limit` bytes; the caller releases *out with json_decref. */
clv_status clv_checksummed_json_read(json_t **out, const char *path, size_t limit, clv_error *err);
/* Fails with CLV_EFORMAT if "format" differs, CLV_EUNSUPPORTED if "version" differs. */
clv_status clv_checksummed_json_check_version(const json_t *document, const char *format, int version, const char *path,
                                              clv_error *err);
/* Gets a required checksum of 32 digits. */
clv_status clv_checksummed_json_get_checksum(char out[CLV_CHECKSUM_SIZE], const json_t *object, const char *key,
                                             const char *where, clv_error *err);
