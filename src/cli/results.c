/* results.c - see results.h. */
#include "cli/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/layout.h"
#include "cleave/status.h"

double clv_results_largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = isfinite(x[i]) ? fmax(most, fabs((double)x[i])) : most;
    return most;
}

clv_difference clv_results_difference(const float *got, const float *want, int64_t n, double floor, const float *mask,
                                      int64_t per_row)
{
    clv_difference worst = {.at = -1};
    double scale = fmax(clv_results_largest(want, n), floor);
    for (int64_t i = 0; i < n; i++) {
        if (mask && mask[i / per_row] == 0)
            continue;
        double off = fabs((double)got[i] - (double)want[i]) / (scale > 0 ? scale : 1);
        if (!isfinite(off))
            return (clv_difference){INFINITY, i};
        if (off > worst.error)
            worst = (clv_difference){off, i};
    }
    return worst;
}

void clv_results_print_difference(char *out, size_t size, int rank, const int64_t *shape, const float *got,
                                  const float *want, int64_t at)
{
    char index[256];
    bool alike = got[at] == want[at] || (isnan(got[at]) && isnan(want[at]));
    clv_index_print(index, sizeof index, rank, shape, at);
    if (alike)
        snprintf(out, size, "%s is not finite: %g%s", index, (double)got[at], got == want ? "" : " on both sides");
    else
        snprintf(out, size, "%s is %.9g, not %.9g", index, (double)got[at], (double)want[at]);
}

void clv_results_add_beginning(char element[CLV_ELEMENT_TEXT], const char *begins)
{
    size_t used = strlen(element);
    if (begins && begins[0] != '\0')
        snprintf(element + used, CLV_ELEMENT_TEXT - used, "; it begins at %s", begins);
}

void clv_results_offer(clv_error *err)
{
    size_t used = strlen(err->message);
    if (err->code == CLV_ENONFINITE)
        snprintf(err->message + used, sizeof err->message - used, "; --allow-nonfinite goes on all the same");
}
