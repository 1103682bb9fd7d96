/* test_kernels_attention_nonfinite.c - NaN and infinity in attention: what a pair that is hidden (by mask, cause,
 * window) holds reaches no result, what a visible one holds reaches all that the formula lets it reach;
 * forward and in every gradient, wherever blocks of rows and keys begin. The oracle is the formula over visible pairs
 * alone, in f64.
 */
#include "kernel_check.h"

#include "kernels/cpu/attention_kernel.h"

enum { MOST_HEADS = 4, MOST_DIM = 20, PLACES = 6 };

typedef struct shape {
    int64_t b, sq, sk, h, k, d, q_offset, window;
    bool causal, mask, own_offsets;
} shape;

/* Tensors that values are put into. */
enum { Q, K, V, D_OUT, TENSORS };
static const char *const names[] = {"q", "k", "v", "d_out"};

typedef struct problem {
    shape s;
    clv_dtype dtype;
    operand in[TENSORS], out, dq, dk, dv;
    float *lse;
    uint8_t *mask;
    int32_t *offsets;
    double *p; /* [sq, sk] of one head, for the oracle */
} problem;

static problem problem_make(const shape *s, clv_dtype dtype)
{
    int64_t q = s->b * s->sq * s->h * s->d, k = s->b * s->sk * s->k * s->d;
    problem p = {.s = *s, .dtype = dtype};
    p.in[Q] = operand_random(dtype, q, -2, 2);
    p.in[K] = operand_random(dtype, k, -2, 2);
    p.in[V] = operand_random(dtype, k, -1, 1);
    p.in[D_OUT] = operand_random(dtype, q, -1, 1);
    p.out = operand_blank(dtype, q);
    p.dq = operand_blank(dtype, q);
    p.dk = operand_blank(dtype, k);
    p.dv = operand_blank(dtype, k);
    p.lse = check_alloc(s->b * s->h * s->sq, sizeof *p.lse);
    p.mask = check_alloc(s->b * s->sk, 1);
    p.offsets = check_alloc(s->b, sizeof *p.offsets);
    p.p = check_alloc(s->sq * s->sk, sizeof *p.p);
    for (int64_t i = 0; i < s->b * s->sk; i++)
        p.mask[i] = check_next() % 4 != 0;
    for (int64_t b = 0; b < s->b; b++) {
        p.offsets[b] = (int32_t)(check_next() % 100) - 30;
    }
    return p;
}

static void problem_free(problem *p)
{
    for (int t = 0; t < TENSORS; t++)
        operand_free(p->in[t]);
    operand_free(p->out);
    operand_free(p->dq);
    operand_free(p->dk);
    operand_free(p->dv);
    free(p->lse);
    free(p->mask);
    free(p->offsets);
    free(p->p);
}

static void put(problem *p, int tensor, int64_t at, double value)
{
    clv_dtype_store(p->dtype, p->in[tensor].data, at, value);
    p->in[tensor].exact[at] = value;
}

/* ---- the oracle ---- */

static bool sees(const problem *p, int64_t b, int64_t i, int64_t j)
{
    const shape *s = &p->s;
    int64_t place = s->q_offset + i + (s->own_offsets ? p->offsets[b] : 0);
    return !(s->causal && j > place) && !(s->window > 0 && j + s->window <= place) &&
           !(s->mask && !p->mask[b * s->sk + j]);
}

static const double *row_q(const problem *p, const operand *o, int64_t b, int64_t i, int64_t h)
{
    return o->exact + ((b * p->s.sq + i) * p->s.h + h) * p->s.d;
}

static const double *row_k(const problem *p, const operand *o, int64_t b, int64_t j, int64_t c)
{
    return o->exact + ((b * p->s.sk + j) * p->s.k + c) * p->s.d;
}

static double times(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++)
        sum += x[d] * y[d];
    return sum;
}

