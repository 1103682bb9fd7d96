/* test_nonfinite_propagation.c - no mesh changes which results are finite: every op and its gradient, with NaN and
 * infinity anywhere in what it takes, on random meshes and layouts, against the same graph run op by op on whole
 * tensors; and what ops that choose, drop or ignore do with a value that they leave out. CLV_CASES: cases an op. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/session.h"
#include "graph_interpreter.h"
#include "program/program.h"
#include "unit_test.h"

enum { CASES = 4, MAX_LEAVES = 12 };

typedef struct maker {
    uint64_t state;
    clv_graph *graph;
    int n_leaves;
    clv_value leaf[MAX_LEAVES];
    char name[MAX_LEAVES][16];
    bool no_gradient;
    int64_t limit[MAX_LEAVES]; /* of an integer leaf: values are in [-1, limit) */
} maker;

static int pick(maker *m, int n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((m->state >> 33) % (uint64_t)n);
}

static clv_mesh random_mesh(maker *m)
{
    clv_mesh mesh = {.n_axes = 1 + pick(m, 2)};
    for (int a = 0; a < mesh.n_axes; a++) {
        mesh.axis[a].name[0] = (char)('x' + a);
        mesh.axis[a].size = 2 + pick(m, mesh.n_axes == 1 ? 4 : 2);
    }
    return mesh;
}

