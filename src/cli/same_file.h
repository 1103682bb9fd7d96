/* same_file.h - whether a file to write is one that is read. */
#ifndef CLEAVE_CLI_SAME_FILE_H
#define CLEAVE_CLI_SAME_FILE_H

#include <stdbool.h>

/* Whether the regular file at `out` is also at `in`, or directly within the folder `in`, whatever links lead there. */
bool clv_is_read(const char *out, const char *in);

#endif
