/* test_sampling.c - greedy choice, what top_k and top_p keep (against a plain sort), frequencies, bad logits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/rng.h"
#include "infer/generation/sampling.h"
#include "infer/generation/stop_strings.h"
#include "unit_test.h"

enum { VOCAB = 50 };
static clv_candidate work[VOCAB];

static int64_t sample(const clv_sampling *s, const float *logits, int64_t vocab, int64_t position)
{
    int64_t token = -1;

    assert_int_equal(clv_sample(&token, s, logits, vocab, position, work, NULL), CLV_OK);
    assert_in_range(token, 0, vocab - 1);
    return token;
}

static void test_greedy(void **state)
{
    static const float logits[] = {-INFINITY, 1, 3, 3, -2};
    clv_sampling s = {0};

    for (int position = 0; position < 20; position++)
        assert_int_equal(sample(&s, logits, 5, position), 2);
    s = (clv_sampling){.temperature = 1, .top_k = 1}; /* both of the largest */
    for (int position = 0, lower = 0; position < 20; position++, lower += sample(&s, logits, 5, position) == 2)
        assert_true(position < 19 || (lower > 0 && lower < 19));
    s = (clv_sampling){.temperature = 1, .top_p = 1e-9};
    assert_int_equal(sample(&s, logits, 5, 0), 3);
    s = (clv_sampling){.temperature = 1e-3};
    assert_in_range(sample(&s, logits, 5, 0), 2, 3);
}

/* A large vocabulary, with the largest logit at any place, once or twice, and NaN before it, after it, or alone. */
static void test_greedy_of_many(void **state)
{
    enum { MANY = 701 };
    static const float broken[] = {NAN, INFINITY};
    static const clv_sampling greedy;
    float logits[MANY];
    int64_t token = -1;
    for (int best = 0; best < MANY; best++) {
        for (int i = 0; i < MANY; i++)
            logits[i] = i % 3 ? -(float)((i * 37) % 101) : -INFINITY;
        logits[best] = logits[best + (MANY - best) / 2] = 1;
        assert_int_equal(clv_sample(&token, &greedy, logits, MANY, 0, work, NULL), CLV_OK);
        assert_int_equal(token, best);
        for (int k = 0; k < 2; k++) {
            const int at = (best + 1 + k * 300) % MANY;
            clv_error err = {0};
            char says[32];
            logits[at] = broken[k];
            snprintf(says, sizeof says, "the logit of token %d is", at);
            assert_int_equal(clv_sample(&token, &greedy, logits, MANY, 0, work, &err), CLV_ENONFINITE);
            assert_non_null(strstr(err.message, says));
            logits[at] = -1;
        }
    }
    for (int i = 0; i < MANY; i++)
        logits[i] = -INFINITY;
    assert_int_equal(clv_sample(&token, &greedy, logits, MANY, 0, work, NULL), CLV_ENONFINITE);
}

typedef struct reference {
    double probability[VOCAB]; /* 0 for tokens that are not kept */
} reference;

/* The definition, by repeated search for the best that is left. */
static reference reference_of(const clv_sampling *s, const float *logits, int n)
{
    reference r = {{0}};
    int order[VOCAB], kept = s->top_k > 0 && s->top_k < n ? (int)s->top_k : n;
    double weight[VOCAB], total = 0, sum = 0;
    int taken[VOCAB] = {0};

    for (int rank = 0; rank < n; rank++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || logits[i] >= logits[best]))
                best = i;
        if (rank >= kept && (logits[best] < logits[order[kept - 1]] || logits[best] == -INFINITY))
            break;
        kept = rank < kept ? kept : rank + 1;
        taken[best] = 1;
        order[rank] = best;
        weight[rank] = exp(((double)logits[best] - (double)logits[order[0]]) / s->temperature);
        total += weight[rank];
    }
    int last = 0;
    while (last < kept && (s->top_p == 0 || s->top_p == 1 || sum < s->top_p * total))
        sum += weight[last++];
    while (last > 1 && weight[last - 1] < s->min_p)
        last--;
    sum = 0;
    for (int rank = 0; rank < last; rank++)
        sum += weight[rank];
    for (int rank = 0; rank < last; rank++)
        r.probability[order[rank]] = weight[rank] / sum;
    return r;
}

