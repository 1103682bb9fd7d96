/* results.c - see results.h. */
#include "cli/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/status.h"

static const char goes_on[] = "--allow-nonfinite goes on all the same";

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

void clv_results_print_index(char *out, size_t size, int rank, const int64_t *shape, int64_t at)
{
    int64_t stride = 1;
    size_t used = 0;
    out[0] = '\0';
    for (int d = 1; d < rank; d++)
        stride *= shape[d];
    for (int d = 0; d < rank && used < size; d++) {
        used += (size_t)snprintf(out + used, size - used, "%s%lld%s", d ? "," : "[", (long long)(at / stride),
                                 d == rank - 1 ? "]" : "");
        at %= stride;
        stride /= d + 1 < rank && shape[d + 1] > 0 ? shape[d + 1] : 1;
    }
}

void clv_results_print_difference(char *out, size_t size, int rank, const int64_t *shape, const float *got,
                                  const float *want, int64_t at)
{
    char index[256];
    bool alike = got[at] == want[at] || (isnan(got[at]) && isnan(want[at]));
    clv_results_print_index(index, sizeof index, rank, shape, at);
    if (alike)
        snprintf(out, size, "%s is not finite: %g%s", index, (double)got[at], got == want ? "" : " on both sides");
    else
        snprintf(out, size, "%s is %.9g, not %.9g", index, (double)got[at], (double)want[at]);
}

void clv_results_add_beginning(char element[CLV_ELEMENT_TEXT], const clv_error *why)
{
    size_t used = strlen(element);
    if (why->code == CLV_ENONFINITE)
        snprintf(element + used, CLV_ELEMENT_TEXT - used, "; it begins at %s", why->message);
}

clv_status clv_results_refuse(const char *element, double value, const clv_error *why, clv_error *err)
{
    if (why->code != CLV_ENONFINITE)
        return clv_fail(err, CLV_ENONFINITE, "%s is %g; %s", element, value, goes_on);
    return clv_fail(err, CLV_ENONFINITE, "%s is %g; it begins at %.320s; %s", element, value, why->message, goes_on);
}

void clv_results_offer(clv_error *err)
{
    size_t used = strlen(err->message);
    if (err->code == CLV_ENONFINITE)
        snprintf(err->message + used, sizeof err->message - used, "; %s", goes_on);
}
