/* compress_collectives.c - pass: marks collectives that send their tensor in a narrower wire dtype.
 *
 * In: the table. Out: wire_dtype of its steps. Collectives on f32 tensors of which a rank holds MIN_ELEMS elements or
 * more are compressed: activations, gradients, and weights that matmuls read. Exceptions:
 *
 *   statistics     results that their op declares as such (clv_op_def.statistics), results of statistics alone, and
 *                  gradients of these: few numbers to which all others are related
 *   maxima         partial maxima, and operands of a maximum: elements are compared with it later, and after rounding
 *                  none would be equal to it
 *   state of state state that is made of state element by element (a weight of its old value and moments): rounding
 *                  would accumulate from run to run
 *   outputs        that are only gathered for the caller
 *   sent state     what a pipeline stage sends to another one that updates the same state by it, as the gradient of
 *                  tied embeddings: the copies would differ
 *
 * A tensor is rounded on all ranks or on none: a rank's own part takes the same way, so all ranks hold the same bits of
 * an element; of a send, all that receive it.
 */
#include "base/error.h"
#include "partition/passes/passes.h"
#include "partition/sharding/sharding_projection.h"

enum { MIN_ELEMS = 64 }; /* of a rank: below it the time of a collective is its latency */

typedef struct compression_pass {
    clv_sharding_table *table;
    int *root;      /* [n_values] the value before constraints */
    bool *exact;    /* [n_values] of roots: statistics, and operands of maxima */
    bool *of_state; /* [n_sharded] made of state, element by element */
    bool *to_state; /* [n_sharded] state is made of it, element by element */
} compression_pass;

static clv_status begin(compression_pass *c, clv_sharding_table *table, clv_error *err)
{
    size_t values = (size_t)table->graph->n_values + 1, sharded = (size_t)table->n_sharded + 1;
    *c = (compression_pass){.table = table,
                            .root = clv_arena_alloc(table->arena, values, sizeof *c->root),
                            .exact = clv_arena_alloc(table->arena, values, sizeof *c->exact),
                            .of_state = clv_arena_alloc(table->arena, sharded, sizeof *c->of_state),
                            .to_state = clv_arena_alloc(table->arena, sharded, sizeof *c->to_state)};
    if (!c->root || !c->exact || !c->of_state || !c->to_state)
        return clv_fail_memory(err, "wire dtypes", values + sharded);
    for (int v = 0; v < table->graph->n_values; v++)
        c->root[v] = v;
    return CLV_OK;
}

/* ---- statistics and maxima ---- */

/* Whether all operands are statistics or scalars. */
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

static void mark_operands_of_maxima(compression_pass *c, const clv_op *op)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_strategy_problem_init(&problem, types, c->table->graph, op);
    for (int f = 0; f < problem.rule.n_factors; f++)
        for (int i = 0; i < op->n_in && problem.rule.factor[f].reduction == CLV_REDUCTION_MAX; i++)
            if (op->in[i] > 0 && clv_projection_dim_of_factor(problem.rule.in[i], CLV_MAX_RANK, f) >= 0)
                c->exact[c->root[op->in[i]]] = true;
}

static void mark_exact(compression_pass *c)
{
    const clv_graph *graph = c->table->graph;
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (clv_op_is_constraint(op))
            c->root[op->out[0]] = c->root[op->in[0]];
        else
            mark_operands_of_maxima(c, op);
    }
    for (int o = 0; o < graph->n_ops; o++)
        if (!clv_op_is_constraint(&graph->ops[o]))
            mark_results(c, &graph->ops[o]);
}

/* ---- state of state ---- */

static bool same_shape(const clv_sharding_table *table, int a, int b)
{
    const clv_type *x = &table->graph->values[table->sharded[a].value].type;
    const clv_type *y = &table->graph->values[table->sharded[b].value].type;
    bool same = x->rank == y->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = x->shape[d] == y->shape[d];
    return same;
}

/* Whether result o depends on operand i element by element: no matmul, and the same shape. */
static bool is_elementwise(const clv_sharding_table *table, const clv_sharding_row *row, int i, int o)
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
            c->of_state[row->to] = c->of_state[clv_sharding_table_root(table, row->from)];
        for (int i = 0; row->op && i < row->op->n_in; i++)
            for (int o = 0; o < row->op->n_out; o++)
                c->of_state[row->out[o]] |=
                    is_elementwise(table, row, i, o) && c->of_state[clv_sharding_table_root(table, row->in[i])];
    }
}

static void mark_becomes_state(compression_pass *c)
{
    const clv_sharding_table *table = c->table;
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            c->to_state[clv_sharding_table_root(table, table->update[v].becomes)] = true;
    for (int r = table->n_rows - 1; r >= 0; r--) {
        const clv_sharding_row *row = &table->rows[r];
        if (!row->op)
            c->to_state[clv_sharding_table_root(table, row->from)] |= c->to_state[row->to];
        for (int i = 0; row->op && i < row->op->n_in; i++)
            for (int o = 0; o < row->op->n_out; o++)
                if (is_elementwise(table, row, i, o) && c->to_state[row->out[o]])
                    c->to_state[clv_sharding_table_root(table, row->in[i])] = true;
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
    if (c->of_state[clv_sharding_table_root(c->table, row->from)] && c->to_state[row->to])
        return false;
    if (step->kind == CLV_STEP_SEND && c->to_state[row->to])
        return false;
    return clv_layout_max_elems(&step->from, type->shape) >= MIN_ELEMS;
}

/* Whether the step sums a gradient: a sum of which state is made, element by element. */
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
