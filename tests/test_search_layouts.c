/* test_search_layouts.c - layouts by search over a whole graph (clv_compile_options.search_layouts): equal to brute
 * force on random graphs of up to eight ops and two axes, never costlier than greedy strategies, and what it changes of
 * chains that a greedy choice gets wrong. CLV_SEED runs one case, CLV_CASES that many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"
#include "partition/passes/passes.h"
#include "partition/search/layout_search.h"
#include "partition/sharding/sharding_projection.h"

enum { CASES = 48, MOST_OPS = 8, MOST_VALUES = 24, MOST_HELD = 40 };

static clv_error err;

/* ---- random graphs ---- */

typedef struct maker {
    uint64_t state;
    clv_graph *graph;
    int n;
    clv_value value[MOST_VALUES]; /* of two dimensions */
} maker;

static int pick(maker *m, int n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((m->state >> 33) % (uint64_t)n);
}

static clv_layout random_layout(maker *m, int rank)
{
    clv_layout layout = clv_layout_replicated(rank);
    for (int a = 0; a < m->graph->mesh.n_axes; a++) {
        int d = pick(m, rank + 1);
        if (d < rank)
            clv_layout_shard_dim(&layout, &m->graph->mesh, d, clv_mesh_whole_axis(&m->graph->mesh, a), NULL);
    }
    return layout;
}

static int64_t size(maker *m)
{
    static const int64_t sizes[] = {64, 256, 1024, 48, 6};
    return sizes[pick(m, 5)];
}

static clv_value leaf(maker *m, int64_t rows, int64_t columns)
{
    char name[16];
    const int64_t shape[] = {rows, columns};
    clv_layout layout = random_layout(m, 2);
    snprintf(name, sizeof name, "x%d", m->n);
    if (pick(m, 3) == 0)
        return clv_state(m->graph, name, CLV_F32, 2, shape, &layout, (clv_init){CLV_INIT_NORMAL, 1});
    return clv_input(m->graph, name, CLV_F32, 2, shape, pick(m, 2) ? &layout : NULL);
}

/* A value that there is, or a new leaf of its shape. */
static clv_value same_shape(maker *m, clv_value x)
{
    const clv_type type = clv_graph_type(m->graph, x);
    for (int i = 0; i < m->n; i++) {
        const clv_type other = clv_graph_type(m->graph, m->value[i]);
        if (m->value[i].id != x.id && memcmp(other.shape, type.shape, 2 * sizeof *type.shape) == 0 && pick(m, 2))
            return m->value[i];
    }
    clv_value made = leaf(m, type.shape[0], type.shape[1]);
    m->value[m->n++] = made;
    return made;
}

static clv_value random_op(maker *m)
{
    clv_graph *g = m->graph;
    clv_value x = m->value[m->n - 1 - pick(m, m->n > 2 ? 2 : m->n)];
    const clv_type type = clv_graph_type(g, x);
    switch (pick(m, 6)) {
    case 0:
    case 1: {
        clv_value w = leaf(m, type.shape[1], size(m));
        m->value[m->n++] = w;
        return clv_einsum(g, "ab,bc->ac", x, w);
    }
    case 2:
        return clv_add(g, x, same_shape(m, x));
    case 3:
        return clv_unary(g, CLV_TANH, x);
    case 4:
        return clv_softmax(g, x);
    default:
        return clv_transpose(g, x, (int[]){1, 0});
    }
}

static clv_graph *random_graph(maker *m, int n_ops)
{
    static const char *const meshes[] = {"x=2", "x=4", "x=2,y=2", "x=2,y=3", "x=4,y=2"};
    m->graph = must_graph(meshes[pick(m, 5)]);
    m->n = 0; /* names of leaves count values */
    int64_t rows = size(m), columns = size(m);
    m->value[0] = leaf(m, rows, columns);
    m->n = 1;
    for (int i = 0; i < n_ops; i++) {
        clv_value made = random_op(m);
        m->value[m->n++] = made;
    }
    clv_layout layout = random_layout(m, 2);
    clv_output(m->graph, "y", m->value[m->n - 1], pick(m, 2) ? &layout : NULL);
    if (!clv_graph_ok(m->graph))
        fail_msg("%s", m->graph->error.message);
    return m->graph;
}

