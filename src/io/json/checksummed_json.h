/* checksummed_json.h - checksummed JSON documents: the first key is the checksum of all that follows; read, write,
 * verify.
 *
 *   {"checksum":"<32 digits>", ...
 *
 * The checksum is of every byte behind its closing quote.
 */
#ifndef CLEAVE_IO_JSON_CHECKSUMMED_JSON_H
#define CLEAVE_IO_JSON_CHECKSUMMED_JSON_H

#include "io/files/checksum.h"
#include "io/json/json.h"

/* Replaces the file at path by the document, an object of one key at least. CLV_ELIMIT when it is longer than `limit`
 * bytes; a document that is NULL is out of memory. */
clv_status clv_checksummed_json_write(const char *path, const json_t *document, size_t limit, clv_error *err);
/* CLV_EFORMAT unless the text begins with its checksum. `path` names it in messages. */
clv_status clv_checksummed_json_verify(const char *text, size_t size, const char *path, clv_error *err);
/* Reads a file of at most `limit` bytes; the caller releases *out by json_decref. */
clv_status clv_checksummed_json_read(json_t **out, const char *path, size_t limit, clv_error *err);
/* CLV_EFORMAT when "format" is another, CLV_EUNSUPPORTED when "version" is. */
clv_status clv_checksummed_json_check_version(const json_t *document, const char *format, int version, const char *path,
                                              clv_error *err);
/* A required checksum of a document, 32 digits. */
clv_status clv_checksummed_json_get_checksum(char out[CLV_CHECKSUM_SIZE], const json_t *object, const char *key,
                                             const char *where, clv_error *err);

#endif
