/* Values of the transformer's ops against plain formulas in f64, their gradients against central differences, their
 * sharding rules by running them on cut views, and what they refuse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_eval.h"

enum { SEED = 20240607 };

#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static clv_graph *new_graph(void)
{
    clv_mesh mesh;
    clv_graph *graph = NULL;
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    return graph;
}

static clv_value input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape)
{
    return clv_input(graph, name, dtype, rank, shape, NULL);
}

static clv_value scalar(clv_graph *graph, const char *name, clv_dtype dtype)
{
    return clv_input(graph, name, dtype, 0, NULL, NULL);
}

/* |got - want| <= tol * max(1, |want|), element by element. */
static void assert_close(graph_eval *eval, clv_value value, const double *want, int64_t n, double tol)
{
    for (int64_t i = 0; i < n; i++) {
        double got = graph_eval_get(eval, value, i);
        if (!(fabs(got - want[i]) <= tol * fmax(1, fabs(want[i]))))
            fail_msg("value %d, element %lld: %.12g, expected %.12g", value.id, (long long)i, got, want[i]);
    }
}

/* Rounding of one result of the dtype, with room for sums of tens of terms. */
static double tolerance(clv_dtype dtype)
{
    return dtype == CLV_F64 ? 1e-13 : dtype == CLV_F32 ? 4e-6 : dtype == CLV_F16 ? 4e-3 : 3e-2;
}

static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
enum { DTYPES = 4 };

/* The graph fails with `code` and a message that holds `text`. */
static void assert_refused(clv_graph *graph, clv_status code, const char *text)
{
    clv_error err = {0};
    clv_status status = clv_graph_status(graph, &err);
    if (status != code || !strstr(err.message, text))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(code), text, clv_status_name(status),
                 err.message);
    clv_graph_free(graph);
}

/* ---- norms ---- */

static void plain_norm(double *y, const double *x, const double *gain, const double *bias, int64_t rows, int64_t cols,
                       double eps, bool layer)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < cols; c++)
            mean += x[r * cols + c] / (double)cols;
        mean = layer ? mean : 0;
        for (int64_t c = 0; c < cols; c++)
            square += (x[r * cols + c] - mean) * (x[r * cols + c] - mean) / (double)cols;
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = (x[r * cols + c] - mean) / sqrt(square + eps) * gain[c] + (bias ? bias[c] : 0);
    }
}

static void copy_out(double *to, graph_eval *eval, clv_value value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = graph_eval_get(eval, value, i);
}

static void norm_values(void **state)
{
    enum { ROWS = 6, COLS = 5 };
    (void)state;
    for (int k = 0; k < 2 * DTYPES; k++) {
        bool layer = k % 2;
        clv_dtype dtype = dtypes[k / 2];
        double x[ROWS * COLS], gain[COLS], bias[COLS], y[ROWS * COLS];
        clv_graph *graph = new_graph();
        clv_value vx = input(graph, "x", dtype, DIMS(2, 3, COLS)), vg = input(graph, "gain", dtype, DIMS(COLS));
        clv_value vb = input(graph, "bias", dtype, DIMS(COLS));
        clv_value vy = layer ? clv_layer_norm(graph, vx, vg, vb, 1e-5) : clv_rms_norm(graph, vx, vg, 1e-5);
        graph_eval *eval = graph_eval_new(graph, SEED);
        copy_out(x, eval, vx, ROWS * COLS), copy_out(gain, eval, vg, COLS), copy_out(bias, eval, vb, COLS);
        graph_eval_must_run(eval, -1);
        plain_norm(y, x, gain, layer ? bias : NULL, ROWS, COLS, 1e-5, layer);
        assert_close(eval, vy, y, ROWS * COLS, tolerance(dtype));
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void norm_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", CLV_F64, DIMS(2, 3, 5)), gain = input(graph, "gain", CLV_F64, DIMS(5));
        clv_value bias = k == 2 ? input(graph, "bias", CLV_F64, DIMS(5)) : CLV_NONE;
        clv_value y = k == 0 ? clv_rms_norm(graph, x, gain, 1e-3) : clv_layer_norm(graph, x, gain, bias, 1e-3);
        check_gradient(graph, y, (clv_value[]){x, gain, bias}, k == 2 ? 3 : 2, NULL, NULL);
        clv_graph_free(graph);
    }
}