/* p[i,:] over the keys that row i sees, as 0 / 0 and inf - inf have it. */
static void probabilities(problem *p, int64_t b, int64_t h, int64_t c, int64_t i)
{
    double *row = p->p + i * p->s.sk, most = -INFINITY, sum = 0, scale = (float)(1 / sqrt((double)p->s.d));
    bool nan = false;
    for (int64_t j = 0; j < p->s.sk; j++)
        if (sees(p, b, i, j)) {
            row[j] = scale * times(row_q(p, &p->in[Q], b, i, h), row_k(p, &p->in[K], b, j, c), p->s.d);
            nan = nan || isnan(row[j]);
            most = fmax(most, row[j]);
        }
    for (int64_t j = 0; j < p->s.sk; j++)
        if (sees(p, b, i, j)) {
            row[j] = nan ? NAN : exp(row[j] - most);
            sum += row[j];
        }
    for (int64_t j = 0; j < p->s.sk; j++)
        if (sees(p, b, i, j))
            row[j] /= sum;
}

static void row_gradients(problem *p, int64_t b, int64_t h, int64_t c, int64_t i)
{
    const shape *s = &p->s;
    double scale = (float)(1 / sqrt((double)s->d)), delta = 0;
    const double *row = p->p + i * s->sk, *q = row_q(p, &p->in[Q], b, i, h), *d_out = row_q(p, &p->in[D_OUT], b, i, h);
    double *dq = (double *)row_q(p, &p->dq, b, i, h);
    for (int64_t j = 0; j < s->sk; j++)
        if (sees(p, b, i, j))
            delta += row[j] * times(d_out, row_k(p, &p->in[V], b, j, c), s->d);
    for (int64_t j = 0; j < s->sk; j++)
        if (sees(p, b, i, j)) {
            const double *k = row_k(p, &p->in[K], b, j, c);
            double ds = row[j] * (times(d_out, row_k(p, &p->in[V], b, j, c), s->d) - delta);
            double *dk = (double *)row_k(p, &p->dk, b, j, c), *dv = (double *)row_k(p, &p->dv, b, j, c);
            for (int64_t d = 0; d < s->d; d++) {
                dq[d] += scale * ds * k[d];
                dk[d] += scale * ds * q[d];
                dv[d] += row[j] * d_out[d];
            }
        }
}

static void oracle(problem *p)
{
    const shape *s = &p->s;
    memset(p->out.exact, 0, (size_t)p->out.n * sizeof(double));
    memset(p->dq.exact, 0, (size_t)p->dq.n * sizeof(double));
    memset(p->dk.exact, 0, (size_t)p->dk.n * sizeof(double));
    memset(p->dv.exact, 0, (size_t)p->dv.n * sizeof(double));
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t i = 0; i < s->sq; i++) {
                int64_t c = h / (s->h / s->k);
                double *out = (double *)row_q(p, &p->out, b, i, h);
                probabilities(p, b, h, c, i);
                for (int64_t j = 0; j < s->sk; j++)
                    for (int64_t d = 0; d < s->d && sees(p, b, i, j); d++)
                        out[d] += p->p[i * s->sk + j] * row_k(p, &p->in[V], b, j, c)[d];
                row_gradients(p, b, h, c, i);
            }
}

/* ---- the kernels ---- */

static clv_attention_view view(const operand *o, int64_t rows, int64_t heads, int64_t d)
{
    return (clv_attention_view){o->data, rows * heads * d, heads * d, d};
}

