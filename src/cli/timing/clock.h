/* clock.h - monotonic clock and sorting of timings. */
#ifndef CLEAVE_CLI_TIMING_CLOCK_H
#define CLEAVE_CLI_TIMING_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clv_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double clv_clock_seconds(void)
{
    return 1e-9 * (double)clv_clock_ns();
}

/* Times in order, the least first. */
void clv_times_sort(double *seconds, int64_t n);

#endif