/* Weights of another dtype than x: gradients have the weights' dtype. */
static void norm_mixed_dtypes(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_BF16, DIMS(4, 8)), gain = input(graph, "gain", CLV_F32, DIMS(8)), d[2];
    clv_value y = clv_rms_norm(graph, x, gain, 1e-5), seed = input(graph, "seed", CLV_BF16, DIMS(4, 8));
    clv_gradients(graph, y, seed, (clv_value[]){x, gain}, 2, d);
    assert_int_equal(clv_graph_type(graph, d[0]).dtype, CLV_BF16);
    assert_int_equal(clv_graph_type(graph, d[1]).dtype, CLV_F32);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int64_t i = 0; i < 8; i++)
        assert_true(isfinite(graph_eval_get(eval, d[1], i)));
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static void norm_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_F32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(4)), 1e-5);
    assert_refused(graph, CLV_ESHAPE, "gain is f32[4]; [5]");
    graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_F32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(5)), 0);
    assert_refused(graph, CLV_EINVAL, "eps is 0");
    graph = new_graph();
    clv_rms_norm(graph, input(graph, "x", CLV_I32, DIMS(2, 5)), input(graph, "g", CLV_F32, DIMS(5)), 1e-5);
    assert_refused(graph, CLV_EDTYPE, "x is i32");
    graph = new_graph();
    clv_layer_norm(graph, scalar(graph, "x", CLV_F32), input(graph, "g", CLV_F32, DIMS(5)), CLV_NONE, 1e-5);
    assert_refused(graph, CLV_ESHAPE, "[...,M]");
}

/* ---- embedding ---- */

static const double ids[] = {3, 0, 6, -1, 3, 7, 2, 1};
enum { IDS = 8, VOCABULARY = 7, WIDTH = 3 };

static void set_ids(graph_eval *eval, void *value)
{
    graph_eval_fill(eval, *(clv_value *)value, ids);
}

static void embedding_values(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value table = input(graph, "table", dtypes[k / 2], DIMS(VOCABULARY, WIDTH));
        clv_value picked = input(graph, "ids", k % 2 ? CLV_I64 : CLV_I32, DIMS(2, 4));
        clv_value out = clv_embedding(graph, table, picked);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, picked, ids);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < IDS * WIDTH; i++) {
            int64_t id = (int64_t)ids[i / WIDTH];
            double want = id < 0 || id >= VOCABULARY ? 0 : graph_eval_get(eval, table, id * WIDTH + i % WIDTH);
            assert_true(graph_eval_get(eval, out, i) == want);
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void embedding_gradients(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value table = input(graph, "table", CLV_F64, DIMS(VOCABULARY, WIDTH));
    clv_value picked = input(graph, "ids", CLV_I32, DIMS(2, 4));
    check_gradient(graph, clv_embedding(graph, table, picked), &table, 1, set_ids, &picked);
    clv_graph_free(graph);
}

static void embedding_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7, 3)), input(graph, "ids", CLV_F32, DIMS(4)));
    assert_refused(graph, CLV_EDTYPE, "ids is f32; i32 or i64");
    graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7)), input(graph, "ids", CLV_I32, DIMS(4)));
    assert_refused(graph, CLV_ESHAPE, "[V,M]");
    graph = new_graph();
    clv_embedding(graph, input(graph, "t", CLV_F32, DIMS(7, 3)),
                  input(graph, "ids", CLV_I32, DIMS(1, 1, 1, 1, 1, 1, 1, 1)));
    assert_refused(graph, CLV_ELIMIT, "8 dimensions");
}

/* ---- attention ---- */

typedef struct attention_case {
    int64_t b, sq, sk, h, k, d;
    bool causal, masked;
    int offset; /* -1: none given */
} attention_case;

static const attention_case attention_cases[] = {
    {2, 5, 5, 4, 4, 4, true, false, -1},  /* MHA */
    {1, 4, 4, 6, 2, 2, true, true, -1},   /* GQA */
    {2, 3, 7, 4, 1, 3, false, true, -1},  /* MQA, cross */
    {1, 2, 8, 6, 3, 4, true, false, 4},   /* chunk of a KV cache */
    {1, 1, 6, 4, 2, 8, true, false, 3},   /* decode */
    {1, 3, 4, 12, 6, 2, false, false, -1} /* more KV heads than blocks, and neither divides 8 */
};
enum { ATTENTION_CASES = sizeof attention_cases / sizeof *attention_cases };

typedef struct attention_graph {
    const attention_case *c;
    clv_graph *graph;
    clv_value q, kv, mask, offset, out;
} attention_graph;