/* ---- brute force ---- */

/* Layouts of values as the search has them: those that a value was brought to stay at hand; of one that was partial
 * only what it was reduced to. */
typedef struct at_hand {
    int n;
    clv_layout layout[MOST_HELD];
} at_hand;

typedef struct brute {
    const clv_graph *graph;
    clv_arena *arena;
    const clv_cost_model *cost;
    clv_reshard_cache *reshards;
    const bool *live;
    at_hand *values; /* [n_values] */
    double least;    /* only less is looked for */
    bool cheaper;
} brute;

static double reshard(brute *b, int value, const clv_layout *to)
{
    at_hand *at = &b->values[value];
    const clv_layout *from[MOST_HELD];
    const clv_type *type = &b->graph->values[value].type;
    const clv_reshard_plan *plan;
    int n = 0, first = 0, source;
    while (first < at->n && clv_layout_is_partial(&at->layout[first]))
        first++;
    for (int k = first < at->n ? first : 0; k < at->n; k++)
        from[n++] = &at->layout[k];
    must(clv_reshard_cache_cheapest(&plan, &source, b->reshards, from, n, to, type->shape, type->dtype, &err), &err);
    bool there = plan->n_steps == 0 && clv_layout_equal(from[source], to);
    for (int i = 0; i < plan->n_steps && at->n < MOST_HELD; i++)
        at->layout[at->n++] = plan->steps[i].to;
    if (!there && at->n < MOST_HELD && !clv_layout_equal(&at->layout[at->n - 1], to))
        at->layout[at->n++] = *to;
    return plan->seconds;
}

static void try_op(brute *b, int o, double seconds);

static void try_end(brute *b, double seconds)
{
    at_hand kept = b->values[b->graph->outputs[0].value];
    const clv_graph_output *output = &b->graph->outputs[0];
    clv_layout to = clv_layout_without_partial(&kept.layout[0]);
    seconds += reshard(b, output->value, output->stated ? &output->layout : &to);
    b->values[output->value] = kept;
    b->cheaper = b->cheaper || seconds < b->least;
}

static void try_strategy(brute *b, const clv_op *op, const clv_strategy *s, double seconds)
{
    at_hand kept[CLV_MAX_IN];
    for (int i = 0; i < op->n_in; i++)
        kept[i] = b->values[op->in[i]];
    seconds += s->work_seconds;
    for (int i = 0; i < op->n_in && seconds < b->least; i++)
        seconds += reshard(b, op->in[i], &s->in[i]);
    b->values[op->out[0]] = (at_hand){.n = 1, .layout = {s->out[0]}};
    if (seconds < b->least)
        try_op(b, op->id + 1, seconds);
    for (int i = op->n_in - 1; i >= 0; i--)
        b->values[op->in[i]] = kept[i];
}

static void try_choices(brute *b, const clv_strategy_problem *p, const clv_projection_context *context,
                        clv_strategy *trial, int subaxis, double seconds)
{
    int8_t choices[CLV_MAX_FACTORS + 2];
    int n = clv_strategy_list_choices(choices, p);
    if (subaxis == trial->n_subaxes) {
        clv_strategy made = *trial;
        if (clv_strategy_fill_layouts(&made, p, context, false))
            try_strategy(b, p->op, &made, seconds);
        return;
    }
    for (int c = 0; c < n && !b->cheaper; c++) {
        trial->choice[subaxis] = choices[c];
        try_choices(b, p, context, trial, subaxis + 1, seconds);
    }
}