/* Frequencies over 4000 positions lie within six standard deviations; what has no probability never occurs. */
static void check_frequencies(const clv_sampling *s, const float *logits, int n)
{
    enum { DRAWS = 4000 };
    reference r = reference_of(s, logits, n);
    int count[VOCAB] = {0};

    for (int position = 0; position < DRAWS; position++)
        count[sample(s, logits, n, position)]++;
    for (int i = 0; i < n; i++) {
        double p = r.probability[i], expected = p * DRAWS;
        if (!(fabs(count[i] - expected) <= 6 * sqrt(expected * (1 - p)) + 1) || (p == 0 && count[i] > 0))
            fail_msg("k %lld p %g T %g: token %d drawn %d times, %g expected", (long long)s->top_k, s->top_p,
                     s->temperature, i, count[i], expected);
    }
}

static void test_distribution(void **state)
{
    static const double temperatures[] = {0.3, 1, 2}, shares[] = {0, 0.3, 0.9, 1}, least[] = {0, 0.05, 0.4};
    static const int64_t ks[] = {0, 2, 7, VOCAB, 1000};
    const uint64_t seed = 11;
    float logits[VOCAB];

    print_message("seed %llu\n", (unsigned long long)seed);
    clv_random_normal(logits, clv_key_seed(seed), 0, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = roundf(logits[i] * 4) / 2; /* with ties */
    logits[3] = -INFINITY;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 5; k++)
            for (int p = 0; p < 4; p++)
                for (int m = 0; m < 3; m++)
                    check_frequencies(&(clv_sampling){.temperature = temperatures[t],
                                                      .top_k = ks[k],
                                                      .top_p = shares[p],
                                                      .min_p = least[m],
                                                      .seed = seed},
                                      logits, VOCAB);
}

typedef struct golden_sampling {
    double penalty, temperature;
    int64_t top_k;
    double top_p, min_p;
    int logits;
    double probability[8];
} golden_sampling;

#include "golden/sampling.h"

/* What transformers leaves to draw from, at the edges of each option and with several of them. Its top_p of 0 keeps the
 * likeliest, as any above 0 that is small enough. */
static void test_golden(void **state)
{
    enum { N = sizeof golden_samplings / sizeof *golden_samplings, V = 8 };
    for (int i = 0; i < N; i++) {
        const golden_sampling *g = &golden_samplings[i];
        const clv_sampling s = {.temperature = g->temperature,
                                .top_k = g->top_k,
                                .top_p = g->top_p > 0 ? g->top_p : 1e-300,
                                .min_p = g->min_p};
        double got[V] = {0}, sum = 0;
        for (int v = 0; v < V; v++)
            work[v] = (clv_candidate){clv_penalized_logit(golden_logits[g->logits][v], golden_seen[v], g->penalty), v};
        const int64_t kept = clv_sampling_filter(work, V, &s);
        for (int64_t k = V - kept; k < V; k++)
            sum += got[work[k].id] = exp(((double)work[k].logit - (double)work[V - 1].logit) / s.temperature);
        for (int v = 0; v < V; v++)
            if (!(fabs(got[v] / sum - g->probability[v]) <= 1e-6) || (got[v] == 0) != (g->probability[v] == 0))
                fail_msg("case %d (penalty %g, T %g, k %lld, p %g, min %g): token %d has %.9g, not %.9g", i, g->penalty,
                         s.temperature, (long long)s.top_k, g->top_p, s.min_p, v, got[v] / sum, g->probability[v]);
    }
}

