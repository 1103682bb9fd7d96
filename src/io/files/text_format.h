/* text_format.h - text format detection: plain, CSV, JSON lines, JSON array or FASTA; converts a JSON array to JSON
 * lines.
 */
#ifndef CLEAVE_IO_FILES_TEXT_FORMAT_H
#define CLEAVE_IO_FILES_TEXT_FORMAT_H

#include "io/files/text_file.h"

clv_text_format clv_text_format_detect(const char *text, size_t size, const char *path);

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
