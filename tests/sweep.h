/* sweep.h - which cases of a sweep run. CLV_SWEEP=all (make test-all): all of them. Else one in SWEEP_SHARE, counted
 * through all loops of the test: lengths of loops have no divisor in common with it, so each value of each loop, and
 * each pair of values, has its turn. */
#ifndef CLEAVE_TESTS_SWEEP_H
#define CLEAVE_TESTS_SWEEP_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_SHARE = 5 };

static inline bool sweep_takes(void)
{
    static int at;
    const char *text = getenv("CLV_SWEEP");
    return at++ % SWEEP_SHARE == 0 || (text != NULL && strcmp(text, "all") == 0);
}

#endif