/* Every assignment of every op from o on. */
static void try_op(brute *b, int o, double seconds)
{
    while (o < b->graph->n_ops && !b->live[o])
        o++;
    if (o == b->graph->n_ops) {
        try_end(b, seconds);
        return;
    }
    const clv_op *op = &b->graph->ops[o];
    clv_strategy_problem p;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_projection_context context;
    clv_strategy trial = {0};
    const clv_layout *at[CLV_MAX_IN][MOST_HELD];
    clv_strategy_problem_init(&p, types, b->graph, op);
    p.cost = b->cost;
    p.reshards = b->reshards;
    p.idle_axes = true;
    clv_cost_work_rates(&p.rates, b->cost, op->def, types[0].dtype);
    for (int i = 0; i < op->n_in; i++) {
        const at_hand *held = &b->values[op->in[i]];
        int first = 0;
        while (first < held->n && clv_layout_is_partial(&held->layout[first]))
            first++;
        for (int k = first < held->n ? first : 0; k < held->n; k++)
            at[i][p.n_available[i]++] = &held->layout[k];
        p.available[i] = at[i];
    }
    for (int d = 0; (trial.n_subaxes = clv_strategy_list_subaxes(trial.subaxis, &p, d)) >= 0 && !b->cheaper; d++) {
        clv_projection_context_make(&context, &p, trial.subaxis, trial.n_subaxes);
        try_choices(b, &p, &context, &trial, 0, seconds);
    }
}

/* Every layout of the unstated inputs from value v on, then every strategy. */
static void try_inputs(brute *b, int v)
{
    while (v < b->graph->n_values && b->graph->values[v].source == CLV_FROM_OP)
        v++;
    if (v == b->graph->n_values) {
        try_op(b, 0, 0);
        return;
    }
    const clv_value_info *info = &b->graph->values[v];
    const int axes = b->graph->mesh.n_axes;
    for (int k = 0; k < (axes == 1 ? 3 : 9) && !b->cheaper; k++) {
        clv_layout layout = clv_layout_replicated(2);
        for (int a = 0, left = k; a < axes; a++, left /= 3)
            if (left % 3 > 0)
                clv_layout_shard_dim(&layout, &b->graph->mesh, left % 3 - 1, clv_mesh_whole_axis(&b->graph->mesh, a),
                                     NULL);
        b->values[v] = (at_hand){.n = 1, .layout = {info->stated ? info->layout : layout}};
        try_inputs(b, v + 1);
        if (info->stated)
            return;
    }
}

/* ---- cases ---- */

static void partition(clv_partitioner *p, const clv_compile_options *options, const clv_graph *graph,
                      clv_cost_model *cost, clv_arena *arena, const clv_machine *machine)
{
    clv_cost_model_make(cost, &graph->mesh, machine);
    *p = (clv_partitioner){.graph = graph, .scratch = arena, .options = options, .cost = cost};
    must(clv_partitioner_init(p, &err), &err);
    must(clv_partition_propagate_layouts(p, &err), &err);
}

static double seconds_of(const clv_graph *graph, const clv_machine *machine, bool search)
{
    const clv_compile_options options = {.size = sizeof options, .machine = machine, .search_layouts = search};
    clv_prediction predicted = {.size = sizeof predicted};
    clv_program *program;
    must(clv_compile(&program, graph, &options, &err), &err);
    must(clv_program_predict(program, machine, &predicted, &err), &err);
    clv_program_free(program);
    return predicted.seconds;
}

/* Of the rows of the table that the layouts give. */
static double seconds_of_table(const clv_graph *graph, const clv_found_layouts *found, clv_cost_model *cost,
                               clv_arena *arena, const clv_machine *machine)
{
    const clv_compile_options options = {.size = sizeof options, .machine = machine};
    clv_partitioner p;
    double seconds = 0;
    partition(&p, &options, graph, cost, arena, machine);
    p.searched = found->strategy;
    for (int v = 1; v < graph->n_values; v++)
        if (found->input[v]) {
            p.available[v].has_target = true;
            p.available[v].target = *found->input[v];
        }
    must(clv_partition_choose_strategies(&p, &err), &err);
    must(clv_sharding_table_verify(&p.table, &err), &err);
    for (int i = 0; i < p.table.n_rows; i++) {
        const clv_sharding_row *row = &p.table.rows[i];
        const clv_type *type = row->op ? NULL : &graph->values[row->value].type;
        seconds += row->op ? row->strategy->work_seconds
                           : clv_reshard_step_cost(cost, row->step, type->shape, type->dtype).seconds;
    }
    return seconds;
}

