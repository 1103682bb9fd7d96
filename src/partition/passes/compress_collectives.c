/* compress_collectives.c - pass: marks collectives that send their tensor in a narrower wire dtype.
 *
 * Steps in which ranks talk do, of tensors of f32 of which a rank holds CLV_COMPRESS_MIN_ELEMS elements or more:
 * activations, gradients, and weights on their way to products. These do not:
 *
 *   statistics     a result that its op says is one (clv_op_def.statistics), what is made of statistics alone, and
 *                  gradients of these: few numbers of which all others are measured
 *   maxima         partial maxima, and what a maximum is taken over: elements are compared with it later, and would
 *                  equal it no more had they been rounded on another way
 *   state of state what state becomes that is made of state, element by element (a weight and its moments): its
 *                  rounding would stay, and add up from run to run
 *   outputs        that are only gathered for the caller
 *
 * A tensor is rounded on all ranks or on none: the part that a rank has itself passes the same way, so that all who
 * hold an element of the result hold the same bits.
 */
#include "partition/passes/compress_collectives.h"

#include "base/error.h"

typedef struct compression_pass {
    clv_sharding_table *table;
    int *root;      /* [n_values] the value behind constraints */
    bool *exact;    /* [n_values] of roots: statistics, and what maxima are taken over */
    bool *of_state; /* [n_places]: made of state, element by element */
    bool *to_state; /* [n_places]: state is made of it so */
} compression_pass;

static clv_status begin(compression_pass *c, clv_sharding_table *table, clv_error *err)
{
    size_t values = (size_t)table->graph->n_values + 1, places = (size_t)table->n_sharded + 1;
    *c = (compression_pass){.table = table,
                            .root = clv_arena_alloc(table->arena, values, sizeof *c->root),
                            .exact = clv_arena_alloc(table->arena, values, sizeof *c->exact),
                            .of_state = clv_arena_alloc(table->arena, places, sizeof *c->of_state),
                            .to_state = clv_arena_alloc(table->arena, places, sizeof *c->to_state)};
    if (!c->root || !c->exact || !c->of_state || !c->to_state)
        return clv_fail_memory(err, "what steps carry", values + places);
    for (int v = 0; v < table->graph->n_values; v++)
        c->root[v] = v;
    return CLV_OK;
}

/* ---- statistics and maxima ---- */

static bool is_constraint(const clv_op *op)
{
    return clv_op_constraint_of(op) || clv_op_follows_primal(op);
}

/* Whether statistics alone go into the op, beside single numbers. */
static bool of_statistics(const compression_pass *c, const clv_op *op)
{
    const clv_graph *graph = c->table->graph;
    bool all = true, any = false;
    for (int i = 0; i < op->n_in; i++) {
        bool exact = op->in[i] > 0 && c->exact[c->root[op->in[i]]];
        any = any || exact;
        all = all && (exact || op->in[i] <= 0 || graph->values[op->in[i]].type.rank == 0);
    }
    return all && any;
}

static void mark_results(compression_pass *c, const clv_op *op)
{
    bool all = of_statistics(c, op);
    for (int o = 0; o < op->n_out; o++) {
        int primal = c->table->graph->values[op->out[o]].primal;
        bool exact = all || op->def->statistics >> o & 1 || (primal > 0 && c->exact[c->root[primal]]);
        c->exact[c->root[op->out[o]]] |= exact;
    }
}

static bool holds(const clv_rule *rule, int operand, int factor)
{
    for (int d = 0; d < CLV_MAX_RANK; d++)
        for (int k = 0; k < rule->in[operand][d].n; k++)
            if (rule->in[operand][d].factor[k] == factor)
                return true;
    return false;
}

static void mark_operands_of_maxima(compression_pass *c, const clv_op *op)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_strategy_problem_init(&problem, types, c->table->graph, op);
    for (int f = 0; f < problem.rule.n_factors; f++)
        for (int i = 0; i < op->n_in && problem.rule.factor[f].reduction == CLV_REDUCTION_MAX; i++)
            if (op->in[i] > 0 && holds(&problem.rule, i, f))
                c->exact[c->root[op->in[i]]] = true;
}

