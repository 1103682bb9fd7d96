/* spearman.c - Spearman's rank correlation of two lists. */
#include "cli/evaluation/spearman.h"

#include <math.h>
#include <stdlib.h>

typedef struct placed {
    double value;
    int64_t at;
} placed;

static int by_value(const void *a, const void *b)
{
    const double x = ((const placed *)a)->value, y = ((const placed *)b)->value;
    return (x > y) - (x < y);
}

/* Ranks less their mean; `sorted` is room for n. */
static void rank(double *ranks, placed *sorted, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (placed){x[i], i};
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && sorted[to].value == sorted[from].value;)
            to++;
        for (int64_t i = from; i < to; i++)
            ranks[sorted[i].at] = ((double)(from + to - 1) - (double)(n - 1)) / 2;
    }
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

clv_status clv_spearman(double *out, bool *defined, const double *x, const double *y, int64_t n, clv_error *err)
{
    double *of_x = malloc(((size_t)n + 1) * sizeof *of_x), *of_y = malloc(((size_t)n + 1) * sizeof *of_y);
    placed *sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    clv_status status = of_x && of_y && sorted ? CLV_OK : clv_fail_memory(err, "ranks", (size_t)n * sizeof *sorted);
    if (status == CLV_OK) {
        rank(of_x, sorted, x, n);
        rank(of_y, sorted, y, n);
        const double spread = sqrt(dot(of_x, of_x, n)) * sqrt(dot(of_y, of_y, n));
        *defined = spread > 0;
        if (*defined)
            *out = dot(of_x, of_y, n) / spread;
    }
    free(of_x);
    free(of_y);
    free(sorted);
    return status;
}