static void run(problem *p)
{
    const shape *s = &p->s;
    clv_error err = {0};
    clv_attention_args a = {.q = view(&p->in[Q], s->sq, s->h, s->d),
                            .k = view(&p->in[K], s->sk, s->k, s->d),
                            .v = view(&p->in[V], s->sk, s->k, s->d),
                            .out = view(&p->out, s->sq, s->h, s->d),
                            .lse = p->lse,
                            .d_out = view(&p->in[D_OUT], s->sq, s->h, s->d),
                            .dq = view(&p->dq, s->sq, s->h, s->d),
                            .dk = view(&p->dk, s->sk, s->k, s->d),
                            .dv = view(&p->dv, s->sk, s->k, s->d),
                            .key_mask = s->mask ? p->mask : NULL,
                            .batch = s->b,
                            .q_rows = s->sq,
                            .k_rows = s->sk,
                            .heads = s->h,
                            .kv_heads = s->k,
                            .head_dim = s->d,
                            .group = s->h / s->k,
                            .q_offset = s->q_offset,
                            .offsets = s->own_offsets ? p->offsets : NULL,
                            .window = s->window,
                            .causal = s->causal,
                            .scale = (float)(1 / sqrt((double)s->d)),
                            .dtype = p->dtype,
                            .threads = 1};
    size_t forward = clv_attention_forward_workspace(&a), backward = clv_attention_backward_workspace(&a);
    size_t bytes = forward > backward ? forward : backward;
    a.workspace = check_alloc((int64_t)bytes, 1);
    memset(a.workspace, 0xff, bytes); /* NaN: what is used before it is written shows */
    assert_int_equal(clv_attention_forward(&a, &err), CLV_OK);
    assert_int_equal(clv_attention_backward(&a, &err), CLV_OK);
    free(a.workspace);
}

/* The same elements are finite, and these are the same: the rounding of `out` enters each of the terms of dk. */
static void compare(const char *what, const problem *p, const operand *o, const char *where)
{
    double terms = (double)(1 + p->s.sq * p->s.h), most = 1;
    double tolerance = 4 * sqrt(terms) * (p->dtype == CLV_F64 ? 1e-14 : 1e-6 + check_rounding(p->dtype));
    for (int64_t i = 0; i < o->n; i++)
        most = isfinite(o->exact[i]) ? fmax(most, fabs(o->exact[i])) : most;
    for (int64_t i = 0; i < o->n; i++) {
        double got = clv_dtype_load(p->dtype, o->data, i), want = o->exact[i];
        if (isfinite(got) ? !(fabs(got - want) <= tolerance * most) : isfinite(want))
            fail_msg("%s[%lld] is %g, not %g: %s, %s, %s, b=%lld sq=%lld sk=%lld h=%lld k=%lld d=%lld q_offset=%lld "
                     "window=%lld causal=%d mask=%d offsets=%d",
                     what, (long long)i, got, want, where, clv_dtype_name(p->dtype), clv_isa_name(clv_cpu_isa()),
                     (long long)p->s.b, (long long)p->s.sq, (long long)p->s.sk, (long long)p->s.h, (long long)p->s.k,
                     (long long)p->s.d, (long long)p->s.q_offset, (long long)p->s.window, p->s.causal, p->s.mask,
                     p->s.own_offsets);
    }
}

static void check(problem *p, const char *where)
{
    oracle(p);
    run(p);
    compare("out", p, &p->out, where);
    compare("dq", p, &p->dq, where);
    compare("dk", p, &p->dk, where);
    compare("dv", p, &p->dv, where);
}

/* ---- the cases ---- */

static const double bad[] = {NAN, INFINITY, -INFINITY};

/* One value in every row of every tensor in turn, about where blocks of queries and keys begin. */
static void test_every_row(void **unused)
{
    static const shape shapes[] = {
        {.b = 1, .sq = 66, .sk = 66, .h = 1, .k = 1, .d = 1, .causal = true},
        {.b = 1, .sq = 66, .sk = 130, .h = 1, .k = 1, .d = 2, .causal = true, .q_offset = 61, .window = 3},
        {.b = 1, .sq = 66, .sk = 66, .h = 1, .k = 1, .d = 1, .mask = true},
        {.b = 1, .sq = 1, .sk = 130, .h = 2, .k = 1, .d = 2, .causal = true, .q_offset = 126, .window = 65},
        {.b = 1, .sq = 1, .sk = 300, .h = 1, .k = 1, .d = 1, .mask = true},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < TENSORS; t++) {
            problem p = problem_make(&shapes[s], CLV_F32);
            for (int64_t i = 0; i < p.in[t].n; i += p.s.d) {
                char where[64];
                double before = p.in[t].exact[i];
                snprintf(where, sizeof where, "a value at %s[%lld]", names[t], (long long)i);
                put(&p, t, i, bad[i % 3]);
                check(&p, where);
                put(&p, t, i, before);
            }
            problem_free(&p);
        }
}

