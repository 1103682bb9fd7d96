/* clock.h - monotonic clock, and timing of repeated runs. */
#pragma once

#include <time.h>

#include "cleave/status.h"

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

/* Sorts times, the smallest first. */
void clv_times_sort(double *seconds, int64_t n);

/* Seconds of run i; i < 0 is a warm-up. */
typedef clv_status clv_timed_run(void *arg, int64_t i, double *seconds, clv_error *err);
/* Runs `warm_ups` times untimed, then n times. *sorted: the n times, the smallest first; the caller frees. */
clv_status clv_times_measure(double **sorted, int64_t warm_ups, int64_t n, clv_timed_run *run, void *arg,
                             clv_error *err);
