/* test_partition_random.c - random graphs on random meshes with random layouts, forward and gradient, against the same
 * graph run op by op on whole tensors. CLV_SEED runs one case, CLV_CASES that many; CLV_PRINT shows the
 * programs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/session.h"
#include "graph_eval.h"
#include "program/program.h"

enum { CASES = 200, MAX_VALUES = 24, MAX_LEAVES = 16, MAX_ELEMS = 4000 };

typedef struct maker {
    uint64_t state;
    clv_graph *graph;
    int n_values, n_leaves;
    clv_value value[MAX_VALUES]; /* that ops may take */
    clv_value leaf[MAX_LEAVES];  /* inputs and state */
} maker;

static int pick(maker *m, int n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((m->state >> 33) % (uint64_t)n);
}

/* ---- meshes and layouts ---- */

static clv_mesh random_mesh(maker *m)
{
    clv_mesh mesh = {.n_axes = 1 + pick(m, 3)};
    int64_t ranks = 1;
    for (int a = 0; a < mesh.n_axes; a++) {
        mesh.axis[a].name[0] = (char)('x' + a);
        int64_t size = 1 + pick(m, 5);
        mesh.axis[a].size = ranks * size > 12 ? 1 : size;
        ranks *= mesh.axis[a].size;
    }
    return mesh;
}

/* Each axis cuts some dimension, or none; at times only a part of it does, or in granules. */
static clv_layout random_layout(maker *m, const clv_type *type)
{
    const clv_mesh *mesh = clv_graph_mesh(m->graph);
    clv_layout layout = clv_layout_replicated(type->rank);
    for (int a = 0; a < mesh->n_axes && type->rank > 0; a++) {
        int d = pick(m, type->rank + 1);
        clv_subaxis sub = clv_mesh_whole(mesh, a);
        if (sub.size % 2 == 0 && sub.size > 2 && pick(m, 2)) {
            sub.pre = pick(m, 2) ? 2 : 1;
            sub.size = sub.pre == 2 ? sub.size / 2 : 2;
        }
        if (d < type->rank && sub.size > 1)
            clv_layout_cut(&layout, mesh, d, sub, NULL);
    }
    for (int d = 0; d < type->rank; d++)
        if (clv_layout_blocks(&layout, d) > 1 && type->shape[d] % 2 == 0 && pick(m, 4) == 0)
            layout.granule[d] = 2;
    return layout;
}

/* ---- values ---- */

static clv_type type_of(const maker *m, clv_value value)
{
    return clv_graph_type(m->graph, value);
}

static void keep(maker *m, clv_value value)
{
    clv_type type = type_of(m, value);
    if (value.id > 0 && m->n_values < MAX_VALUES && clv_type_elems(&type) <= MAX_ELEMS)
        m->value[m->n_values++] = value;
}

static clv_value any(maker *m)
{
    return m->value[pick(m, m->n_values)];
}

static clv_value leaf(maker *m, int rank, const int64_t *shape)
{
    char name[16];
    clv_type type = {.dtype = CLV_F64, .rank = rank};
    memcpy(type.shape, shape, (size_t)rank * sizeof *shape);
    clv_layout layout = random_layout(m, &type);
    snprintf(name, sizeof name, "v%d", m->n_leaves);
    clv_value made = pick(m, 2)
                         ? clv_input(m->graph, name, CLV_F64, rank, shape, pick(m, 4) ? &layout : NULL)
                         : clv_state(m->graph, name, CLV_F64, rank, shape, &layout, (clv_init){CLV_INIT_NORMAL, 1});
    m->leaf[m->n_leaves++] = made;
    return made;
}

/* ---- ops: each makes one value of what is there ---- */

static clv_value op_product(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    if (type.rank == 0 || m->n_leaves == MAX_LEAVES)
        return a;
    int64_t shape[] = {type.shape[type.rank - 1], 1 + pick(m, 6)};
    static const char *const subscripts[] = {"", "m,mn->n", "am,mn->an", "abm,mn->abn", "abcm,mn->nabc"};
    return clv_scale(m->graph, clv_einsum(m->graph, subscripts[type.rank], a, leaf(m, 2, shape)), 0.4);
}

static clv_value op_outer(maker *m)
{
    clv_value a = any(m), b = any(m);
    if (type_of(m, a).rank == 2 && type_of(m, b).rank == 2 && type_of(m, a).shape[0] == type_of(m, b).shape[0])
        return clv_einsum(m->graph, "sm,sn->mn", a, b);
    return clv_map(m->graph, CLV_TANH, a);
}

static clv_value op_unary(maker *m)
{
    static const clv_unary kinds[] = {CLV_TANH, CLV_SIGMOID, CLV_GELU, CLV_SILU, CLV_NEG};
    return clv_map(m->graph, kinds[pick(m, 5)], any(m));
}