static attention_graph attention_of(const attention_case *c, clv_dtype dtype)
{
    attention_graph a = {.c = c, .graph = new_graph(), .mask = CLV_NONE, .offset = CLV_NONE};
    a.q = input(a.graph, "q", dtype, DIMS(c->b, c->sq, c->h, c->d));
    a.kv = input(a.graph, "kv", dtype, DIMS(c->b, c->sk, 2, c->k, c->d));
    if (c->masked)
        a.mask = input(a.graph, "mask", c->b == 1 ? CLV_BOOL : CLV_U8, DIMS(c->b, c->sk));
    if (c->offset >= 0)
        a.offset = scalar(a.graph, "offset", CLV_I32);
    clv_attention_options options = {.causal = c->causal, .mask = a.mask, .offset = a.offset};
    a.out = clv_attention(a.graph, a.q, a.kv, &options);
    return a;
}

static bool attends(const attention_case *c, int64_t b, int64_t j)
{
    return !c->masked || (b + j) % 4 != 1;
}

static void set_attention(graph_eval *eval, void *context)
{
    const attention_graph *a = context;
    for (int64_t i = 0; a->c->masked && i < a->c->b * a->c->sk; i++)
        graph_eval_set(eval, a->mask, i, attends(a->c, i / a->c->sk, i % a->c->sk));
    if (a->c->offset >= 0)
        graph_eval_set(eval, a->offset, 0, a->c->offset);
}

/* One row of one head, as the formula says. */
static void plain_attention_row(double *out, graph_eval *eval, const attention_graph *a, int64_t b, int64_t i,
                                int64_t h)
{
    const attention_case *c = a->c;
    int64_t head = h / (c->h / c->k), q0 = ((b * c->sq + i) * c->h + h) * c->d,
            last = i + (c->offset > 0 ? c->offset : 0);
    double p[16], sum = 0;
    for (int64_t j = 0; j < c->sk; j++) {
        int64_t k0 = ((b * c->sk + j) * 2 * c->k + head) * c->d;
        double s = 0;
        for (int64_t d = 0; d < c->d; d++)
            s += graph_eval_get(eval, a->q, q0 + d) * graph_eval_get(eval, a->kv, k0 + d);
        p[j] = attends(c, b, j) && (!c->causal || j <= last) ? exp(s / sqrt((double)c->d)) : 0;
        sum += p[j];
    }
    for (int64_t d = 0; d < c->d; d++) {
        out[d] = 0;
        for (int64_t j = 0; j < c->sk && sum > 0; j++)
            out[d] += p[j] / sum * graph_eval_get(eval, a->kv, ((b * c->sk + j) * 2 * c->k + c->k + head) * c->d + d);
    }
}