static void mark_exact(compression_pass *c)
{
    const clv_graph *graph = c->table->graph;
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (is_constraint(op))
            c->root[op->out[0]] = c->root[op->in[0]];
        else
            mark_operands_of_maxima(c, op);
    }
    for (int o = 0; o < graph->n_ops; o++)
        if (!is_constraint(&graph->ops[o]))
            mark_results(c, &graph->ops[o]);
}

/* ---- state of state ---- */

/* The place whose memory it is. */
static int place_behind(const clv_sharding_table *table, int place)
{
    int same = table->sharded[place].alias_of;
    return same >= 0 ? same : place;
}

static bool same_shape(const clv_sharding_table *table, int a, int b)
{
    const clv_type *x = &table->graph->values[table->sharded[a].value].type;
    const clv_type *y = &table->graph->values[table->sharded[b].value].type;
    bool same = x->rank == y->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = x->shape[d] == y->shape[d];
    return same;
}

/* Element by element: neither a product, nor of another shape. */
static bool passes(const clv_sharding_table *table, const clv_sharding_row *row, int i, int o)
{
    return row->in[i] >= 0 && !row->op->def->counts_flops && same_shape(table, row->in[i], row->out[o]);
}

static void mark_made_of_state(compression_pass *c)
{
    const clv_sharding_table *table = c->table;
    for (int p = 0; p < table->n_sharded; p++)
        c->of_state[p] =
            table->sharded[p].is_graph_input && table->graph->values[table->sharded[p].value].source == CLV_FROM_STATE;
    for (int r = 0; r < table->n_rows; r++) {
        const clv_sharding_row *row = &table->rows[r];
        if (!row->op)
            c->of_state[row->to] = c->of_state[place_behind(table, row->from)];
        for (int i = 0; row->op && i < row->op->n_in; i++)
            for (int o = 0; o < row->op->n_out; o++)
                c->of_state[row->out[o]] |= passes(table, row, i, o) && c->of_state[place_behind(table, row->in[i])];
    }
}

static void mark_becomes_state(compression_pass *c)
{
    const clv_sharding_table *table = c->table;
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            c->to_state[place_behind(table, table->update[v].becomes)] = true;
    for (int r = table->n_rows - 1; r >= 0; r--) {
        const clv_sharding_row *row = &table->rows[r];
        if (!row->op)
            c->to_state[place_behind(table, row->from)] |= c->to_state[row->to];
        for (int i = 0; row->op && i < row->op->n_in; i++)
            for (int o = 0; o < row->op->n_out; o++)
                if (passes(table, row, i, o) && c->to_state[row->out[o]])
                    c->to_state[place_behind(table, row->in[i])] = true;
    }
}

/* ---- steps ---- */

static bool may_round(const compression_pass *c, const clv_sharding_row *row)
{
    const clv_reshard_step *step = row->step;
    const clv_type *type = &c->table->graph->values[row->value].type;
    if (!clv_step_moves(step->kind) || type->dtype != CLV_F32 || c->exact[c->root[row->value]])
        return false;
    if (step->from.reduction == CLV_REDUCTION_MAX || step->to.reduction == CLV_REDUCTION_MAX)
        return false;
    if (row->explanation.need == CLV_NEEDED_BY_OUTPUT && !clv_step_reduces(step->kind))
        return false;
    if (c->of_state[place_behind(c->table, row->from)] && c->to_state[row->to])
        return false;
    return clv_layout_max_elems(&step->from, type->shape) >= CLV_COMPRESS_MIN_ELEMS;
}

/* A sum that state is made of, element by element: of a gradient. */
static bool sums_gradient(const compression_pass *c, const clv_sharding_row *row)
{
    return clv_step_reduces(row->step->kind) && c->to_state[row->to];
}

clv_status clv_compress_collectives(clv_sharding_table *table, clv_comm_dtype dtype, clv_comm_dtype gradients,
                                    clv_error *err)
{
    compression_pass c;
    if (dtype == CLV_COMM_F32 && gradients == CLV_COMM_F32)
        return CLV_OK;
    CLV_TRY(begin(&c, table, err));
    mark_exact(&c);
    mark_made_of_state(&c);
    mark_becomes_state(&c);
    for (int r = 0; r < table->n_rows; r++)
        if (!table->rows[r].op && may_round(&c, &table->rows[r]))
            table->rows[r].wire_dtype =
                gradients != CLV_COMM_F32 && sums_gradient(&c, &table->rows[r]) ? gradients : dtype;
    return CLV_OK;
}
