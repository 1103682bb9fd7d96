/* text_form.h - which form a text has, by its beginning and its name; and a JSON array as lines of JSON. */
#ifndef CLEAVE_IO_TEXT_FORM_H
#define CLEAVE_IO_TEXT_FORM_H

#include "io/text_file.h"

clv_text_form clv_text_form_of(const char *text, size_t size, const char *path);

/* How far an array is; zeros: at its beginning. */
typedef struct clv_json_array {
    int64_t depth;
    bool begun, ended, quoted, escaped;
    bool element, separated; /* an element has begun; a comma stands before it */
} clv_json_array;

/* Puts each element of the part of an array on a line of its own, in place. last: no part follows.
 * @return CLV_EFORMAT where it is no array, an element is missing, or something follows */
clv_status clv_json_array_to_lines(clv_json_array *array, char *text, size_t size, bool last, const char *where,
                                   clv_error *err);

#endif
