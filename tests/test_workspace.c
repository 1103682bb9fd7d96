/* test_workspace.c - a workspace is planned once, for the largest shards, and every rank uses it: what an op asks for
 * must not fall when one of its local extents grows; and products and attention keep to it on meshes that cut unevenly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/session.h"
#include "graph/graph.h"
#include "op_cases.h"
#include "ops/builtin_ops.h"
#include "unit_test.h"

enum { PRODUCTS = 400, PAIRS = 40, LETTERS = 6 };

typedef struct random_source {
    uint64_t state;
} random_source;

static int pick(random_source *r, int n)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((r->state >> 33) % (uint64_t)n);
}

/* ---- shards of an op, by its factors ---- */

static int64_t extent_of(const clv_dim_factors *dim, int64_t whole, const int64_t *size)
{
    int64_t extent = 1;
    for (int i = 0; i < dim->n; i++)
        extent *= size[dim->factor[i]];
    return dim->n > 0 ? extent : whole;
}

static clv_view view_of(const clv_type *type, const clv_dim_factors *dims, const int64_t *size)
{
    clv_view view = {.dtype = type->dtype, .rank = type->rank};
    for (int d = 0; d < type->rank; d++) {
        view.global[d] = type->shape[d];
        view.shape[d] = extent_of(&dims[d], type->shape[d], size);
    }
    return view;
}

/* The workspace of a shard that holds size[f] of each factor. */
static size_t wanted(const clv_graph *graph, const clv_op *op, const clv_rule *rule, const int64_t *size)
{
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = view_of(&graph->values[op->in[i]].type, rule->in[i], size);
    for (int o = 0; o < op->n_out; o++)
        out[o] = view_of(&graph->values[op->out[o]].type, rule->out[o], size);
    return op->def->workspace(op, in, out);
}

static void rule_of(clv_rule *rule, const clv_graph *graph, const clv_op *op)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    memset(rule, 0, sizeof *rule);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = graph->values[op->in[i]].type;
    for (int o = 0; o < op->n_out; o++)
        out[o] = graph->values[op->out[o]].type;
    op->def->rule(op, in, out, rule);
}

static void check_op(const clv_graph *graph, const clv_op *op, random_source *r)
{
    clv_rule rule;
    rule_of(&rule, graph, op);
    for (int pair = 0; pair < PAIRS; pair++) {
        int64_t small[CLV_MAX_FACTORS], large[CLV_MAX_FACTORS];
        for (int f = 0; f < rule.n_factors; f++) {
            large[f] = pick(r, 2) ? rule.factor[f].size : pick(r, (int)rule.factor[f].size + 1);
            small[f] = pick(r, 2) ? large[f] : pick(r, 2) && large[f] > 0 ? 1 : pick(r, (int)large[f] + 1);
        }
        size_t less = wanted(graph, op, &rule, small), more = wanted(graph, op, &rule, large);
        if (less <= more)
            continue;
        char text[512] = "";
        for (int f = 0; f < rule.n_factors; f++)
            snprintf(text + strlen(text), sizeof text - strlen(text), " %lld<=%lld", (long long)small[f],
                     (long long)large[f]);
        fail_msg("%s wants %zu bytes for a shard inside one that %zu do for; extents by factor:%s", op->name, less,
                 more, text);
    }
}

/* ---- the ops ---- */

/* A product of random letters in random order, some of extent 1 or 0. */
static void random_product(clv_graph *graph, random_source *r, clv_dtype dtype)
{
    char list[3][LETTERS + 1] = {"", "", ""}, subscripts[3 * LETTERS + 8];
    int64_t shape[2][LETTERS], size[LETTERS];
    for (int l = 0; l < LETTERS; l++) {
        static const int64_t sizes[] = {1, 2, 3, 70, 9, 0, 1};
        int in = 1 + pick(r, 4); /* in two or three of the lists; 4: in none */
        size[l] = sizes[pick(r, 7)];
        for (int k = 0; k < 3 && in < 4; k++) {
            size_t n = strlen(list[k]), at = (size_t)pick(r, (int)n + 1);
            if (k == 3 - in && pick(r, 2)) /* not in this one; else a batch letter */
                continue;
            memmove(list[k] + at + 1, list[k] + at, n - at + 1);
            list[k][at] = (char)('a' + l);
        }
    }
    for (int k = 0; k < 2; k++)
        for (int d = 0; list[k][d]; d++)
            shape[k][d] = size[list[k][d] - 'a'];
    snprintf(subscripts, sizeof subscripts, "%s,%s->%s", list[0], list[1], list[2]);
    clv_einsum(graph, subscripts, clv_input(graph, "a", dtype, (int)strlen(list[0]), shape[0], NULL),
               clv_input(graph, "b", dtype, (int)strlen(list[1]), shape[1], NULL));
}

