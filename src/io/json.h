/* json.h - reading JSON that nobody vouches for: a thin layer over jansson.
 *
 * Refused: a key twice, data after the document, nesting deeper than 64, integers beyond 64 bits, text that is not
 * UTF-8, the character U+0000, files over a limit. Every message names the file, and the key where there is one.
 * Getters take `where` (the file's name, or "file: tensor") for messages.
 */
#ifndef CLEAVE_IO_JSON_H
#define CLEAVE_IO_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

enum { CLV_JSON_DEPTH = 64 };

/* What a scan finds without allocating: how deep the text nests, and how many members (or elements) its outermost
 * value has at most. Text that is not JSON gives numbers of no meaning. */
typedef struct clv_json_extent {
    int64_t depth;
    int64_t members;
} clv_json_extent;

clv_json_extent clv_json_scan(const char *text, size_t size);

/* Overwrites comments, from two slashes to the end of the line and from slash-star to star-slash, by spaces, so that
 * lines and columns stay what they are. JSON has none: for files that people write. */
void clv_json_blank_comments(char *text, size_t size);

/* Parses `size` bytes; the caller releases *out by json_decref. `where` names the source in messages. */
clv_status clv_json_parse(json_t **out, const char *text, size_t size, const char *where, clv_error *err);
/* Reads and parses a file of at most `limit` bytes. */
clv_status clv_json_load(json_t **out, const char *path, size_t limit, clv_error *err);

/* Optional: a key that is absent, or null, leaves *out as it is. */
typedef enum clv_json_need { CLV_JSON_OPTIONAL, CLV_JSON_REQUIRED } clv_json_need;

/* CLV_EFORMAT when `object` is not an object. */
clv_status clv_json_check_object(const json_t *object, const char *where, clv_error *err);
/* An integer (2.0 is none) within [lo, hi]. */
clv_status clv_json_int(int64_t *out, const json_t *object, const char *key, clv_json_need need, int64_t lo, int64_t hi,
                        const char *where, clv_error *err);
/* A number within [lo, hi]. */
clv_status clv_json_real(double *out, const json_t *object, const char *key, clv_json_need need, double lo, double hi,
                         const char *where, clv_error *err);
/* Borrowed from the document. */
clv_status clv_json_string(const char **out, const json_t *object, const char *key, clv_json_need need,
                           const char *where, clv_error *err);
clv_status clv_json_bool(bool *out, const json_t *object, const char *key, clv_json_need need, const char *where,
                         clv_error *err);
/* A list of at most `max` integers within [lo, hi]; *n receives how many. */
clv_status clv_json_ints(int64_t *out, int *n, int max, const json_t *object, const char *key, clv_json_need need,
                         int64_t lo, int64_t hi, const char *where, clv_error *err);

#endif
