/* sampling.c - see sampling.h.
 *
 * Candidates are ranked lazily, by a heap: top_k of 40 in a vocabulary of 128,000 sorts 40, not all. */
#include "infer/sampling.h"

#include <math.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/options.h"
#include "cleave/rng.h"

clv_status clv_sampling_check(const clv_sampling *given, clv_error *err)
{
    clv_sampling taken, *s = &taken;
    CLV_TRY(clv_require(given != NULL, "clv_sampling_check", "a clv_sampling", err));
    CLV_TRY(clv_take_options(s, sizeof *s, sizeof *s, given, "clv_sampling_check", err));
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        return clv_fail(err, CLV_EINVAL, "temperature %g: valid are 0 (greedy) and above", s->temperature);
    if (s->top_k < 0)
        return clv_fail(err, CLV_EINVAL, "top_k %lld: valid are 0 (all) and above", (long long)s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return clv_fail(err, CLV_EINVAL, "top_p %g: valid are 0 (all) to 1", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return clv_fail(err, CLV_EINVAL, "min_p %g: valid are 0 (all) to 1", s->min_p);
    if (!(s->repetition_penalty >= 0) || !isfinite(s->repetition_penalty))
        return clv_fail(err, CLV_EINVAL, "a repetition penalty of %g: valid are 0 or 1 (none) and above",
                        s->repetition_penalty);
    return CLV_OK;
}

void clv_penalise(float *logits, int64_t vocab, const bool *seen, double penalty)
{
    if (penalty == 0 || penalty == 1)
        return;
    for (int64_t i = 0; i < vocab; i++)
        if (seen[i])
            logits[i] = (float)(logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty);
}

static bool ranks_before(clv_candidate a, clv_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(clv_candidate *heap, int64_t n, int64_t i)
{
    clv_candidate moving = heap[i];

    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && ranks_before(heap[child + 1], heap[child]))
            child++;
        if (!ranks_before(heap[child], moving))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

/* Removes the best of n candidates and puts it where the heap ended. */
static clv_candidate pop(clv_candidate *heap, int64_t n)
{
    clv_candidate best = heap[0];

    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift_down(heap, n - 1, 0);
    return best;
}

/* Finds the largest logit; refuses what no draw can be made from. */
static clv_status find_largest(int64_t *out, const float *logits, int64_t vocab, int64_t position, clv_error *err)
{
    int64_t best = 0;

    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return clv_fail(err, CLV_ENONFINITE, "position %lld: the logit of token %lld is %g", (long long)position,
                            (long long)i, (double)logits[i]);
        if (logits[i] > logits[best])
            best = i;
    }
    if (vocab < 1 || logits[best] == -INFINITY)
        return clv_fail(err, CLV_ENONFINITE, "position %lld: no token has a finite logit", (long long)position);
    *out = best;
    return CLV_OK;
}

/* In [0, 1), 53 bits of (seed, sequence, position). */
static double draw(uint64_t seed, uint64_t sequence, int64_t position)
{
    clv_key key = clv_key_fold_in(clv_key_seed(seed), (uint32_t)(seed >> 32));
    if (sequence > 0)
        key = clv_key_fold_in(key, (uint32_t)sequence);
    uint32_t bits[2];

    clv_random_bits(bits, key, 2 * (uint64_t)position, 2);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

/* Of n candidates, best last at the end of work, those at least min_p times as likely as the best. */
static int64_t likely_enough(const clv_candidate *work, int64_t vocab, int64_t n, const clv_sampling *s)
{
    const clv_candidate *best = &work[vocab - 1];
    while (n > 1 && exp(((double)work[vocab - n].logit - (double)best->logit) / s->temperature) < s->min_p)
        n--;
    return n;
}

/* Keeps candidates by rank until `keep` are there or their weight reaches share of the whole; they end up at the end
 * of work, best last. Returns how many. */
static int64_t keep_best(clv_candidate *work, int64_t vocab, int64_t keep, double share, const clv_sampling *s)
{
    float largest = work[0].logit;
    double total = 0, sum = 0;
    int64_t n = 0;

    while (n < keep) {
        clv_candidate best = pop(work, vocab - n);
        total += exp(((double)best.logit - (double)largest) / s->temperature);
        n++;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp(((double)work[vocab - 1 - i].logit - (double)largest) / s->temperature);
        if (sum >= share * total)
            return i + 1;
    }
    return n;
}

clv_status clv_sample(int64_t *token, const clv_sampling *s, const float *logits, int64_t vocab, int64_t position,
                      clv_candidate *work, clv_error *err)
{
    int64_t largest = 0, n = vocab, keep = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
    bool all = keep == vocab && (s->top_p == 0 || s->top_p == 1) && s->min_p == 0;
    double total = 0, sum = 0, target;

    CLV_TRY(clv_sampling_check(s, err));
    CLV_TRY(find_largest(&largest, logits, vocab, position, err));
    if (s->temperature == 0) {
        *token = largest;
        return CLV_OK;
    }
    for (int64_t i = 0; i < vocab; i++)
        work[i] = (clv_candidate){logits[i], (int32_t)i};
    if (!all) {
        for (int64_t i = vocab / 2 - 1; i >= 0; i--)
            sift_down(work, vocab, i);
        n = keep_best(work, vocab, keep, s->top_p == 0 ? 1 : s->top_p, s);
        n = likely_enough(work, vocab, n, s);
    }
    /* The kept ones stand at the end; their order is fixed, so the sums are. */
    const clv_candidate *kept = work + (vocab - n);
    for (int64_t i = 0; i < n; i++)
        total += exp(((double)kept[i].logit - (double)logits[largest]) / s->temperature);
    target = draw(s->seed, s->sequence, position) * total;
    for (int64_t i = n - 1; i >= 0; i--) {
        double weight = exp(((double)kept[i].logit - (double)logits[largest]) / s->temperature);
        sum += weight;
        /* Rounding may leave the sum below the target at the end: then the last that can be drawn is. */
        if (weight > 0)
            *token = kept[i].id;
        if (weight > 0 && sum > target)
            break;
    }
    return CLV_OK;
}
