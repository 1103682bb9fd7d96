/* json.h - JSON access: loads untrusted JSON into jansson values; typed getters that name file and key in errors.
 *
 * What Python's json reads is read, as it reads it: integers of any size, NaN and Infinity, numbers beyond the range of
 * a double, the character U+0000, of equal keys the last; a lone half of a surrogate pair becomes U+FFFD, and a byte
 * order mark at the beginning is passed over. Refused: data behind the document, nesting deeper than 1000, text that is
 * not UTF-8, files over a limit. Every message names the file, and the key where there is one.
 *
 * An integer beyond 64 bits is a real. What no double holds is an object that the getters of numbers refuse: where
 * nobody asks for the key it does no harm.
 *
 * Getters take `where` (the file's name, or "file: tensor") for messages.
 */
#ifndef CLEAVE_IO_JSON_JSON_H
#define CLEAVE_IO_JSON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

/* How many members, or elements, the outermost value has at most, without allocating. */
int64_t clv_json_count_members(const char *text, size_t size);

/* Overwrites comments, from two slashes to the end of the line and from slash-star to star-slash, by spaces, so that
 * lines and columns stay what they are. JSON has none: for files that people write. */
void clv_json_blank_comments(char *text, size_t size);

/* Of equal keys of an object the last one counts, as others read files; or there may be none, in files of our own, and
 * where two tensors would have one name. */
typedef enum clv_json_keys { CLV_JSON_KEYS_LAST_WINS, CLV_JSON_KEYS_UNIQUE } clv_json_keys;

/* Parses `size` bytes; the caller releases *out by json_decref. `where` names the source in messages. */
clv_status clv_json_parse(json_t **out, const char *text, size_t size, clv_json_keys keys, const char *where,
                          clv_error *err);
/* Reads and parses a file of at most `limit` bytes that others may have written. */
clv_status clv_json_load(json_t **out, const char *path, size_t limit, clv_error *err);

/* Optional: a key that is absent, or null, leaves *out as it is. */
typedef enum clv_json_need { CLV_JSON_OPTIONAL, CLV_JSON_REQUIRED } clv_json_need;

/* CLV_EFORMAT when `object` is not an object. */
clv_status clv_json_check_object(const json_t *object, const char *where, clv_error *err);
/* An integer (2.0 is none) within [lo, hi]. */
clv_status clv_json_get_int(int64_t *out, const json_t *object, const char *key, clv_json_need need, int64_t lo,
                            int64_t hi, const char *where, clv_error *err);
/* A finite number within [lo, hi]. */
clv_status clv_json_get_real(double *out, const json_t *object, const char *key, clv_json_need need, double lo,
                             double hi, const char *where, clv_error *err);
/* Borrowed from the document; refused where the character U+0000 would end it. */
clv_status clv_json_get_string(const char **out, const json_t *object, const char *key, clv_json_need need,
                               const char *where, clv_error *err);
/* A string that must be there, with its size in bytes; U+0000 is a character as others are. */
clv_status clv_json_get_bytes(const char **out, size_t *size, const json_t *object, const char *key, const char *where,
                              clv_error *err);
clv_status clv_json_get_bool(bool *out, const json_t *object, const char *key, clv_json_need need, const char *where,
                             clv_error *err);
/* A list of at most `max` integers within [lo, hi]; *n receives how many. */
clv_status clv_json_get_ints(int64_t *out, int *n, int max, const json_t *object, const char *key, clv_json_need need,
                             int64_t lo, int64_t hi, const char *where, clv_error *err);

#endif
