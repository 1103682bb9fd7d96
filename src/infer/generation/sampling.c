/* sampling.c - next-token sampling: repetition penalty, temperature, top-k, top-p, min-p, greedy.
 *
 * Candidates are ranked lazily, by a heap: top_k of 40 in a vocabulary of 128,000 sorts 40, not all.
 */
#include "infer/generation/sampling.h"

#include <math.h>

#include "base/error.h"
#include "cleave/rng.h"

clv_status clv_sampling_check(const clv_sampling *given, clv_error *err)
{
    clv_sampling taken, *s = &taken;
    CLV_TRY(clv_require(given != NULL, __func__, "a clv_sampling", err));
    CLV_TRY(clv_options_copy_in(s, sizeof *s, sizeof *s, given, __func__, err));
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

float clv_penalized_logit(float logit, bool seen, double penalty)
{
    if (!seen || penalty == 0 || penalty == 1)
        return logit;
    return logit < 0 ? logit * (float)penalty : logit / (float)penalty;
}

void clv_apply_repetition_penalty(float *logits, int64_t vocab, const bool *seen, double penalty)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = clv_penalized_logit(logits[i], seen[i], penalty);
}

/* Of equal logits the higher id first: top_p keeps it, as transformers does. */
static bool ranks_before(clv_candidate a, clv_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id > b.id);
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

static bool is_broken(float logit)
{
    return isnan(logit) || logit == INFINITY;
}

static clv_status fail_broken(clv_candidate c, int64_t position, clv_error *err)
{
    return clv_fail(err, CLV_ENONFINITE, "position %lld: the logit of token %lld is %g", (long long)position,
                    (long long)c.id, (double)c.logit);
}

static clv_status fail_none(int64_t position, clv_error *err)
{
    return clv_fail(err, CLV_ENONFINITE, "position %lld: no token has a finite logit", (long long)position);
}

/* Whether a logit is above `most` or broken. `most` is finite or -INFINITY, so neither NaN nor infinity is <= it. */
static bool has_more(const float *logits, int64_t n, float most)
{
    int more = 0;

    for (int64_t i = 0; i < n; i++) /* no early exit, so that the loop is vectorized */
        more |= !(logits[i] <= most);
    return more;
}

/* Finds the first of the largest logits; fails for NaN and +infinity. In a large vocabulary few spans have a logit
 * above all those before. */
static clv_status find_largest(int64_t *out, const float *logits, int64_t vocab, int64_t position, clv_error *err)
{
    enum { SPAN = 128 };
    float most = -INFINITY;
    int64_t best = 0;

    for (int64_t from = 0; from < vocab; from += SPAN) {
        int64_t to = vocab - from < SPAN ? vocab : from + SPAN;

        if (!has_more(logits + from, to - from, most))
            continue;
        for (int64_t i = from; i < to; i++) {
            if (is_broken(logits[i]))
                return fail_broken((clv_candidate){logits[i], (int32_t)i}, position, err);
            if (logits[i] > most) {
                most = logits[i];
                best = i;
            }
        }
    }
    if (most == -INFINITY)
        return fail_none(position, err);
    *out = best;
    return CLV_OK;
}