static void attention_values(void **state)
{
    (void)state;
    for (int n = 0; n < ATTENTION_CASES * DTYPES; n++) {
        const attention_case *c = &attention_cases[n / DTYPES];
        clv_dtype dtype = dtypes[n % DTYPES];
        attention_graph a = attention_of(c, dtype);
        graph_eval *eval = graph_eval_new(a.graph, SEED);
        set_attention(eval, &a);
        graph_eval_must_run(eval, -1);
        for (int64_t row = 0; row < c->b * c->sq * c->h; row++) {
            double want[8];
            plain_attention_row(want, eval, &a, row / (c->sq * c->h), row / c->h % c->sq, row % c->h);
            for (int64_t d = 0; d < c->d; d++) {
                double got = graph_eval_get(eval, a.out, row * c->d + d);
                if (!(fabs(got - want[d]) <= tolerance(dtype)))
                    fail_msg("case %d, %s, row %lld, %lld: %.12g, expected %.12g", n / DTYPES, clv_dtype_name(dtype),
                             (long long)row, (long long)d, got, want[d]);
            }
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(a.graph);
    }
}

static void attention_gradients(void **state)
{
    (void)state;
    for (int n = 0; n < ATTENTION_CASES; n++) {
        attention_graph a = attention_of(&attention_cases[n], CLV_F64);
        check_gradient(a.graph, a.out, (clv_value[]){a.q, a.kv}, 2, set_attention, &a);
        clv_graph_free(a.graph);
    }
}

/* The f32 gradient, which is another kernel, against f64's on the same values; and its rules: dkv of the blocks of query
 * heads and of query rows add up. */
static void attention_gradients_f32(void **state)
{
    (void)state;
    for (int n = 0; n < ATTENTION_CASES; n++) {
        attention_graph a[2];
        clv_value seed[2], d[2][2];
        graph_eval *eval[2];
        for (int p = 0; p < 2; p++) {
            a[p] = attention_of(&attention_cases[n], p == 0 ? CLV_F64 : CLV_F32);
            clv_type type = clv_graph_type(a[p].graph, a[p].out);
            seed[p] = clv_input(a[p].graph, "seed", type.dtype, type.rank, type.shape, NULL);
            clv_gradients(a[p].graph, a[p].out, seed[p], (clv_value[]){a[p].q, a[p].kv}, 2, d[p]);
            eval[p] = graph_eval_new(a[p].graph, SEED);
            set_attention(eval[p], &a[p]);
            graph_eval_must_run(eval[p], -1);
        }
        for (int w = 0; w < 2; w++) {
            clv_type type = clv_graph_type(a[0].graph, d[0][w]);
            int64_t elems = clv_type_elems(&type);
            double *want = calloc((size_t)elems, sizeof *want);
            copy_out(want, eval[0], d[0][w], elems);
            assert_close(eval[1], d[1][w], want, elems, tolerance(CLV_F32));
            free(want);
        }
        assert_true(graph_eval_check_rules(eval[1]) > 0);
        for (int p = 0; p < 2; p++) {
            graph_eval_free(eval[p]);
            clv_graph_free(a[p].graph);
        }
    }
}

/* KV heads hand the blocks that they cannot take to the query heads of their groups. */
static void attention_spills(void **state)
{
    (void)state;
    attention_graph a = attention_of(&attention_cases[1], CLV_F32);
    const clv_op *op = &a.graph->ops[0];
    clv_type in[CLV_MAX_IN] = {clv_graph_type(a.graph, a.q), clv_graph_type(a.graph, a.kv)};
    clv_type out[CLV_MAX_OUT] = {clv_graph_type(a.graph, a.out)};
    clv_rule rule;
    memset(&rule, 0, sizeof rule);
    op->def->rule(op, in, out, &rule);
    const clv_dim_factors *heads = &rule.in[0][2];
    assert_int_equal(heads->n, 2);
    assert_int_equal(rule.factor[heads->factor[0]].size, 2);
    assert_int_equal(rule.factor[heads->factor[1]].size, 3);
    assert_int_equal(rule.factor[heads->factor[0]].spill, heads->factor[1]);
    clv_graph_free(a.graph);
}

static void attention_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 5, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  NULL);
    assert_refused(graph, CLV_ESHAPE, "5 query heads (q is f32[1,4,5,8]) are not a multiple of 2 KV heads");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 4)),
                  NULL);
    assert_refused(graph, CLV_ESHAPE, "[B,Sk,2,K,D]");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)),
                  input(graph, "kv", CLV_BF16, DIMS(1, 4, 2, 2, 8)), NULL);
    assert_refused(graph, CLV_EDTYPE, "dtypes must be equal");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  &(clv_attention_options){.mask = input(graph, "m", CLV_U8, DIMS(1, 5)), .offset = CLV_NONE_INIT});
    assert_refused(graph, CLV_ESHAPE, "mask is u8[1,5]; [B,Sk] = [1,4]");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  &(clv_attention_options){.mask = CLV_NONE_INIT, .offset = scalar(graph, "o", CLV_F32)});
    assert_refused(graph, CLV_EDTYPE, "offset is f32[]; i32[]");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 1, 1, 1024)),
                  input(graph, "kv", CLV_F32, DIMS(1, 1, 2, 1, 1024)), NULL);
    assert_refused(graph, CLV_ELIMIT, "head_dim of 1024");
}

/* ---- rope ---- */

typedef struct rope_case {
    bool packed, interleaved;
    int64_t dims;
    int offset;
} rope_case;

static const rope_case rope_cases[] = {
    {false, false, 0, -1}, {false, true, 0, 5}, {true, false, 4, 3}, {true, true, 0, -1}};
enum { ROPE_CASES = 4, ROPE_B = 2, ROPE_S = 3, ROPE_H = 2, ROPE_D = 6 };

typedef struct rope_graph {
    const rope_case *c;
    clv_graph *graph;
    clv_value x, offset, out;
} rope_graph;

static rope_graph rope_of(const rope_case *c, clv_dtype dtype)
{
    rope_graph r = {.c = c, .graph = new_graph(), .offset = CLV_NONE};
    r.x = c->packed ? input(r.graph, "x", dtype, DIMS(ROPE_B, ROPE_S, 2, ROPE_H, ROPE_D))
                    : input(r.graph, "x", dtype, DIMS(ROPE_B, ROPE_S, ROPE_H, ROPE_D));
    if (c->offset >= 0)
        r.offset = scalar(r.graph, "offset", CLV_I32);
    r.out = clv_rope(r.graph, r.x, r.offset, 100, c->dims, c->interleaved);
    return r;
}

