/* json.h - JSON access: loads untrusted JSON into jansson values; typed getters that name file and key in errors.
 *
 * Accepts what Python's json accepts, with the same meaning: integers of any size, NaN and Infinity, numbers beyond the
 * range of a double, the character U+0000; of equal keys the last counts. A lone surrogate becomes U+FFFD, and a byte
 * order mark at the beginning is skipped. Refuses data after the document, nesting deeper than 1000, text that is not
 * UTF-8, and files over a limit. Every message names the file and, if there is one, the key.
 *
 * An integer beyond 64 bits becomes a real. A number that no double represents becomes an object, which the getters of
 * numbers refuse, so it is an error only if the key is read.
 *
 * Getters take `where` (the file's name, or "file: tensor") for messages.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "cleave/status.h"

#ifndef json_object_keylen_foreach /* before jansson 2.14, where no key holds U+0000 */
#define json_object_keylen_foreach(object, key, size, value)                                                           \
    for (key = json_object_iter_key(json_object_iter(object)), size = key ? strlen(key) : 0;                           \
         key && (value = json_object_iter_value(json_object_key_to_iter(key)));                                        \
         key = json_object_iter_key(json_object_iter_next(object, json_object_key_to_iter(key))),                      \
        size = key ? strlen(key) : 0)
#endif

enum { CLV_JSON_MAX_DEPTH = 1000 };

/* Returns an upper bound on the members or elements of the outermost value, without allocating. */
int64_t clv_json_count_members(const char *text, size_t size);

/* Overwrites comments (two slashes to the end of the line, slash-star to star-slash) with spaces, so that lines and
 * columns in messages stay right. For files that people write; JSON itself has no comments. */
void clv_json_blank_comments(char *text, size_t size);

/* Treatment of equal keys in an object: the last one counts, as in other readers; or they are an error, in cleave's own
 * files and where two tensors would have the same name. */
typedef enum clv_json_keys { CLV_JSON_KEYS_LAST_WINS, CLV_JSON_KEYS_UNIQUE } clv_json_keys;

/* Parses `size` bytes; the caller releases *out with json_decref. */
clv_status clv_json_parse(json_t **out, const char *text, size_t size, clv_json_keys keys, const char *where,
                          clv_error *err);
/* Reads and parses a file of at most `limit` bytes; of equal keys the last counts. */
clv_status clv_json_load(json_t **out, const char *path, size_t limit, clv_error *err);

/* Optional: if the key is absent or null, *out is not modified. */
typedef enum clv_json_need { CLV_JSON_OPTIONAL, CLV_JSON_REQUIRED } clv_json_need;

/* Fails with CLV_EFORMAT if `object` is not an object. */
clv_status clv_json_check_object(const json_t *object, const char *where, clv_error *err);
/* Gets an integer (2.0 is not one) within [lo, hi]. */
clv_status clv_json_get_int(int64_t *out, const json_t *object, const char *key, clv_json_need need, int64_t lo,
                            int64_t hi, const char *where, clv_error *err);
/* Gets a finite number within [lo, hi]. */
clv_status clv_json_get_real(double *out, const json_t *object, const char *key, clv_json_need need, double lo,
                             double hi, const char *where, clv_error *err);
/* Gets a string, borrowed from the document; one that contains U+0000 is an error. */
clv_status clv_json_get_string(const char **out, const json_t *object, const char *key, clv_json_need need,
                               const char *where, clv_error *err);
/* Gets a required string, which may contain U+0000, with its size in bytes. */
clv_status clv_json_get_bytes(const char **out, size_t *size, const json_t *object, const char *key, const char *where,
                              clv_error *err);
clv_status clv_json_get_bool(bool *out, const json_t *object, const char *key, clv_json_need need, const char *where,
                             clv_error *err);
/* Gets a list of at most `max` integers within [lo, hi]; *n receives their number. */
clv_status clv_json_get_ints(int64_t *out, int *n, int max, const json_t *object, const char *key, clv_json_need need,
                             int64_t lo, int64_t hi, const char *where, clv_error *err);