/* With itself, with another of the same shape, or with a vector along the last dimension. */
static clv_value op_binary(maker *m)
{
    static const clv_binary kinds[] = {CLV_ADD, CLV_SUB, CLV_MUL, CLV_MAX, CLV_ADD};
    clv_value a = any(m), b = any(m);
    clv_type ta = type_of(m, a), tb = type_of(m, b);
    if (!clv_type_equal(&ta, &tb)) {
        if (ta.rank == 0 || m->n_leaves == MAX_LEAVES)
            return clv_scale(m->graph, a, 0.5);
        b = leaf(m, 1, &ta.shape[ta.rank - 1]);
    }
    return clv_combine(m->graph, kinds[pick(m, 5)], a, b);
}

static clv_value op_reduce(maker *m)
{
    clv_value a = any(m);
    int rank = type_of(m, a).rank, dims[2] = {0, 0};
    if (rank == 0)
        return a;
    dims[0] = pick(m, rank);
    dims[1] = (dims[0] + 1) % rank;
    return clv_reduce(m->graph, (clv_reduce_kind)pick(m, 3), a, dims, rank > 2 && pick(m, 3) == 0 ? 2 : 1, pick(m, 2));
}

static clv_value op_reshape(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    int64_t shape[CLV_MAX_RANK];
    int at = type.rank > 1 ? pick(m, type.rank - 1) : 0, n = 0;
    if (type.rank == 1 && type.shape[0] % 2 == 0)
        return clv_reshape(m->graph, a, 2, (int64_t[]){2, type.shape[0] / 2});
    for (int d = 0; d < type.rank; d++) {
        shape[n] = type.shape[d];
        if (d == at && d + 1 < type.rank)
            shape[n] *= type.shape[++d];
        n++;
    }
    return clv_reshape(m->graph, a, n, shape);
}

static clv_value op_transpose(maker *m)
{
    clv_value a = any(m);
    int rank = type_of(m, a).rank, order[CLV_MAX_RANK], shift = rank ? pick(m, rank) : 0;
    for (int d = 0; d < rank; d++)
        order[d] = (d + shift) % rank;
    return clv_transpose(m->graph, a, order);
}

static clv_value op_slice(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    int64_t low[CLV_MAX_RANK] = {0}, high[CLV_MAX_RANK];
    memcpy(high, type.shape, sizeof high);
    if (type.rank == 0)
        return a;
    int d = pick(m, type.rank);
    if (pick(m, 2)) {
        int64_t after[CLV_MAX_RANK] = {0};
        low[d] = 1;
        after[d] = pick(m, 3);
        return clv_pad(m->graph, a, low, after);
    }
    low[d] = type.shape[d] > 1 ? 1 : 0;
    return clv_slice(m->graph, a, low, high);
}

static clv_value op_concat(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    if (type.rank == 0)
        return a;
    return clv_concat(m->graph, (clv_value[]){a, clv_scale(m->graph, a, 2)}, 2, pick(m, type.rank));
}

static clv_value op_row(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    if (type.rank == 0 || m->n_leaves == MAX_LEAVES)
        return a;
    if (pick(m, 2))
        return clv_softmax(m->graph, a);
    return clv_rms_norm(m->graph, a, leaf(m, 1, &type.shape[type.rank - 1]), 0.1);
}

static clv_value op_constrain(maker *m)
{
    clv_value a = any(m);
    clv_type type = type_of(m, a);
    clv_layout layout = random_layout(m, &type);
    return clv_constrain(m->graph, a, &layout);
}

static clv_value (*const ops[])(maker *) = {op_product, op_product, op_outer,     op_unary,     op_binary,
                                            op_binary,  op_reduce,  op_reshape,   op_transpose, op_slice,
                                            op_concat,  op_row,     op_constrain, op_constrain};
enum { N_OPS = sizeof ops / sizeof ops[0] };

/* ---- a case ---- */

/* sum over all values of sum(tanh(value)). */
static clv_value loss_of(maker *m)
{
    clv_value loss = CLV_NONE;
    for (int i = 0; i < m->n_values; i++) {
        int dims[CLV_MAX_RANK], rank = type_of(m, m->value[i]).rank;
        for (int d = 0; d < rank; d++)
            dims[d] = d;
        clv_value part = clv_map(m->graph, CLV_TANH, m->value[i]);
        part = rank ? clv_reduce(m->graph, CLV_SUM, part, dims, rank, false) : part;
        loss = loss.id == 0 ? part : clv_add(m->graph, loss, part);
    }
    return loss;
}

typedef struct outputs {
    int n;
    clv_value value[MAX_VALUES + MAX_LEAVES + 1];
    char name[MAX_VALUES + MAX_LEAVES + 1][16];
} outputs;

static void add_output(maker *m, outputs *o, clv_value value)
{
    clv_type type = type_of(m, value);
    clv_layout layout = random_layout(m, &type);
    snprintf(o->name[o->n], sizeof o->name[o->n], "o%d", o->n);
    clv_output(m->graph, o->name[o->n], value, pick(m, 3) ? NULL : &layout);
    o->value[o->n++] = value;
}