static void set_rope(graph_eval *eval, void *context)
{
    const rope_graph *r = context;
    if (r->c->offset >= 0)
        graph_eval_set(eval, r->offset, 0, r->c->offset);
}

/* Element d of a head whose elements start at x0, at a position. */
static double plain_rope(graph_eval *eval, const rope_graph *r, int64_t x0, int64_t d, int64_t position)
{
    int64_t dims = r->c->dims ? r->c->dims : ROPE_D, half = dims / 2;
    if (d >= dims)
        return graph_eval_get(eval, r->x, x0 + d);
    int64_t pair = r->c->interleaved ? d / 2 : d % half;
    bool second = r->c->interleaved ? d % 2 : d >= half;
    int64_t partner = r->c->interleaved ? (second ? d - 1 : d + 1) : (second ? d - half : d + half);
    double angle = (double)position * pow(100, -2.0 * (double)pair / (double)dims);
    double x = graph_eval_get(eval, r->x, x0 + d), y = graph_eval_get(eval, r->x, x0 + partner);
    return x * cos(angle) + (second ? y : -y) * sin(angle);
}

static void rope_values(void **state)
{
    (void)state;
    for (int n = 0; n < ROPE_CASES * DTYPES; n++) {
        rope_graph r = rope_of(&rope_cases[n / DTYPES], dtypes[n % DTYPES]);
        graph_eval *eval = graph_eval_new(r.graph, SEED);
        int64_t kinds = r.c->packed ? 2 : 1, heads = ROPE_B * ROPE_S * kinds * ROPE_H;
        set_rope(eval, &r);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < heads * ROPE_D; i++) {
            int64_t head = i / ROPE_D, row = head / (kinds * ROPE_H);
            bool value = r.c->packed && head / ROPE_H % 2 == 1;
            int64_t position = row % ROPE_S + (r.c->offset > 0 ? r.c->offset : 0);
            double want =
                value ? graph_eval_get(eval, r.x, i) : plain_rope(eval, &r, head * ROPE_D, i % ROPE_D, position);
            if (!(fabs(graph_eval_get(eval, r.out, i) - want) <= tolerance(dtypes[n % DTYPES])))
                fail_msg("case %d, element %lld: %.12g, expected %.12g", n, (long long)i,
                         graph_eval_get(eval, r.out, i), want);
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(r.graph);
    }
}

static void rope_gradients(void **state)
{
    (void)state;
    for (int n = 0; n < ROPE_CASES; n++) {
        rope_graph r = rope_of(&rope_cases[n], CLV_F64);
        check_gradient(r.graph, r.out, &r.x, 1, set_rope, &r);
        clv_graph_free(r.graph);
    }
}

static void rope_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 2, 5)), CLV_NONE, 1e4, 0, false);
    assert_refused(graph, CLV_EINVAL, "5 rotated dims of a head_dim of 5");
    graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 3, 2, 4)), CLV_NONE, 1e4, 0, false);
    assert_refused(graph, CLV_ESHAPE, "[B,S,2,K,D]");
    graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 2, 4)), CLV_NONE, 0, 0, false);
    assert_refused(graph, CLV_EINVAL, "theta is 0");
}

/* ---- KV cache ---- */

static void cache_values(void **state)
{
    enum { B = 2, ROOM = 5, S = 2, K = 3, D = 2, ROW = 2 * K * D };
    (void)state;
    clv_graph *graph = new_graph();
    clv_value cache = input(graph, "cache", CLV_F32, DIMS(B, ROOM, 2, K, D));
    clv_value rows = input(graph, "rows", CLV_F32, DIMS(B, S, 2, K, D)), offset = scalar(graph, "offset", CLV_I32);
    clv_value out = clv_cache_update(graph, cache, rows, offset);
    graph_eval *eval = graph_eval_new(graph, SEED);
    clv_error err = {0};
    for (int at = 0; at <= ROOM - S; at++) {
        graph_eval_set(eval, offset, 0, at);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < B * ROOM * ROW; i++) {
            int64_t b = i / (ROOM * ROW), s = i / ROW % ROOM - at;
            double want = s >= 0 && s < S ? graph_eval_get(eval, rows, (b * S + s) * ROW + i % ROW)
                                          : graph_eval_get(eval, cache, i);
            assert_true(graph_eval_get(eval, out, i) == want);
        }
    }
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_set(eval, offset, 0, ROOM - S + 1);
    assert_int_equal(graph_eval_run(eval, -1, &err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "context full: 2 rows from 4 on do not fit a cache of 5 rows"));
    graph_eval_set(eval, offset, 0, -1);
    assert_int_equal(graph_eval_run(eval, -1, NULL), CLV_ELIMIT);
    graph_eval_free(eval);
    clv_graph_free(graph);

    graph = new_graph();
    clv_cache_update(graph, input(graph, "c", CLV_F32, DIMS(2, 5, 3)), input(graph, "r", CLV_F32, DIMS(2, 6, 3)),
                     scalar(graph, "o", CLV_I32));
    assert_refused(graph, CLV_ESHAPE, "rows f32[2,6,3] do not fit cache f32[2,5,3]");
}

