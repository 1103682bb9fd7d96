/* sweep.h - which cases of a sweep run. CLV_SWEEP=all (make test-all): all of them. Else one in SWEEP_SHARE, counted
 * through all loops of the test's file: a share has no divisor in common with the number of turns of a loop, nor with
 * what a case is chosen by (i % 3), so each value of each loop, and each pair of values, has its turn.
 *
 * CLV_SWEEP_THIN: fewer, one in SWEEP_THIN_SHARE, and of other sweeps one in what the test says. tests/CMakeLists.txt
 * sets it where tests run once more, by the mailbox transport, on another device or with a sanitizer: a few turns of a
 * loop tell what is asked there. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_SHARE = 5, SWEEP_THIN_SHARE = 13 };

static inline bool sweep_is_whole(void)
{
    const char *text = getenv("CLV_SWEEP");
    return text != NULL && strcmp(text, "all") == 0;
}

static inline bool sweep_is_thin(void)
{
    return getenv("CLV_SWEEP_THIN") != NULL && !sweep_is_whole();
}

static inline bool sweep_takes(void)
{
    static int at;
    return at++ % (sweep_is_thin() ? SWEEP_THIN_SHARE : SWEEP_SHARE) == 0 || sweep_is_whole();
}

/* All cases, but one in `share` of a thin sweep. */
static inline bool sweep_takes_thinned(int share)
{
    static int at;
    return at++ % share == 0 || !sweep_is_thin();
}

/* Of `ways` that a case may go, whether it goes this one: where they do not differ in what the case is about, cases
 * take turns; all of them with CLV_SWEEP=all. */
static inline bool sweep_takes_turn(int way, int ways, int at)
{
    return at % ways == way || sweep_is_whole();
}
