/* router_kernel.c - the router of a mixture of experts: softmax or sigmoid, groups, top k; and its gradient. */
#include "kernels/cpu/router_kernel.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/f32_blocks.h"

typedef double scores[CLV_ROUTER_MAX_EXPERTS];

/* DeepSeek's: a sum of sigmoids may be 0. */
static double divisor(const clv_router_args *a, double sum)
{
    return a->sigmoid ? sum + 1e-20 : sum;
}

static void load_row(double *out, clv_dtype dtype, const void *x, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = clv_dtype_load(dtype, x, row * n + i);
}

static void score(const clv_router_args *a, double *s, const double *logits)
{
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < a->experts; e++)
        max = logits[e] > max || isnan(logits[e]) ? logits[e] : max;
    for (int64_t e = 0; e < a->experts; e++) {
        s[e] = a->sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e] - max);
        sum += s[e];
    }
    for (int64_t e = 0; e < a->experts && !a->sigmoid; e++)
        s[e] /= sum;
}

/* The k largest of n, largest first, of equal ones the first; `taken` marks those that may not be chosen, and then
 * those that were. */
static void choose(int32_t *out, int64_t k, const double *x, int64_t n, bool *taken)
{
    for (int64_t j = 0; j < k; j++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || x[i] > x[best]))
                best = i;
        taken[best] = true;
        out[j] = (int32_t)best;
    }
}

/* Marks the experts of the groups that are not chosen. */
static void take_other_groups(const clv_router_args *a, bool *taken, const double *x)
{
    const int64_t each = a->experts / a->groups;
    scores sum;
    int32_t best[CLV_ROUTER_MAX_EXPERTS], two[2];
    bool group_taken[CLV_ROUTER_MAX_EXPERTS] = {false};
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t n = each < 2 ? each : 2;
        choose(two, n, x + g * each, each, taken + g * each);
        sum[g] = 0;
        for (int64_t i = 0; i < n; i++) {
            sum[g] += x[g * each + two[i]];
            taken[g * each + two[i]] = false;
        }
    }
    choose(best, a->top_groups, sum, a->groups, group_taken);
    for (int64_t e = 0; e < a->experts; e++)
        taken[e] = !group_taken[e / each];
}

static void route_row(const clv_router_args *a, void *weights, int32_t *ids, int64_t row)
{
    scores logits, s, biased;
    bool taken[CLV_ROUTER_MAX_EXPERTS];
    double sum = 0;
    memset(taken, 0, (size_t)a->experts * sizeof *taken);
    load_row(logits, a->dtype, a->logits, row, a->experts);
    score(a, s, logits);
    for (int64_t e = 0; e < a->experts; e++)
        biased[e] = a->bias ? s[e] + clv_dtype_load(a->weights_dtype, a->bias, e) : a->sigmoid ? s[e] : logits[e];
    if (a->top_groups < a->groups)
        take_other_groups(a, taken, biased);
    ids += row * a->top_k;
    choose(ids, a->top_k, biased, a->experts, taken);
    for (int64_t j = 0; j < a->top_k; j++)
        sum += s[ids[j]];
    for (int64_t j = 0; j < a->top_k; j++)
        clv_dtype_store(a->weights_dtype, weights, row * a->top_k + j,
                        a->scale * s[ids[j]] / (a->normalised ? divisor(a, sum) : 1));
}

void clv_router_forward(const clv_router_args *a, void *weights, int32_t *ids)
{
    CLV_PARALLEL_FOR_EACH(row, a->rows, a->rows * a->experts, route_row(a, weights, ids, row));
}

static void backward_row(const clv_router_args *a, void *d_logits, const void *d_weights, const int32_t *ids,
                         int64_t row)
{
    scores logits, s, d;
    double sum = 0, dot = 0, mean = 0;
    load_row(logits, a->dtype, a->logits, row, a->experts);
    score(a, s, logits);
    memset(d, 0, (size_t)a->experts * sizeof *d);
    ids += row * a->top_k;
    for (int64_t j = 0; j < a->top_k; j++) {
        d[ids[j]] = a->scale * clv_dtype_load(a->weights_dtype, d_weights, row * a->top_k + j);
        sum += s[ids[j]];
        dot += d[ids[j]] * s[ids[j]];
    }
    if (a->normalised)
        for (int64_t j = 0; j < a->top_k; j++)
            d[ids[j]] = (d[ids[j]] - dot / divisor(a, sum)) / divisor(a, sum);
    for (int64_t e = 0; e < a->experts; e++)
        mean += d[e] * s[e];
    for (int64_t e = 0; e < a->experts; e++)
        clv_dtype_store(a->dtype, d_logits, row * a->experts + e,
                        s[e] * (a->sigmoid ? d[e] * (1 - s[e]) : d[e] - mean));
}

void clv_router_backward(const clv_router_args *a, void *d_logits, const void *d_weights, const int32_t *ids)
{
    CLV_PARALLEL_FOR_EACH(row, a->rows, a->rows * a->experts, backward_row(a, d_logits, d_weights, ids, row));
}