/* ---- softmax ---- */

static void softmax_values(void **state)
{
    enum { ROWS = 4, COLS = 5 };
    (void)state;
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtypes[k], DIMS(2, 2, COLS)), y = clv_softmax(graph, x);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_must_run(eval, -1);
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int64_t c = 0; c < COLS; c++)
                sum += exp(graph_eval_get(eval, x, r * COLS + c));
            for (int64_t c = 0; c < COLS; c++)
                assert_true(fabs(graph_eval_get(eval, y, r * COLS + c) -
                                 exp(graph_eval_get(eval, x, r * COLS + c)) / sum) <= tolerance(dtypes[k]));
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F64, DIMS(3, 4));
    check_gradient(graph, clv_softmax(graph, x), &x, 1, NULL, NULL);
    clv_graph_free(graph);
}

/* ---- cross-entropy ---- */

static const double labels[] = {2, -100, 0, 6, -100, 3};
enum { LABELS = 6, CLASSES = 7 };

static void set_labels(graph_eval *eval, void *value)
{
    graph_eval_fill(eval, *(clv_value *)value, labels);
}

static void cross_entropy_values(void **state)
{
    (void)state;
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value logits = input(graph, "logits", dtypes[k], DIMS(2, 3, CLASSES));
        clv_value targets = input(graph, "labels", k % 2 ? CLV_I64 : CLV_I32, DIMS(2, 3));
        clv_value loss = clv_cross_entropy(graph, logits, targets, -100);
        clv_value count = clv_count_labels(graph, targets, -100, dtypes[k]);
        assert_int_equal(clv_graph_type(graph, loss).dtype, dtypes[k] == CLV_F64 ? CLV_F64 : CLV_F32);
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_fill(eval, targets, labels);
        graph_eval_must_run(eval, -1);
        for (int64_t r = 0; r < LABELS; r++) {
            double sum = 0, want = 0;
            for (int64_t v = 0; v < CLASSES; v++)
                sum += exp(graph_eval_get(eval, logits, r * CLASSES + v));
            if (labels[r] >= 0)
                want = log(sum) - graph_eval_get(eval, logits, r * CLASSES + (int64_t)labels[r]);
            /* logits are exact: the loss is f32 or f64 whatever their dtype */
            assert_true(fabs(graph_eval_get(eval, loss, r) - want) <= (dtypes[k] == CLV_F64 ? 1e-13 : 2e-6));
        }
        assert_true(graph_eval_get(eval, count, 0) == 4);
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void cross_entropy_gradients(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value logits = input(graph, "logits", CLV_F64, DIMS(2, 3, CLASSES));
    clv_value targets = input(graph, "labels", CLV_I64, DIMS(2, 3));
    clv_value loss = clv_cross_entropy(graph, logits, targets, -100);
    check_gradient(graph, loss, &logits, 1, set_labels, &targets);
    /* It reaches logits by exactly one op over the vocabulary: forward has three, backward adds two. */
    int over_vocabulary = 0;
    for (int o = 0; o < graph->n_ops; o++)
        over_vocabulary += strncmp(graph->ops[o].def->name, "xent", 4) == 0;
    assert_int_equal(over_vocabulary, 5);
    clv_graph_free(graph);
}

static void cross_entropy_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_cross_entropy(graph, input(graph, "x", CLV_F32, DIMS(2, 3, 7)), input(graph, "y", CLV_I32, DIMS(3, 2)), -100);
    assert_refused(graph, CLV_ESHAPE, "labels is i32[3,2]; the shape of logits f32[2,3,7] without its last dimension");
    graph = new_graph();
    clv_cross_entropy(graph, input(graph, "x", CLV_F32, DIMS(2, 7)), input(graph, "y", CLV_U8, DIMS(2)), -100);
    assert_refused(graph, CLV_EDTYPE, "labels is u8");
}

/* ---- dropout ---- */

static void set_one(graph_eval *eval, void *value)
{
    graph_eval_set(eval, *(clv_value *)value, 0, 1);
}