static void attention(clv_graph *graph, clv_dtype dtype, int64_t batch, int64_t rows, int64_t groups)
{
    const int64_t kv_heads = 3, head_dim = 4;
    clv_value q = input(graph, "q", dtype, DIMS(batch, rows, kv_heads * groups, head_dim));
    clv_value kv = input(graph, "kv", dtype, DIMS(batch, 5, 2, kv_heads, head_dim));
    clv_value both[] = {q, kv}, d[2];
    clv_value out =
        clv_attention(graph, q, kv, &(clv_attention_options){.scale = 1, .mask = CLV_NONE, .offset = CLV_NONE});
    clv_gradients(graph, out, out, both, 2, d);
}

/* Few rows and many, panels of all weights and of some. */
static void quant_dot(clv_graph *graph, clv_dtype dtype, clv_quant how, int64_t rows)
{
    const int64_t out = 70, heads = 3, blocks = rows % 2 ? 5 : 260;
    clv_value x = input(graph, "x", dtype, DIMS(rows, heads, 32 * blocks));
    clv_value ints = input(graph, "ints", CLV_U8, DIMS(out, heads, blocks, how == CLV_QUANT_Q8 ? 32 : 16));
    clv_quantized_dot(graph, how, x, ints, input(graph, "scales", CLV_F16, DIMS(out, heads, blocks)), 2);
}

static void quant_experts(clv_graph *graph, clv_dtype dtype, clv_quant how, int64_t rows)
{
    const int64_t bytes = how == CLV_QUANT_Q8 ? 32 : 16, blocks = rows % 2 ? 1 : 3;
    clv_value up[] = {input(graph, "up", CLV_U8, DIMS(3, 2, 32 * blocks, 2, bytes)),
                      input(graph, "up_scales", CLV_F16, DIMS(3, 2, 32 * blocks, 2))};
    clv_value down[] = {input(graph, "down", CLV_U8, DIMS(3, 64, blocks, bytes)),
                        input(graph, "down_scales", CLV_F16, DIMS(3, 64, blocks))};
    clv_value weights = input(graph, "weights", dtype == CLV_F64 ? CLV_F64 : CLV_F32, DIMS(rows, 2));
    clv_quantized_experts(graph, how, input(graph, "x", dtype, DIMS(rows, 64)),
                          input(graph, "ids", CLV_I32, DIMS(rows, 2)), weights, up, down, CLV_SILU);
}

static void packed_dot(clv_graph *graph, clv_dtype dtype, int64_t rows)
{
    const int64_t in = rows % 2 ? 5 : 700;
    clv_prepacked_dot(graph, input(graph, "x", dtype, DIMS(rows, in)), input(graph, "w", dtype, DIMS(70, in, 16)), 1);
}

static void sort(clv_graph *graph, clv_dtype dtype, int64_t rows)
{
    clv_value values, index;
    clv_sort(graph, input(graph, "x", dtype, DIMS(rows, 7)), (int)(rows % 2), false, &values, &index);
}

/* With gradients. */
static void experts(clv_graph *graph, clv_dtype dtype, int64_t rows)
{
    const clv_dtype weights_dtype = dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    clv_value all[] = {input(graph, "x", dtype, DIMS(rows, 6)), input(graph, "weights", weights_dtype, DIMS(rows, 2)),
                       input(graph, "gate_up", dtype, DIMS(3, 6, 2, 5)), input(graph, "down", dtype, DIMS(3, 5, 6))};
    clv_value ids = input(graph, "ids", CLV_I32, DIMS(rows, 2)), d[4];
    clv_value out = clv_experts(graph, all[0], ids, all[1], all[2], all[3], CLV_SILU);
    clv_gradients(graph, out, out, all, 4, d);
}

/* Runs the check on the graph's ops; marks those that were seen. */
static void check_graph(clv_graph *graph, random_source *r, bool *seen)
{
    clv_error err = {0};
    if (clv_graph_status(graph, &err) != CLV_OK)
        fail_msg("%s", err.message);
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (!op->def->workspace)
            continue;
        check_op(graph, op, r);
        int t = 0;
        for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def), t++)
            seen[t] = seen[t] || def == op->def;
    }
    clv_graph_free(graph);
}

