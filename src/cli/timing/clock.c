/* clock.c - monotonic clock, and timing of repeated runs. */
#include "cli/timing/clock.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void clv_times_sort(double *seconds, int64_t n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
}

clv_status clv_times_measure(double **sorted, int64_t warm_ups, int64_t n, clv_timed_run *run, void *arg,
                             clv_error *err)
{
    double *seconds = calloc((size_t)n, sizeof *seconds), ignored;
    clv_status status = seconds ? CLV_OK : clv_fail_memory(err, "timings", (size_t)n * sizeof *seconds);
    for (int64_t i = -warm_ups; status == CLV_OK && i < n; i++)
        status = run(arg, i, i < 0 ? &ignored : &seconds[i], err);
    if (status != CLV_OK) {
        free(seconds);
        return status;
    }
    clv_times_sort(seconds, n);
    *sorted = seconds;
    return CLV_OK;
}