static void test_key(void **state)
{
    static const float even[VOCAB];
    clv_sampling s = {.temperature = 1, .seed = 1}, other = {.temperature = 1, .seed = 1 + (UINT64_C(1) << 32)};
    clv_sampling beside = {.temperature = 1, .seed = 1, .sequence = 1};
    int differ_by_position = 0, differ_by_seed = 0, differ_by_sequence = 0;

    for (int position = 0; position < 100; position++) {
        int64_t token = sample(&s, even, VOCAB, position);
        assert_int_equal(token, sample(&s, even, VOCAB, position));
        differ_by_position += token != sample(&s, even, VOCAB, position + 1);
        differ_by_sequence += token != sample(&beside, even, VOCAB, position);
        differ_by_seed += token != sample(&other, even, VOCAB, position);
    }
    assert_true(differ_by_position > 80);
    assert_true(differ_by_seed > 80);
    assert_true(differ_by_sequence > 80);
}

static void test_penalty(void **state)
{
    static const bool seen[] = {true, false, true, true};
    static const float before[] = {2, 2, -2, 0}, after[] = {1, 2, -4, 0};
    float logits[4];

    memcpy(logits, before, sizeof logits);
    clv_apply_repetition_penalty(logits, 4, seen, 1);
    clv_apply_repetition_penalty(logits, 4, seen, 0);
    assert_memory_equal(logits, before, sizeof logits);
    clv_apply_repetition_penalty(logits, 4, seen, 2);
    assert_memory_equal(logits, after, sizeof logits);
}

/* Of logits in `parts` parts, the last of which may hold nothing, the same token as of all together; or it is said that
 * all are needed. */
static bool check_parts(const clv_sampling *s, const float *logits, int parts, int64_t position)
{
    static clv_candidate part[VOCAB], told[VOCAB * VOCAB];
    bool needs_all_logits = false;
    float left_out = -INFINITY;
    int64_t k = clv_sampling_candidates_needed(s, VOCAB), n = 0, token = -1, size = (VOCAB + parts - 1) / parts;
    for (int64_t first = 0; first < VOCAB; first += size) {
        clv_candidate best[VOCAB];
        int64_t here = 0;
        for (int64_t i = first; i < VOCAB && i < first + size; i++)
            part[here++] = (clv_candidate){logits[i], (int32_t)i};
        clv_top_candidates(best, k, part, here);
        for (int64_t i = k - 1; i >= 0; i--) /* in any order */
            if (best[i].id >= 0)
                told[n++] = best[i];
        if (best[k - 1].id >= 0 && best[k - 1].logit > left_out)
            left_out = best[k - 1].logit;
    }
    clv_error of_parts = {0}, of_all = {0};
    int64_t wanted = -1;
    clv_status status = clv_sample(&wanted, s, logits, VOCAB, position, work, &of_all);
    assert_int_equal(clv_sample_from_candidates(&token, &needs_all_logits, s, told, n, left_out, position, &of_parts),
                     status);
    assert_string_equal(of_parts.message, of_all.message);
    if (status == CLV_OK && needs_all_logits)
        return true;
    assert_int_equal(token, wanted);
    return false;
}

static void test_parts(void **state)
{
    static const clv_sampling ways[] = {{0},
                                        {.temperature = 1, .top_k = 1},
                                        {.temperature = 2, .top_k = 7},
                                        {.temperature = 2, .top_k = 20, .top_p = 0.8},
                                        {.temperature = 2, .top_k = 49, .min_p = 0.1}};
    float logits[VOCAB];
    int needed_all = 0;
    for (int64_t position = 0; position < 300; position++) {
        bool ties = position % 2;
        clv_random_normal(logits, clv_key_seed((uint64_t)position), 0, VOCAB);
        for (int i = 0; i < VOCAB; i++)
            logits[i] = i % 9 == position % 9 ? -INFINITY : ties ? roundf(logits[i]) : logits[i];
        for (int i = 0; position % 10 == 9 && i < VOCAB; i += 17)
            logits[(i + position) % VOCAB] = position % 20 == 9 ? NAN : INFINITY;
        for (int i = 0; position == 42 && i < VOCAB; i++)
            logits[i] = -INFINITY;
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int parts = 1; parts <= VOCAB; parts += 1 + parts / 3) {
                bool needs_all = check_parts(&ways[w], logits, parts, position);
                assert_false(needs_all && (!ties || ways[w].temperature == 0));
                needed_all += needs_all;
            }
    }
    assert_true(needed_all > 0);
    assert_int_equal(clv_sampling_candidates_needed(&(clv_sampling){.temperature = 1}, VOCAB), 0);
    assert_int_equal(clv_sampling_candidates_needed(&(clv_sampling){.temperature = 1, .top_k = VOCAB}, VOCAB), 0);
    assert_int_equal(clv_sampling_candidates_needed(&(clv_sampling){.top_k = 9}, VOCAB), 1);
}