static void test_what_is_asked_for_grows_with_every_extent(void **state)
{
    random_source r = {20240607};
    bool seen[256] = {false};
    for (int i = 0; i < PRODUCTS; i++) {
        clv_graph *graph = new_graph();
        random_product(graph, &r, dtypes[i % DTYPES]);
        check_graph(graph, &r, seen);
    }
    for (int t = 0; t < DTYPES; t++)
        for (int64_t rows = 1; rows <= 65; rows = rows == 3 ? 65 : rows + 1) {
            clv_graph *graph = new_graph();
            attention(graph, dtypes[t], 2, rows, rows % 2 + 1);
            check_graph(graph, &r, seen);
            graph = new_graph();
            experts(graph, dtypes[t], rows);
            check_graph(graph, &r, seen);
            graph = new_graph();
            sort(graph, dtypes[t], rows);
            check_graph(graph, &r, seen);
        }
    for (int i = 0; i < DTYPES * 2 * 6; i++) {
        static const int64_t rows[] = {1, 2, 16, 17, 18, 40};
        clv_graph *graph = new_graph();
        const clv_quant how = i / DTYPES % 2 ? CLV_QUANT_Q4 : CLV_QUANT_Q8;
        quant_dot(graph, dtypes[i % DTYPES], how, rows[i / DTYPES / 2]);
        check_graph(graph, &r, seen);
        graph = new_graph();
        quant_experts(graph, dtypes[i % DTYPES], how, rows[i / DTYPES / 2]);
        check_graph(graph, &r, seen);
        if (dtypes[i % DTYPES] == CLV_F64)
            continue;
        graph = new_graph();
        packed_dot(graph, dtypes[i % DTYPES], rows[i / DTYPES / 2] * 3);
        check_graph(graph, &r, seen);
    }
    int t = 0;
    for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def), t++)
        if (def->workspace && !seen[t])
            fail_msg("%s has a workspace that this test does not reach", def->name);
}

/* ---- on meshes, by sessions that check ---- */

static clv_layout random_layout(random_source *r, const clv_mesh *mesh, int rank)
{
    clv_layout layout = clv_layout_replicated(rank);
    for (int a = 0; a < mesh->n_axes; a++) {
        int d = pick(r, rank + 1);
        if (d < rank)
            assert_int_equal(clv_layout_shard_dim(&layout, mesh, d, clv_mesh_whole_axis(mesh, a), NULL), CLV_OK);
    }
    return layout;
}

static void run_checked(clv_graph *graph, int threads, const clv_input_binding *in, int n_in,
                        const clv_output_binding *out, int n_out)
{
    clv_error err = {0};
    clv_program *program;
    clv_session *session = NULL;
    clv_session_options options = {.check = 1, .threads_per_rank = threads};
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK ||
        clv_session_new(&session, clv_graph_mesh(graph), &options, &err) != CLV_OK ||
        clv_session_run(session, program, in, n_in, out, n_out, &err) != CLV_OK)
        fail_msg("%s", err.message);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* A product: its subscripts as three lists, and the sizes of its letters from a on. */
typedef struct product {
    const char *list[3];
    int64_t size[26];
} product;

static int64_t offset_of(const product *p, int l, const int64_t *at)
{
    int64_t offset = 0;
    for (const char *c = p->list[l]; *c; c++)
        offset = offset * p->size[*c - 'a'] + at[*c - 'a'];
    return offset;
}

/* Sums over all letters: whole numbers, so exact in any order. */
static void multiply(const product *p, double *const data[3])
{
    int64_t at[26] = {0};
    for (int last = 25; last >= 0;) {
        data[2][offset_of(p, 2, at)] += data[0][offset_of(p, 0, at)] * data[1][offset_of(p, 1, at)];
        for (last = 25; last >= 0 && (p->size[last] == 0 || ++at[last] == p->size[last]); last--)
            at[last] = 0;
    }
}

static int64_t shape_of(int64_t shape[CLV_MAX_RANK], const product *p, int l)
{
    int64_t elems = 1;
    for (int d = 0; p->list[l][d]; d++)
        elems *= shape[d] = p->size[p->list[l][d] - 'a'];
    return elems;
}