static clv_layout random_layout(maker *m, int rank)
{
    const clv_mesh *mesh = clv_graph_mesh(m->graph);
    clv_layout layout = clv_layout_replicated(rank);
    for (int a = 0; a < mesh->n_axes; a++) {
        int d = pick(m, rank + 1);
        if (d < rank)
            clv_layout_shard_dim(&layout, mesh, d, clv_mesh_whole_axis(mesh, a), NULL);
    }
    return layout;
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static clv_value leaf(maker *m, clv_dtype dtype, int64_t limit, int rank, const int64_t *shape)
{
    int i = m->n_leaves++;
    clv_layout layout = random_layout(m, rank);
    snprintf(m->name[i], sizeof m->name[i], "in%d", i);
    m->limit[i] = limit;
    return m->leaf[i] = clv_input(m->graph, m->name[i], dtype, rank, shape, pick(m, 5) ? &layout : NULL);
}

static clv_value plain(maker *m, int rank, const int64_t *shape)
{
    return leaf(m, CLV_F64, 0, rank, shape);
}

/* A leaf, or a product that may be partial. */
static clv_value value(maker *m, int rank, const int64_t *shape)
{
    static const char *const subscripts[] = {
        "", "m,mn->n", "am,mn->an", "abm,mn->abn", "abcm,mn->abcn", "abcdm,mn->abcdn"};
    int64_t inner[CLV_MAX_RANK], n = shape[rank - 1];
    if (pick(m, 2))
        return plain(m, rank, shape);
    memcpy(inner, shape, (size_t)rank * sizeof *inner);
    inner[rank - 1] = 4;
    clv_value x = plain(m, rank, inner);
    return clv_einsum(m->graph, subscripts[rank], x, plain(m, SHAPE(4, n)));
}

/* ---- a case an op ---- */

static clv_value op_product(maker *m)
{
    clv_value x = value(m, SHAPE(3, 6));
    return clv_einsum(m->graph, "am,mn->an", x, value(m, SHAPE(6, 5)));
}

static clv_value op_map(maker *m)
{
    static const clv_unary_kind kinds[] = {CLV_TANH, CLV_SIGMOID, CLV_GELU, CLV_GELU_TANH, CLV_SILU, CLV_RELU, CLV_EXP};
    return clv_unary(m->graph, kinds[pick(m, 7)], value(m, SHAPE(4, 6)));
}

static clv_value op_combine(maker *m)
{
    static const clv_binary_kind kinds[] = {CLV_ADD, CLV_SUB, CLV_MUL, CLV_DIV, CLV_MAXIMUM, CLV_MINIMUM};
    clv_value x = value(m, SHAPE(4, 6));
    return clv_binary(m->graph, kinds[pick(m, 6)], x, pick(m, 2) ? value(m, SHAPE(4, 6)) : plain(m, SHAPE(6)));
}

static clv_value op_where(maker *m)
{
    clv_value condition = leaf(m, CLV_U8, 2, SHAPE(4, 6)), x = value(m, SHAPE(4, 6));
    return clv_where(m->graph, condition, x, value(m, SHAPE(4, 6)));
}

static clv_value op_reduce(maker *m)
{
    int dim = pick(m, 2);
    return clv_reduce(m->graph, (clv_reduce_kind)(CLV_SUM + pick(m, CLV_MEAN - CLV_SUM + 1)), value(m, SHAPE(5, 6)),
                      &dim, 1, pick(m, 2));
}

static clv_value op_softmax(maker *m)
{
    return clv_softmax(m->graph, value(m, SHAPE(5, 6)));
}

static clv_value op_norm(maker *m)
{
    clv_value x = value(m, SHAPE(5, 6)), gain = plain(m, SHAPE(6));
    return pick(m, 2) ? clv_rms_norm(m->graph, x, gain, 0.1)
                      : clv_layer_norm(m->graph, x, gain, plain(m, SHAPE(6)), 0.1);
}

static clv_value op_cross_entropy(maker *m)
{
    clv_value logits = value(m, SHAPE(6, 7));
    return clv_cross_entropy(m->graph, logits, leaf(m, CLV_I32, 7, SHAPE(6)), -1);
}

static clv_value op_embedding(maker *m)
{
    clv_value table = value(m, SHAPE(7, 6));
    return clv_embedding(m->graph, table, leaf(m, CLV_I32, 7, SHAPE(4, 3)));
}

static clv_value op_dropout(maker *m)
{
    return clv_dropout(m->graph, value(m, SHAPE(5, 6)), 0.5, clv_key_seed(7), CLV_NONE);
}

static clv_value op_gated(maker *m)
{
    return clv_gated(m->graph, value(m, SHAPE(4, 2, 6)), CLV_SILU);
}

static clv_value op_bias_gelu(maker *m)
{
    clv_value x = value(m, SHAPE(4, 6));
    return clv_bias_gelu(m->graph, x, plain(m, SHAPE(6)), CLV_GELU);
}

static clv_value op_attention(maker *m)
{
    clv_value q = value(m, SHAPE(2, 5, 4, 3)), kv = value(m, SHAPE(2, 6, 2, 2, 3));
    clv_attention_options o = {.causal = pick(m, 2)};
    o.window = pick(m, 3) ? 0 : 2;
    if (pick(m, 2))
        o.mask = leaf(m, CLV_U8, 2, SHAPE(2, 6));
    return clv_attention(m->graph, q, kv, &o);
}

static clv_value op_rope(maker *m)
{
    return clv_rope(m->graph, value(m, SHAPE(2, 4, 2, 4)), CLV_NONE, &(clv_rope_options){.theta = 100});
}

static clv_value op_cache(maker *m)
{
    m->no_gradient = true;
    clv_value cache = value(m, SHAPE(2, 6, 3)), rows = value(m, SHAPE(2, 2, 3));
    return clv_cache_update(m->graph, cache, rows, leaf(m, CLV_I32, 4, SHAPE(2)));
}

static clv_value op_move(maker *m)
{
    clv_value x = value(m, SHAPE(4, 6));
    switch (pick(m, 5)) {
    case 0:
        return clv_concat(m->graph, (clv_value[]){x, plain(m, SHAPE(3, 6))}, 2, 0);
    case 1:
        return clv_slice(m->graph, x, (int64_t[]){1, 2}, (int64_t[]){3, 6});
    case 2:
        return clv_pad(m->graph, x, (int64_t[]){1, 0}, (int64_t[]){0, 2});
    case 3:
        return clv_cast(m->graph, clv_cast(m->graph, x, CLV_F32), CLV_F64);
    default:
        return clv_reshape(m->graph, clv_transpose(m->graph, x, (int[]){1, 0}), 3, (int64_t[]){3, 2, 4});
    }
}

static const struct {
    const char *name;
    clv_value (*make)(maker *);
} ops[] = {
    {"product", op_product},     {"map", op_map},         {"combine", op_combine}, {"where", op_where},
    {"reduce", op_reduce},       {"softmax", op_softmax}, {"norm", op_norm},       {"loss", op_cross_entropy},
    {"embedding", op_embedding}, {"dropout", op_dropout}, {"gated", op_gated},     {"bias_gelu", op_bias_gelu},
    {"rope", op_rope},           {"cache", op_cache},     {"move", op_move},       {"attention", op_attention},
};
enum { N_OPS = sizeof ops / sizeof *ops };

/* ---- running ---- */

static bool is_float(const maker *m, int i)
{
    return m->limit[i] == 0;
}

/* Few values, so that most results stay finite. */
static void spoil(maker *m, graph_eval *eval)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < m->n_leaves; i++) {
        clv_type type = clv_graph_type(m->graph, m->leaf[i]);
        int64_t n = clv_type_elems(&type);
        for (int64_t k = 0; !is_float(m, i) && k < n; k++)
            graph_eval_set(eval, m->leaf[i], k,
                           type.dtype == CLV_U8 ? pick(m, 2) : pick(m, (int)m->limit[i] + 1) - (m->limit[i] == 7));
    }
    for (int values = 1 + pick(m, 3); values > 0; values--) {
        int i = pick(m, m->n_leaves);
        clv_type type = clv_graph_type(m->graph, m->leaf[i]);
        if (is_float(m, i))
            graph_eval_set(eval, m->leaf[i], pick(m, (int)clv_type_elems(&type)), bad[pick(m, 3)]);
    }
}