static int64_t one_of(const int64_t *list, int64_t n)
{
    return list[check_next() % (uint64_t)n];
}

static shape random_shape(void)
{
    static const int64_t rows[] = {1, 1, 2, 15, 16, 17, 63, 64, 65, 80, 128, 129};
    static const int64_t heads[] = {1, 2, MOST_HEADS}, dims[] = {1, 3, 16, MOST_DIM};
    shape s = {.b = 1 + (int64_t)(check_next() % 2), .sq = one_of(rows, 12), .sk = one_of(rows, 12)};
    s.h = one_of(heads, 3);
    s.k = check_next() % 2 ? s.h : 1;
    s.d = one_of(dims, 4);
    s.causal = check_next() % 2;
    s.mask = check_next() % 3 == 0;
    s.own_offsets = check_next() % 4 == 0;
    s.q_offset = check_next() % 2 ? (int64_t)(check_next() % 80) : 0;
    s.window = check_next() % 3 == 0 ? 1 + (int64_t)(check_next() % 90) : 0;
    return s;
}

/* Some values anywhere, in any shape. */
static void random_case(clv_dtype dtype)
{
    const char *text = getenv("CLV_CASES");
    int cases = text ? atoi(text) : 40;
    for (int n = 0; n < cases; n++) {
        shape s = random_shape();
        problem p = problem_make(&s, dtype);
        char where[256] = "values at";
        int values = 1 + (int)(check_next() % PLACES);
        for (int v = 0; v < values; v++) {
            int t = (int)(check_next() % TENSORS);
            int64_t at = (int64_t)(check_next() % (uint64_t)p.in[t].n);
            size_t used = strlen(where);
            snprintf(where + used, sizeof where - used, " %s[%lld]", names[t], (long long)at);
            put(&p, t, at, bad[check_next() % 3]);
        }
        check(&p, where);
        problem_free(&p);
    }
}

static void test_anywhere(void **unused)
{
    check_everywhere(random_case);
}

/* Scores that are all -inf are 0 / 0; a row that sees nothing is 0, and passes nothing on. */
static void all_minus_infinity(clv_dtype dtype)
{
    for (int64_t rows = 1; rows < 3; rows++) {
        shape s = {.b = 1, .sq = rows, .sk = 3, .h = 1, .k = 1, .d = 1, .mask = true};
        problem p = problem_make(&s, dtype);
        memset(p.mask, 1, 3);
        put(&p, Q, 0, -INFINITY);
        for (int64_t j = 0; j < s.sk; j++)
            put(&p, K, j, 1 + (double)j);
        check(&p, "q[0] is -inf");
        assert_true(isnan(clv_dtype_load(dtype, p.out.data, 0)) && isnan(p.lse[0]));
        memset(p.mask, 0, 3);
        check(&p, "nothing is seen");
        for (int64_t i = 0; i < rows; i++)
            assert_true(clv_dtype_load(dtype, p.out.data, i) == 0 && p.lse[i] == -INFINITY);
        problem_free(&p);
    }
}

static void test_all_minus_infinity(void **unused)
{
    check_everywhere(all_minus_infinity);
}

/* An infinity in v that all rows see reaches each as itself, not as NaN. */
static void infinity_in_v(clv_dtype dtype)
{
    static const shape s = {.b = 1, .sq = 32, .sk = 32, .h = 1, .k = 1, .d = 32};
    problem p = problem_make(&s, dtype);
    put(&p, V, 5, INFINITY);
    run(&p);
    for (int64_t i = 0; i < s.sq; i++)
        if (!(clv_dtype_load(dtype, p.out.data, i * s.d + 5) == INFINITY))
            fail_msg("row %lld, %s, %s: not infinite", (long long)i, clv_dtype_name(dtype),
                     clv_isa_name(clv_cpu_isa()));
    problem_free(&p);
}

static void test_infinity_in_v(void **unused)
{
    check_everywhere(infinity_in_v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_anywhere),
        cmocka_unit_test(test_all_minus_infinity),
        cmocka_unit_test(test_infinity_in_v),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
