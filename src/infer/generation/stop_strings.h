/* stop_strings.h - ends a streamed text at a stop string, and holds back text that may begin one. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Zero-initialised, except for texts and n. */
typedef struct clv_stop_strings {
    const char *const *texts; /* [n], none empty; borrowed */
    int n;
    char *held;
    size_t size;
    int64_t capacity;
} clv_stop_strings;

/* Adds a piece of the text (last: the end), and returns what cannot begin a stop string, borrowed until the next call.
 * *stopped: a stop string was found; the text ends before it. */
clv_status clv_stop_strings_add(clv_stop_strings *stop, const char *text, size_t size, bool last, const char **shown,
                                size_t *n_shown, bool *stopped, clv_error *err);
void clv_stop_strings_free(clv_stop_strings *stop);