static int64_t compare(const char *op, int number, const char *what, const double *got, graph_eval *eval,
                       clv_value value, int64_t n)
{
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = graph_eval_get(eval, value, i);
        if (isfinite(got[i]) ? !(fabs(got[i] - want) <= 1e-5 * fmax(1, fabs(want))) : isfinite(want))
            fail_msg("%s, case %d: %s, element %lld is %g, on one rank %g", op, number, what, (long long)i, got[i],
                     want);
        finite += isfinite(got[i]);
    }
    return finite;
}

static void must(clv_status status, const char *op, int number, const clv_error *err)
{
    if (status != CLV_OK)
        fail_msg("%s, case %d: %s", op, number, err->message);
}

/* Finite results, of `all`. */
static int64_t run_case(int which, int number, int64_t *all)
{
    clv_error err = {0};
    maker m = {.state = (uint64_t)(number * N_OPS + which) * 7919 + 1};
    const char *op = ops[which].name;
    clv_program *program = NULL;
    clv_session *session = NULL;
    clv_mesh mesh = random_mesh(&m);
    clv_value out[MAX_LEAVES + 1], wrt[MAX_LEAVES];
    int n_wrt = 0;
    assert_int_equal(clv_graph_new(&m.graph, &mesh, &err), CLV_OK);
    out[0] = ops[which].make(&m);
    clv_type type = clv_graph_type(m.graph, out[0]);
    clv_value seed = plain(&m, type.rank, type.shape);
    for (int i = 0; i < m.n_leaves - 1; i++)
        if (is_float(&m, i) && !m.no_gradient)
            wrt[n_wrt++] = m.leaf[i];
    clv_gradients(m.graph, out[0], seed, wrt, n_wrt, out + 1);
    static const char *const names[] = {"y", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11"};
    for (int i = 0; i <= n_wrt; i++)
        clv_output(m.graph, names[i], out[i], NULL);
    must(clv_compile(&program, m.graph, NULL, &err), op, number, &err);
    must(clv_session_new(&session, &mesh, &(clv_session_options){.no_pinning = 1}, &err), op, number, &err);

    graph_eval *eval = graph_eval_new(m.graph, (uint64_t)number);
    spoil(&m, eval);
    graph_eval_must_run(eval, -1);
    clv_input_binding in[MAX_LEAVES];
    clv_output_binding results[MAX_LEAVES + 1];
    for (int i = 0; i < m.n_leaves; i++)
        in[i] = (clv_input_binding){m.name[i], graph_eval_data(eval, m.leaf[i])};
    for (int i = 0; i <= n_wrt; i++) {
        type = clv_graph_type(m.graph, out[i]);
        results[i] = (clv_output_binding){names[i], malloc((size_t)clv_type_elems(&type) * sizeof(double))};
    }
    must(clv_session_run(session, program, in, m.n_leaves, results, n_wrt + 1, &err), op, number, &err);
    int64_t finite = 0;
    for (int i = 0; i <= n_wrt; i++) {
        type = clv_graph_type(m.graph, out[i]);
        finite += compare(op, number, names[i], results[i].data, eval, out[i], clv_type_elems(&type));
        *all += clv_type_elems(&type);
        free(results[i].data);
    }
    graph_eval_free(eval);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(m.graph);
    return finite;
}

static void test_meshes_agree(void **unused)
{
    const char *text = getenv("CLV_CASES");
    for (int which = 0; which < N_OPS; which++) {
        int64_t all = 0, finite = 0;
        for (int number = 0; number < (text ? atoi(text) : CASES); number++)
            finite += run_case(which, number, &all);
        assert_true(finite > all / 8 && finite < all); /* else nothing was tried */
    }
}

/* ---- what is left out ---- */

typedef struct tried {
    clv_graph *graph;
    graph_eval *eval;
    clv_value d[2];
} tried;

static tried try_graph(clv_graph *graph, clv_value y, clv_value seed, const clv_value *wrt, int n)
{
    tried t = {.graph = graph};
    clv_gradients(graph, y, seed, wrt, n, t.d);
    t.eval = graph_eval_new(graph, 1);
    return t;
}

static clv_graph *new_graph(void)
{
    clv_mesh mesh;
    clv_graph *graph;
    assert_int_equal(clv_mesh_parse(&mesh, "x=1", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    return graph;
}

static void free_tried(tried *t)
{
    graph_eval_free(t->eval);
    clv_graph_free(t->graph);
}

/* A NaN cotangent reaches the operand that was chosen; half of it each at a tie; both where one is NaN. */
static void test_choices(void **unused)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16};
    static const double a[] = {1, 3, 2, NAN, 1}, b[] = {2, 1, 2, 1, NAN};
    for (int i = 0; i < 6; i++) {
        clv_graph *graph = new_graph();
        clv_dtype dtype = dtypes[i / 2];
        int64_t n = 5;
        clv_value x = clv_input(graph, "x", dtype, 1, &n, NULL), y = clv_input(graph, "y", dtype, 1, &n, NULL);
        clv_value seed = clv_input(graph, "d", dtype, 1, &n, NULL);
        clv_value most = clv_binary(graph, i % 2 ? CLV_MINIMUM : CLV_MAXIMUM, x, y);
        tried t = try_graph(graph, most, seed, (clv_value[]){x, y}, 2);
        graph_eval_fill(t.eval, x, i % 2 ? b : a);
        graph_eval_fill(t.eval, y, i % 2 ? a : b);
        graph_eval_fill(t.eval, seed, (double[]){NAN, NAN, NAN, 4, 4});
        graph_eval_must_run(t.eval, -1);
        for (int k = 0; k < 2; k++) /* min: the two change places, and choices with them */
            for (int64_t j = 0; j < n; j++) {
                double got = graph_eval_get(t.eval, t.d[k], j);
                bool chosen = j >= 2 || (j == 1) == (k == 0);
                assert_true(j >= 3 ? got == 4 : chosen ? isnan(got) : got == 0);
            }
        free_tried(&t);
    }
}

/* A row with an ignored label has loss 0 and no gradient, whatever its logits and cotangent are. */
static void test_ignored_rows(void **unused)
{
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16};
    for (int i = 0; i < 3; i++) {
        clv_graph *graph = new_graph();
        int64_t shape[] = {2, 3};
        clv_value logits = clv_input(graph, "logits", dtypes[i], 2, shape, NULL);
        clv_value labels = clv_input(graph, "labels", CLV_I32, 1, shape, NULL);
        clv_value loss = clv_cross_entropy(graph, logits, labels, -100);
        clv_value seed = clv_input(graph, "d", clv_graph_type(graph, loss).dtype, 1, shape, NULL);
        tried t = try_graph(graph, loss, seed, &logits, 1);
        graph_eval_fill(t.eval, logits, (double[]){1, 2, 3, NAN, INFINITY, 1});
        graph_eval_fill(t.eval, labels, (double[]){1, -100});
        graph_eval_fill(t.eval, seed, (double[]){1, NAN});
        graph_eval_must_run(t.eval, -1);
        assert_true(graph_eval_get(t.eval, loss, 0) > 0 && graph_eval_get(t.eval, loss, 1) == 0);
        for (int64_t k = 0; k < 6; k++) {
            double d = graph_eval_get(t.eval, t.d[0], k);
            assert_true(k < 3 ? isfinite(d) && d != 0 : d == 0);
        }
        free_tried(&t);
    }
}

