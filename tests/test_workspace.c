/* test_workspace.c - a workspace is planned once, for the largest shards, and every rank uses it: what an op asks for must
 * not fall when one of its local extents grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "ops_check.h"

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
        for (int t = 0; clv_op_table[t]; t++)
            seen[t] = seen[t] || clv_op_table[t] == op->def;
    }
    clv_graph_free(graph);
}

static void test_what_is_asked_for_grows_with_every_extent(void **state)
{
    random_source r = {20240607};
    bool seen[256] = {false};
    (void)state;
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
        }
    for (int t = 0; clv_op_table[t]; t++)
        if (clv_op_table[t]->workspace && !seen[t])
            fail_msg("%s has a workspace that this test does not reach", clv_op_table[t]->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_asked_for_grows_with_every_extent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