/* ---- stopping ---- */

/* The text in pieces of `step` bytes: what is shown is the same for any. */
static void stop_at(const char *text, const char *const *stops, int n, const char *want)
{
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        clv_stop_strings stop = {.texts = stops, .n = n};
        char got[256] = "";
        bool stopped = false;
        for (size_t at = 0; at < strlen(text) && !stopped; at += step) {
            size_t size = strlen(text) - at < step ? strlen(text) - at : step, n_shown;
            const char *shown;
            assert_int_equal(clv_stop_strings_add(&stop, text + at, size, at + step >= strlen(text), &shown, &n_shown,
                                                  &stopped, NULL),
                             CLV_OK);
            strncat(got, shown, n_shown);
        }
        assert_string_equal(got, want);
        clv_stop_strings_free(&stop);
    }
}

static void test_stop(void **state)
{
    static const char *const stops[] = {"END", "ENDS", "\n\n", "aab"};

    stop_at("no such thing", stops, 4, "no such thing");
    stop_at("to the END of it", stops, 4, "to the ");
    stop_at("E EN END", stops, 4, "E EN ");
    stop_at("EN", stops, 4, "EN");
    stop_at("one\ntwo\n\nthree", stops, 4, "one\ntwo");
    stop_at("aaaab", stops, 4, "aa");
    stop_at("ENDS", stops + 1, 1, "");
    stop_at("anything", NULL, 0, "anything");
}

static void test_refused(void **state)
{
    static const float nan_logit[] = {0, NAN}, infinite[] = {INFINITY, 0}, none[] = {-INFINITY, -INFINITY};
    static const float good[] = {0, 1};
    static const clv_sampling bad[] = {
        {.temperature = -1},
        {.temperature = NAN},
        {.temperature = INFINITY},
        {.temperature = 1, .top_k = -1},
        {.temperature = 1, .top_p = -1},
        {.temperature = 1, .top_p = 1.1},
        {.temperature = 1, .top_p = NAN},
        {.temperature = 1, .min_p = 1.1},
        {.temperature = 1, .min_p = NAN},
        {.temperature = 1, .repetition_penalty = -1},
        {.temperature = 1, .repetition_penalty = NAN},
    };
    const clv_sampling greedy = {0}, hot = {.temperature = 1};
    int64_t token = 77;
    clv_error err = {0};

    assert_int_equal(clv_sample(&token, &greedy, nan_logit, 2, 9, work, &err), CLV_ENONFINITE);
    assert_non_null(strstr(err.message, "position 9"));
    assert_non_null(strstr(err.message, "token 1"));
    assert_int_equal(clv_sample(&token, &hot, infinite, 2, 0, work, NULL), CLV_ENONFINITE);
    assert_int_equal(clv_sample(&token, &hot, none, 2, 0, work, NULL), CLV_ENONFINITE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(clv_sample(&token, &bad[i], good, 2, 0, work, NULL), CLV_EINVAL);
    assert_int_equal(token, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),  cmocka_unit_test(test_greedy_of_many), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_key),     cmocka_unit_test(test_golden),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_penalty), cmocka_unit_test(test_parts),          cmocka_unit_test(test_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
