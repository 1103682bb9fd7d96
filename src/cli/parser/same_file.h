/* same_file.h - whether an output path is also one of the inputs, through any links. */
#ifndef CLEAVE_CLI_PARSER_SAME_FILE_H
#define CLEAVE_CLI_PARSER_SAME_FILE_H

#include <stdbool.h>

/* Whether the regular file at `out` is also at `in`, or directly within the folder `in`, whatever links lead there. */
bool clv_is_same_file(const char *out, const char *in);

#endif
