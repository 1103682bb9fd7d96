/* clock.c - monotonic clock and sorting of timings. */
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
