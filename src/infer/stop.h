/* stop.h - ends a text where one of some strings begins, while it streams: what may be the beginning of one is held
 * back. */
#ifndef CLEAVE_INFER_STOP_H
#define CLEAVE_INFER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "cleave/status.h"

/* Zero-initialised but for texts and n. */
typedef struct clv_stop {
    const char *const *texts; /* [n], none empty; borrowed */
    int n;
    char *held;
    size_t size, capacity;
} clv_stop;

/* Takes more of the text (last: there is no more) and gives what may be shown, borrowed until the next call. *stopped:
 * one of the strings was found, and the text ends before it. */
clv_status clv_stop_add(clv_stop *stop, const char *text, size_t size, bool last, const char **shown, size_t *n_shown,
                        bool *stopped, clv_error *err);
void clv_stop_free(clv_stop *stop);

#endif