/* Of candidates in any order the first broken one by id, else the best, of several the one of the lowest id; n >= 1. */
static clv_candidate find_first(const clv_candidate *c, int64_t n)
{
    clv_candidate first = c[0];

    for (int64_t i = 1; i < n; i++) {
        bool broken = is_broken(c[i].logit), was = is_broken(first.logit);
        bool alike = (broken && was) || c[i].logit == first.logit;
        if (alike ? c[i].id < first.id : broken || (!was && c[i].logit > first.logit))
            first = c[i];
    }
    return first;
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

static void make_heap(clv_candidate *work, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(work, n, i);
}

/* How likely a token is beside one with the largest logit. */
static double weight_of(clv_candidate c, float largest, const clv_sampling *s)
{
    return exp(((double)c.logit - (double)largest) / s->temperature);
}

/* The top_k best of a heap of n, and those that tie with the last of them; they end up behind the heap, best last. */
static int64_t keep_top_k(clv_candidate *work, int64_t n, int64_t top_k)
{
    int64_t kept = 0, keep = top_k > 0 && top_k < n ? top_k : n;
    float last = 0;

    while (kept < n && (kept < keep || (work[0].logit == last && last > -INFINITY)))
        last = pop(work, n - kept++).logit;
    return kept;
}

static bool takes_all(double top_p)
{
    return top_p == 0 || top_p == 1;
}

/* Of `kept` candidates, best last at the end of work, the fewest whose weight reaches top_p of the whole. */
static int64_t keep_top_p(const clv_candidate *work, int64_t n, int64_t kept, const clv_sampling *s)
{
    double total = 0, sum = 0;

    if (takes_all(s->top_p)) /* also of those that rounding would lose */
        return kept;
    for (int64_t i = 0; i < kept; i++)
        total += weight_of(work[n - 1 - i], work[n - 1].logit, s);
    for (int64_t i = 0; i < kept; i++) {
        sum += weight_of(work[n - 1 - i], work[n - 1].logit, s);
        if (sum >= s->top_p * total)
            return i + 1;
    }
    return kept;
}

/* Of these the ones at least min_p times as likely as the best. */
static int64_t keep_min_p(const clv_candidate *work, int64_t n, int64_t kept, const clv_sampling *s)
{
    while (kept > 1 && weight_of(work[n - kept], work[n - 1].logit, s) < s->min_p)
        kept--;
    return kept;
}

int64_t clv_sampling_filter(clv_candidate *work, int64_t n, const clv_sampling *s)
{
    make_heap(work, n);
    int64_t kept = keep_top_k(work, n, s->top_k);
    kept = keep_top_p(work, n, kept, s);
    return keep_min_p(work, n, kept, s);
}

/* One of n kept candidates, by its probability. Their order is fixed, so the sums are. */
static int64_t draw_one(const clv_candidate *kept, int64_t n, float largest, const clv_sampling *s, int64_t position)
{
    double total = 0, sum = 0, target;
    int64_t token = -1;

    for (int64_t i = 0; i < n; i++)
        total += weight_of(kept[i], largest, s);
    target = draw(s->seed, s->sequence, position) * total;
    for (int64_t i = n - 1; i >= 0; i--) {
        double weight = weight_of(kept[i], largest, s);
        sum += weight;
        /* Rounding may leave the sum below the target at the end: then the last that can be drawn is. */
        if (weight > 0)
            token = kept[i].id;
        if (weight > 0 && sum > target)
            break;
    }
    return token;
}

static int64_t draw_of_kept(clv_candidate *work, int64_t n, float largest, const clv_sampling *s, int64_t position)
{
    int64_t kept = clv_sampling_filter(work, n, s);
    return draw_one(work + (n - kept), kept, largest, s, position);
}

clv_status clv_sample(int64_t *token, const clv_sampling *s, const float *logits, int64_t vocab, int64_t position,
                      clv_candidate *work, clv_error *err)
{
    int64_t largest = 0;
    bool all = (s->top_k <= 0 || s->top_k >= vocab) && takes_all(s->top_p) && s->min_p == 0;

    CLV_TRY(clv_sampling_check(s, err));
    CLV_TRY(find_largest(&largest, logits, vocab, position, err));
    if (s->temperature == 0) {
        *token = largest;
        return CLV_OK;
    }
    for (int64_t i = 0; i < vocab; i++)
        work[i] = (clv_candidate){logits[i], (int32_t)i};
    *token = all ? draw_one(work, vocab, logits[largest], s, position)
                 : draw_of_kept(work, vocab, logits[largest], s, position);
    return CLV_OK;
}

/* ---- from the best of several parts of a vocabulary ---- */

int64_t clv_sampling_candidates_needed(const clv_sampling *s, int64_t vocab)
{
    if (s->temperature == 0)
        return 1;
    return s->top_k > 0 && s->top_k < vocab ? s->top_k + 1 : 0; /* one more tells whether another ties with the last */
}

void clv_top_candidates(clv_candidate *out, int64_t k, clv_candidate *work, int64_t n)
{
    int64_t found = 0;

    if (n > 0) {
        out[found++] = find_first(work, n);
        if (k > 1 && !is_broken(out[0].logit)) {
            make_heap(work, n);
            for (found = 0; found < k && found < n; found++)
                out[found] = pop(work, n - found);
        }
    }
    for (; found < k; found++)
        out[found] = (clv_candidate){-INFINITY, -1};
}

/* Whether of n candidates the last of top_k is no better than a token that is not among them. */
static bool may_tie(clv_candidate *work, int64_t n, int64_t top_k, float bound)
{
    int64_t better = 0;

    for (int64_t i = 0; i < n; i++)
        better += work[i].logit > bound;
    return bound > -INFINITY && better < top_k;
}

clv_status clv_sample_from_candidates(int64_t *token, bool *needs_all_logits, const clv_sampling *s,
                                      clv_candidate *work, int64_t n, float bound, int64_t position, clv_error *err)
{
    clv_candidate first = n > 0 ? find_first(work, n) : (clv_candidate){-INFINITY, -1};

    CLV_TRY(clv_sampling_check(s, err));
    if (is_broken(first.logit))
        return fail_broken(first, position, err);
    if (first.logit == -INFINITY)
        return fail_none(position, err);
    *needs_all_logits = s->temperature != 0 && may_tie(work, n, s->top_k, bound);
    if (!*needs_all_logits)
        *token = s->temperature == 0 ? first.id : draw_of_kept(work, n, first.logit, s, position);
    return CLV_OK;
}