static void check_product(const product *p, const char *mesh_text, random_source *r)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    double *data[3], *want;
    clv_value operand[2];
    char subscripts[64];
    int64_t shape[CLV_MAX_RANK], n = shape_of(shape, p, 2);
    assert_int_equal(clv_mesh_parse(&mesh, mesh_text, &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    for (int l = 0; l < 3; l++) {
        int64_t elems = shape_of(shape, p, l);
        data[l] = calloc((size_t)elems + 1, sizeof **data);
        clv_layout layout = random_layout(r, &mesh, (int)strlen(p->list[l]));
        for (int64_t i = 0; l < 2 && i < elems; i++)
            data[l][i] = (double)((i * (7 + l) + l) % 7 - 3);
        if (l < 2)
            operand[l] = clv_input(graph, l ? "b" : "a", CLV_F64, (int)strlen(p->list[l]), shape, &layout);
        snprintf(subscripts, sizeof subscripts, "%s,%s->%s", p->list[0], p->list[1], p->list[2]);
        if (l == 2)
            clv_output(graph, "c", clv_einsum(graph, subscripts, operand[0], operand[1]), &layout);
    }
    want = calloc((size_t)n + 1, sizeof *want);
    multiply(p, (double *[]){data[0], data[1], want});
    run_checked(graph, 1, (clv_input_binding[]){{"a", data[0]}, {"b", data[1]}}, 2, &(clv_output_binding){"c", data[2]},
                1);
    for (int64_t i = 0; i < n; i++)
        if (data[2][i] != want[i])
            fail_msg("%s on %s: element %lld is %g, expected %g", subscripts, mesh_text, (long long)i, data[2][i],
                     want[i]);
    for (int l = 0; l < 3; l++)
        free(data[l]);
    free(want);
}

/* Products that once overran: which operand the smallest shards packed was not that of the largest. */
static void test_products_on_uneven_meshes(void **state)
{
    static const product products[] = {
        {{"abcd", "pcqba", "pqd"}, {[0] = 3, 3, 4, 5, ['p' - 'a'] = 4, 9}},
        {{"bqkgd", "bkgqt", "btkd"},
         {['b' - 'a'] = 4, ['d' - 'a'] = 6, ['g' - 'a'] = 5, ['k' - 'a'] = 1, ['q' - 'a'] = 6, ['t' - 'a'] = 3}}};
    static const char *const meshes[] = {"x=1", "x=2", "x=3", "x=5", "x=7", "y=5,z=3", "x=2,y=2,z=2", "x=4,y=3"};
    enum { LAYOUTS = 6 };
    random_source r = {20240607};
    for (int p = 0; p < 2; p++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            for (int i = 0; i < LAYOUTS; i++)
                check_product(&products[p], meshes[m], &r);
}

/* Attention's workspace is for as many threads as a rank may have, whose number is known late. */
static void test_attention_of_many_threads(void **state)
{
    enum { B = 2, S = 5, H = 6, D = 8 };
    static const char *const layouts[] = {"_,_,_,_", "_,x,_,_", "_,_,x,_", "x,_,_,_"};
    random_source r = {20240607};
    for (int threads = 1; threads <= 6; threads++)
        for (int t = 0; t < DTYPES; t++) {
            clv_mesh mesh;
            clv_graph *graph;
            double q[B * S * H * D] = {0}, kv[B * S * 2 * 2 * D] = {0};
            assert_int_equal(clv_mesh_parse(&mesh, "x=4", NULL), CLV_OK);
            assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
            clv_layout layout = clv_graph_layout(graph, 4, layouts[pick(&r, 4)]);
            clv_value in[] = {clv_input(graph, "q", dtypes[t], DIMS(B, S, H, D), &layout),
                              input(graph, "kv", dtypes[t], DIMS(B, S, 2, 2, D))},
                      d[2];
            clv_value out = clv_attention(graph, in[0], in[1], NULL);
            clv_gradients(graph, out, out, in, 2, d);
            clv_output(graph, "dq", d[0], NULL);
            clv_output(graph, "dkv", d[1], NULL);
            run_checked(graph, threads, (clv_input_binding[]){{"q", q}, {"kv", kv}}, 2, NULL, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_asked_for_grows_with_every_extent),
                                       cmocka_unit_test(test_products_on_uneven_meshes),
                                       cmocka_unit_test(test_attention_of_many_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