static void build(maker *m, outputs *o)
{
    int64_t shape[3] = {1 + pick(m, 7), 1 + pick(m, 7), 2 * (1 + pick(m, 4))};
    keep(m, leaf(m, 3, shape));
    keep(m, leaf(m, 2, shape + 1));
    for (int i = 4 + pick(m, 9); i > 0; i--)
        keep(m, ops[pick(m, N_OPS)](m));
    clv_value loss = loss_of(m), gradients[MAX_LEAVES];
    clv_gradients(m->graph, loss, CLV_NONE, m->leaf, m->n_leaves, gradients);
    for (int i = 2; i < m->n_values; i++) /* in the order of ops: the first that differs is nearest to a fault */
        add_output(m, o, m->value[i]);
    add_output(m, o, loss);
    for (int i = 0; i < m->n_leaves; i++)
        add_output(m, o, gradients[i]);
    for (int i = 0; i < m->n_leaves; i++) /* updates, in place where nobody reads the old value later */
        if (m->graph->values[m->leaf[i].id].source == CLV_FROM_STATE)
            clv_assign(m->graph, m->leaf[i], clv_add(m->graph, m->leaf[i], clv_scale(m->graph, gradients[i], 0.1)));
}

static void compare(uint64_t seed, const char *what, const double *got, graph_eval *eval, clv_value value, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double want = graph_eval_get(eval, value, i);
        if (!(fabs(got[i] - want) <= 1e-9 * fmax(1, fabs(want))))
            fail_msg("seed %llu: %s, element %lld: %.17g, expected %.17g", (unsigned long long)seed, what, (long long)i,
                     got[i], want);
    }
}

static void run_case(uint64_t seed)
{
    clv_error err = {0};
    maker m = {.state = seed * 7919 + 1};
    outputs o = {0};
    clv_program *program = NULL;
    clv_session *session = NULL;
    clv_mesh mesh = random_mesh(&m);
    pick(&m, 2);
    clv_compile_options options = {.by_bytes = pick(&m, 2), .use_idle_axes = pick(&m, 2)};
    assert_int_equal(clv_graph_new(&m.graph, &mesh, &err), CLV_OK);
    build(&m, &o);
    clv_status status = clv_compile(&program, m.graph, &options, &err);
    if (status == CLV_OK)
        status = clv_program_check(program, &err);
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, NULL, &err);
    if (status == CLV_OK)
        status = clv_session_load(session, program, &err);
    if (status != CLV_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    if (getenv("CLV_PRINT")) {
        static char text[1 << 20];
        clv_program_print(text, sizeof text, program);
        puts(text);
    }
    graph_eval *eval = graph_eval_new(m.graph, seed);
    graph_eval_must_run(eval, -1);
    clv_binding in[MAX_LEAVES], out[MAX_VALUES + MAX_LEAVES + 1];
    int n_in = 0;
    for (int i = 0; i < m.n_leaves; i++) {
        const char *name = clv_value_name(m.graph, m.leaf[i]);
        void *data = graph_eval_data(eval, m.leaf[i]);
        if (m.graph->values[m.leaf[i].id].source == CLV_FROM_INPUT)
            in[n_in++] = (clv_binding){name, data};
        else
            assert_int_equal(clv_session_write(session, name, NULL, data, &err), CLV_OK);
    }
    for (int i = 0; i < o.n; i++) {
        clv_type type = clv_graph_type(m.graph, o.value[i]);
        out[i] = (clv_binding){o.name[i], malloc((size_t)clv_type_elems(&type) * sizeof(double) + 1)};
    }
    if (clv_session_run(session, program, in, n_in, out, o.n, &err) != CLV_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    for (int i = 0; i < o.n; i++) {
        clv_type type = clv_graph_type(m.graph, o.value[i]);
        compare(seed, o.name[i], out[i].data, eval, o.value[i], clv_type_elems(&type));
        free(out[i].data);
    }
    for (int i = 0; i < m.n_leaves; i++) {
        const clv_value_info *info = &m.graph->values[m.leaf[i].id];
        double updated[MAX_ELEMS];
        if (info->source != CLV_FROM_STATE)
            continue;
        assert_int_equal(clv_session_read(session, info->name, NULL, updated, &err), CLV_OK);
        compare(seed, info->name, updated, eval, (clv_value){info->assigned}, clv_type_elems(&info->type));
    }
    graph_eval_free(eval);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(m.graph);
}

static void test_random_graphs(void **state)
{
    const char *seed = getenv("CLV_SEED"), *cases = getenv("CLV_CASES");
    (void)state;
    if (seed) {
        run_case(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < (cases ? strtoull(cases, NULL, 10) : CASES); i++)
        run_case(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