static void dropout_values(void **state)
{
    enum { ELEMS = 3 * 5 * 7 };
    clv_key key = clv_key_seed(11);
    (void)state;
    for (int k = 0; k < DTYPES; k++) {
        clv_graph *graph = new_graph();
        clv_value x = input(graph, "x", dtypes[k], DIMS(3, 5, 7)), step = scalar(graph, "step", CLV_I32);
        clv_value y = clv_dropout(graph, x, 0.25, key, step), same = clv_dropout(graph, x, 0, key, step);
        assert_int_equal(same.id, x.id);
        graph_eval *eval = graph_eval_new(graph, SEED);
        for (int s = 0; s < 2; s++) {
            float u[ELEMS];
            int kept = 0;
            graph_eval_set(eval, step, 0, s);
            graph_eval_must_run(eval, -1);
            clv_random_uniform(u, clv_key_fold_in(key, (uint32_t)s), 0, ELEMS, 0, 1);
            for (int64_t i = 0; i < ELEMS; i++) {
                double want = u[i] < 0.75f ? graph_eval_get(eval, x, i) / 0.75 : 0;
                assert_true(fabs(graph_eval_get(eval, y, i) - want) <= tolerance(dtypes[k]));
                kept += u[i] < 0.75f;
            }
            assert_in_range(kept, ELEMS / 2, ELEMS - 1);
        }
        assert_true(graph_eval_check_rules(eval) > 0); /* so the mask does not depend on the cut */
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void dropout_gradients(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F64, DIMS(4, 5)), step = scalar(graph, "step", CLV_I32);
    check_gradient(graph, clv_dropout(graph, x, 0.5, clv_key_seed(3), step), &x, 1, set_one, &step);
    clv_graph_free(graph);
    graph = new_graph();
    clv_dropout(graph, input(graph, "x", CLV_F32, DIMS(4)), 1, clv_key_seed(3), CLV_NONE);
    assert_refused(graph, CLV_EINVAL, "p is 1");
}

/* ---- AdamW ---- */

static void adamw_values(void **state)
{
    enum { ELEMS = 15, STEPS = 3 };
    const double lr = 0.125, decay = 0.1;
    (void)state;
    for (int k = 0; k < 2; k++) {
        clv_dtype dtype = k == 0 ? CLV_F64 : CLV_F32;
        clv_graph *graph = new_graph();
        clv_layout layout = clv_graph_layout(graph, 2, "x,_");
        clv_graph_push(graph, "layer");
        clv_value p = clv_state(graph, "w", dtype, DIMS(3, 5), &layout, (clv_init){.kind = CLV_INIT_NORMAL});
        clv_graph_pop(graph);
        clv_graph_push(graph, "update");
        clv_value g = input(graph, "g", dtype, DIMS(3, 5)), rate = scalar(graph, "lr", CLV_F32);
        clv_value step = scalar(graph, "step", CLV_I32);
        clv_adamw(graph, p, g, rate, step, &(clv_adamw_options){.weight_decay = decay});
        assert_int_equal(clv_graph_status(graph, NULL), CLV_OK);
        clv_value m = {graph->ops[0].in[1]}, v = {graph->ops[0].in[2]};
        const clv_value_info *info = graph->values;
        assert_string_equal(info[m.id].name, "layer.w.m");
        assert_string_equal(info[v.id].name, "layer.w.v");
        assert_true(clv_layout_equal(&info[m.id].layout, &layout) && clv_layout_equal(&info[v.id].layout, &layout));
        assert_string_equal(graph->scope, "update.");

        graph_eval *eval = graph_eval_new(graph, SEED);
        double wp[ELEMS], wm[ELEMS] = {0}, wv[ELEMS] = {0};
        copy_out(wp, eval, p, ELEMS);
        graph_eval_fill(eval, m, wm), graph_eval_fill(eval, v, wv);
        graph_eval_set(eval, rate, 0, lr);
        for (int t = 1; t <= STEPS; t++) {
            graph_eval_set(eval, step, 0, t);
            graph_eval_must_run(eval, -1);
            for (int i = 0; i < ELEMS; i++) {
                double d = graph_eval_get(eval, g, i);
                wm[i] = 0.9 * wm[i] + 0.1 * d;
                wv[i] = 0.999 * wv[i] + 0.001 * d * d;
                wp[i] = wp[i] * (1 - lr * decay) -
                        lr * (wm[i] / (1 - pow(0.9, t))) / (sqrt(wv[i] / (1 - pow(0.999, t))) + 1e-8);
            }
            clv_value become[] = {{info[p.id].assigned}, {info[m.id].assigned}, {info[v.id].assigned}};
            assert_close(eval, become[0], wp, ELEMS, 20 * tolerance(dtype));
            assert_close(eval, become[1], wm, ELEMS, tolerance(dtype));
            assert_close(eval, become[2], wv, ELEMS, tolerance(dtype));
            assert_true(graph_eval_check_rules(eval) > 0);
            for (int s = 0; s < 3; s++) {
                clv_value to[] = {p, m, v};
                double x[ELEMS];
                copy_out(x, eval, become[s], ELEMS);
                graph_eval_fill(eval, to[s], x);
            }
        }
        clv_error err = {0};
        graph_eval_set(eval, step, 0, 0);
        assert_int_equal(graph_eval_run(eval, -1, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "the first update is step 1"));
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
}

static void adamw_refuses(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(3)), lr = scalar(graph, "lr", CLV_F32);
    clv_value step = scalar(graph, "step", CLV_I32);
    clv_adamw(graph, x, x, lr, step, NULL);
    assert_refused(graph, CLV_EINVAL, "not state");
    graph = new_graph();
    clv_value p = clv_state(graph, "p", CLV_F32, DIMS(3), NULL, (clv_init){0});
    clv_adamw(graph, p, p, CLV_NONE, CLV_NONE, &(clv_adamw_options){.beta1 = 1});
    assert_refused(graph, CLV_EINVAL, "beta1 1");
    graph = new_graph();
    p = clv_state(graph, "p", CLV_F32, DIMS(3), NULL, (clv_init){0});
    clv_adamw(graph, p, input(graph, "g", CLV_F32, DIMS(4)), scalar(graph, "lr", CLV_F32),
              scalar(graph, "step", CLV_I32), NULL);
    assert_refused(graph, CLV_ESHAPE, "the gradient is f32[4] and the parameter is f32[3]");
}

/* ---- no elements ---- */

static void empty_shapes(void **state)
{
    (void)state;
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_F32, DIMS(0, 3, 4)), gain = input(graph, "g", CLV_F32, DIMS(4)), d[3];
    clv_value q = input(graph, "q", CLV_F32, DIMS(2, 0, 4, 8)), kv = input(graph, "kv", CLV_F32, DIMS(2, 3, 2, 2, 8));
    clv_value y = clv_softmax(
        graph, clv_dropout(graph, clv_layer_norm(graph, x, gain, CLV_NONE, 1e-5), 0.5, clv_key_seed(1), CLV_NONE));
    clv_value out = clv_attention(graph, clv_rope(graph, q, CLV_NONE, 1e4, 0, false), kv, NULL);
    clv_value loss = clv_cross_entropy(graph, y, input(graph, "labels", CLV_I32, DIMS(0, 3)), -100);
    clv_gradients(graph, out, input(graph, "seed", CLV_F32, DIMS(2, 0, 4, 8)), (clv_value[]){q, kv}, 2, d);
    clv_gradients(graph, loss, input(graph, "seed2", CLV_F32, DIMS(0, 3)), &gain, 1, d + 2);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int64_t i = 0; i < 2 * 3 * 2 * 2 * 8; i++)
        assert_true(graph_eval_get(eval, d[1], i) == 0);
    for (int64_t i = 0; i < 4; i++)
        assert_true(graph_eval_get(eval, d[2], i) == 0);
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_values),
        cmocka_unit_test(norm_gradients),
        cmocka_unit_test(norm_mixed_dtypes),
        cmocka_unit_test(norm_refuses),
        cmocka_unit_test(embedding_values),
        cmocka_unit_test(embedding_gradients),
        cmocka_unit_test(embedding_refuses),
        cmocka_unit_test(attention_values),
        cmocka_unit_test(attention_gradients),
        cmocka_unit_test(attention_gradients_f32),
        cmocka_unit_test(attention_spills),
        cmocka_unit_test(attention_refuses),
        cmocka_unit_test(rope_values),
        cmocka_unit_test(rope_gradients),
        cmocka_unit_test(rope_refuses),
        cmocka_unit_test(cache_values),
        cmocka_unit_test(softmax_values),
        cmocka_unit_test(cross_entropy_values),
        cmocka_unit_test(cross_entropy_gradients),
        cmocka_unit_test(cross_entropy_refuses),
        cmocka_unit_test(dropout_values),
        cmocka_unit_test(dropout_gradients),
        cmocka_unit_test(adamw_values),
        cmocka_unit_test(adamw_refuses),
        cmocka_unit_test(empty_shapes),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