static int n_better; /* cases in which the search beats greedy strategies */

static void check_case(uint64_t seed, const clv_machine *machine)
{
    maker m = {.state = seed};
    clv_graph *graph = random_graph(&m, 2 + pick(&m, MOST_OPS - 1));
    clv_arena *arena = clv_arena_new();
    const clv_compile_options options = {.size = sizeof options, .machine = machine};
    clv_cost_model cost;
    clv_partitioner p;
    clv_found_layouts found;
    partition(&p, &options, graph, &cost, arena, machine);
    must(clv_layout_search_run(&found, &p, (double)INFINITY, (double)INFINITY, 0, &err), &err);
    assert_true(found.found && found.exact);

    /* nothing is cheaper */
    brute b = {.graph = graph,
               .arena = arena,
               .cost = &cost,
               .reshards = clv_reshard_cache_new(arena, &graph->mesh, &cost, false),
               .live = p.live_op,
               .values = calloc((size_t)graph->n_values, sizeof(at_hand)),
               .least = found.seconds * (1 - 1e-9)};
    assert_non_null(b.values);
    try_inputs(&b, 1);
    if (b.cheaper)
        fail_msg("seed %llu: brute force finds less than %g s", (unsigned long long)seed, found.seconds);
    free(b.values);

    /* and it is what is compiled */
    const double compiled = seconds_of_table(graph, &found, &cost, arena, machine);
    if (!(fabs(compiled - found.seconds) <= 1e-9 * compiled))
        fail_msg("seed %llu: found %g s, its table takes %g s", (unsigned long long)seed, found.seconds, compiled);
    const double greedy = seconds_of(graph, machine, false), searched = seconds_of(graph, machine, true);
    if (!(searched <= greedy * (1 + 1e-9)))
        fail_msg("seed %llu: searched %g s, greedy %g s", (unsigned long long)seed, searched, greedy);
    n_better += searched < greedy * (1 - 1e-6);
    clv_arena_free(arena);
    clv_graph_free(graph);
}

static void test_equal_to_brute_force(void **state)
{
    (void)state;
    /* on the default machine slices are free to the partitioner, and take time in a prediction */
    static const char *const profiles[] = {"tpu-v2-8", "h100-nvlink-ib", "cpu-10gbe"};
    const char *seed = getenv("CLV_SEED"), *cases = getenv("CLV_CASES");
    const int n = cases ? atoi(cases) : CASES;
    for (int p = 0; p < 3; p++) {
        clv_machine *machine = NULL;
        must(clv_machine_open(&machine, profiles[p], NULL, &err), &err);
        for (int i = 0; i < (seed ? 1 : n / 3); i++)
            check_case(seed ? strtoull(seed, NULL, 10) : (uint64_t)(i * 3 + p + 1), machine);
        clv_machine_free(machine);
    }
    assert_true(seed || n < CASES || n_better > n / 10);
}

/* A partial sum less a target: a mask makes a partial sum of the target, which is an input and no sum. */
static void test_partial_operand(void **state)
{
    const clv_compile_options options = {.size = sizeof options, .search_layouts = true};
    clv_program *program;
    clv_graph *graph = must_graph("model=4");
    clv_layout columns, rows;
    must(clv_layout_parse(&columns, "_,model", &graph->mesh, 2, &err), &err);
    must(clv_layout_parse(&rows, "model,_", &graph->mesh, 2, &err), &err);
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){8, 64}, &columns);
    clv_value w = clv_input(graph, "w", CLV_F32, 2, (int64_t[]){64, 16}, &rows);
    clv_value y = clv_input(graph, "y", CLV_F32, 2, (int64_t[]){8, 16}, NULL);
    clv_value gap = clv_sub(graph, clv_einsum(graph, "ik,kj->ij", x, w), y);
    clv_output(graph, "loss", clv_reduce(graph, CLV_SUM, clv_mul(graph, gap, gap), (int[]){0, 1}, 2, false), NULL);
    must(clv_compile(&program, graph, &options, &err), &err);
    clv_program_free(program);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal_to_brute_force),
                                       cmocka_unit_test(test_partial_operand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