/* Dropout and where choose: what they drop is 0, not 0 times it. */
static void test_what_is_dropped(void **unused)
{
    enum { N = 64 };
    for (int i = 0; i < 2; i++) {
        clv_graph *graph = new_graph();
        clv_dtype dtype = i ? CLV_F32 : CLV_F64;
        int64_t n = N;
        clv_value x = clv_input(graph, "x", dtype, 1, &n, NULL), seed = clv_input(graph, "d", dtype, 1, &n, NULL);
        clv_value condition = clv_input(graph, "c", CLV_U8, 1, &n, NULL);
        clv_value kept = clv_dropout(graph, x, 0.5, clv_key_seed(3), CLV_NONE);
        clv_value y = clv_where(graph, condition, kept, clv_fill(graph, dtype, 1, &n, 0));
        tried t = try_graph(graph, y, seed, &x, 1);
        double nans[N], half[N];
        for (int k = 0; k < N; k++) {
            nans[k] = NAN;
            half[k] = k < N / 2;
        }
        graph_eval_fill(t.eval, x, nans);
        graph_eval_fill(t.eval, seed, nans);
        graph_eval_fill(t.eval, condition, half);
        graph_eval_must_run(t.eval, -1);
        int zeros = 0;
        for (int64_t k = 0; k < N; k++) {
            double value = graph_eval_get(t.eval, kept, k), d = graph_eval_get(t.eval, t.d[0], k);
            assert_true(value == 0 || isnan(value));
            assert_true(isnan(d) == (isnan(value) && half[k] == 1));
            zeros += value == 0;
        }
        assert_in_range(zeros, N / 4, N - N / 4);
        free_tried(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes_agree),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_ignored_rows),
        cmocka_unit_test(test_what_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
