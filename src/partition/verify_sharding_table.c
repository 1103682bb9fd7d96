/* verify_sharding_table.c - IR verifier: checks that a sharding table computes what its graph says. */
#include <string.h>

#include "base/error.h"
#include "partition/sharding/sharding_projection.h"
#include "partition/sharding_table.h"

typedef struct checker {
    const clv_sharding_table *table;
    bool *made; /* [n_places]; of those that see another one, whether that is */
    int row;
} checker;

/* ---- places ---- */

/* Constraints only say where a value is: under all of them it is the same. */
static int value_behind(const clv_graph *graph, int value)
{
    while (graph->values[value].source == CLV_FROM_OP) {
        const clv_op *op = &graph->ops[graph->values[value].op];
        if (!clv_op_constraint_of(op) && !clv_op_follows_primal(op))
            break;
        value = op->in[0];
    }
    return value;
}

static bool is_value(const clv_graph *graph, int value)
{
    return value > 0 && value < graph->n_values;
}

static bool is_place(const clv_sharding_table *table, int place)
{
    return place >= 0 && place < table->n_sharded;
}

static bool same_value(const clv_graph *graph, int a, int b)
{
    return a == b || (is_value(graph, a) && is_value(graph, b) && value_behind(graph, a) == value_behind(graph, b));
}

static bool same_shards(const clv_sharding_table *table, const clv_sharded_value *a, const clv_sharded_value *b)
{
    const int64_t *shape = table->graph->values[a->value].type.shape;
    return same_value(table->graph, a->value, b->value) &&
           clv_layout_max_elems(a->layout, shape) == clv_layout_max_elems(b->layout, shape);
}

static clv_status check_place(const clv_sharding_table *table, int p, clv_error *err)
{
    const clv_sharded_value *place = &table->sharded[p];
    const clv_graph *graph = table->graph;
    clv_error why = {0};
    if (!is_value(graph, place->value) || !place->layout)
        return clv_fail(err, CLV_EINVAL, "assignment: place %d is of no value, or has no layout", p);
    const clv_value_info *info = &graph->values[place->value];
    if (place->layout->rank != info->type.rank)
        return clv_fail(err, CLV_EINVAL, "assignment: place %d: a layout of %d dimensions for %s, which has %d", p,
                        place->layout->rank, clv_graph_name_of(graph, place->value), info->type.rank);
    if (clv_layout_check(place->layout, &graph->mesh, info->type.shape, &why) != CLV_OK)
        return clv_fail(err, CLV_EINVAL, "assignment: place %d: %s", p, why.message);
    if (place->is_graph_input &&
        (info->source == CLV_FROM_OP || place->alias_of >= 0 || clv_layout_is_partial(place->layout)))
        return clv_fail(err, CLV_EINVAL,
                        "assignment: place %d is said to be given; only inputs and states are, complete", p);
    if (place->alias_of >= 0 && (place->alias_of >= p || table->sharded[place->alias_of].alias_of >= 0 ||
                                 !same_shards(table, place, &table->sharded[place->alias_of])))
        return clv_fail(err, CLV_EINVAL, "assignment: places %d and %d do not hold the same", p, place->alias_of);
    return CLV_OK;
}

static bool is_made(const checker *c, int place)
{
    const clv_sharded_value *at = &c->table->sharded[place];
    return c->made[at->alias_of >= 0 ? at->alias_of : place];
}

static clv_status refuse(const checker *c, clv_error *err, const char *what)
{
    const clv_sharding_row *row = &c->table->rows[c->row];
    return clv_fail(err, CLV_EINVAL, "assignment: row %d (%s): %s", c->row,
                    row->op               ? row->op->name
                    : row->explanation.by ? row->explanation.by
                                          : "a step",
                    what);
}

static clv_status check_read(const checker *c, int place, int value, const clv_layout *layout, clv_error *err)
{
    if (!is_place(c->table, place))
        return refuse(c, err, "it reads a place that there is not");
    const clv_sharded_value *at = &c->table->sharded[place];
    if (!is_made(c, place))
        return refuse(c, err, "it reads a place before it is made");
    if (!same_value(c->table->graph, at->value, value))
        return refuse(c, err, "it reads the place of another value");
    if (!clv_layout_equal(at->layout, layout))
        return refuse(c, err, "it reads a place in another layout than it says");
    return CLV_OK;
}

static clv_status check_made(const checker *c, int place, int value, const clv_layout *layout, clv_error *err)
{
    if (!is_place(c->table, place))
        return refuse(c, err, "it makes a place that there is not");
    const clv_sharded_value *at = &c->table->sharded[place];
    if (at->alias_of >= 0 || c->made[place])
        return refuse(c, err, "it makes a place that is made otherwise");
    if (!same_value(c->table->graph, at->value, value))
        return refuse(c, err, "it makes the place of another value");
    if (!clv_layout_equal(at->layout, layout))
        return refuse(c, err, "it makes a place in another layout than it says");
    c->made[place] = true;
    return CLV_OK;
}

/* ---- ops ---- */

static bool is_atom(const clv_mesh *mesh, clv_subaxis subaxis)
{
    return subaxis.axis >= 0 && subaxis.axis < mesh->n_axes && subaxis.pre > 0 && subaxis.size > 0 &&
           mesh->axis[subaxis.axis].size % ((int64_t)subaxis.pre * subaxis.size) == 0;
}

static bool has_choices(const clv_strategy_problem *problem, const clv_strategy *s)
{
    bool good = s->n_subaxes >= 0 && s->n_subaxes <= CLV_MAX_ATOMS;
    for (int a = 0; good && a < s->n_subaxes; a++)
        good = is_atom(problem->mesh, s->subaxis[a]) && s->choice[a] >= CLV_CHOICE_PARTIAL &&
               s->choice[a] < problem->rule.n_factors;
    return good;
}

/* Whether the op's rule gives the strategy's layouts for its choices. */
static bool is_legal(clv_strategy_problem *problem, const clv_strategy *s)
{
    const clv_op *op = problem->op;
    const clv_layout *at_hand[CLV_MAX_IN];
    clv_projection_context context;
    clv_sharding_projection splits;
    clv_layout layout;
    for (int i = 0; i < op->n_in; i++) {
        at_hand[i] = &s->in[i];
        problem->available[i] = &at_hand[i];
        problem->n_available[i] = op->in[i] > 0;
    }
    for (int o = 0; o < op->n_out; o++) {
        problem->has_target[o] = true;
        problem->target[o] = s->out[o];
    }
    clv_projection_context_make(&context, problem, s->subaxis, s->n_subaxes);
    bool legal = clv_sharding_projection_make(&splits, problem, &context, s->subaxis, s->choice, s->n_subaxes);
    for (int i = 0; legal && i < op->n_in; i++)
        legal = op->in[i] <= 0 ||
                (clv_projection_operand_layout(&layout, problem, &splits, i) && clv_layout_equal(&layout, &s->in[i]));
    for (int o = 0; legal && o < op->n_out; o++)
        legal = clv_projection_result_layout(&layout, problem, &splits, o) && clv_layout_equal(&layout, &s->out[o]);
    return legal;
}

static clv_status check_op(const checker *c, const clv_sharding_row *row, clv_error *err)
{
    const clv_graph *graph = c->table->graph;
    const clv_op *op = row->op;
    if (op < graph->ops || op >= graph->ops + graph->n_ops || !op->def->rule || !row->strategy)
        return clv_fail(err, CLV_EINVAL,
                        "assignment: row %d: an op of the graph that has a rule, and a strategy, belong "
                        "to a row",
                        c->row);
    if (c->table->keeps_decisions && (!row->decision.purpose || !row->decision.split || !row->decision.why))
        return refuse(c, err, "the table tells of its ops, but not of this one");
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            CLV_TRY(check_read(c, row->in[i], op->in[i], &row->strategy->in[i], err));
        else if (row->in[i] != -1)
            return refuse(c, err, "it reads a place for an operand that is absent");
    for (int o = 0; o < op->n_out; o++)
        CLV_TRY(check_made(c, row->out[o], op->out[o], &row->strategy->out[o], err));
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_strategy_problem_init(&problem, types, graph, op);
    if (!has_choices(&problem, row->strategy))
        return refuse(c, err, "its strategy names a part of an axis, or a factor, that there is not");
    if (!is_legal(&problem, row->strategy))
        return refuse(c, err, "its rule does not give these layouts for what its axes split");
    return CLV_OK;
}

/* ---- steps ---- */

static int64_t addends(const clv_layout *layout)
{
    const clv_subaxis *axes;
    int64_t blocks = 1;
    for (int n = clv_layout_axes(&axes, layout, layout->rank), i = 0; i < n; i++)
        blocks *= axes[i].size;
    return blocks;
}

/* Whether the step is of the kind that its layouts ask for, over axes that there are. */
static bool is_step(const clv_mesh *mesh, const clv_reshard_step *step)
{
    if ((unsigned)step->kind >= CLV_STEP_COUNT || step->n_axes < 0 || step->n_axes > CLV_MAX_SUBAXES)
        return false;
    int64_t from = addends(&step->from), to = addends(&step->to);
    bool good = clv_step_reduces(step->kind) ? to < from : step->kind == CLV_STEP_MASK ? to > from : to == from;
    for (int a = 0; good && a < step->n_axes; a++)
        good = is_atom(mesh, step->axes[a]);
    return good && (step->n_axes > 0 || !clv_step_moves(step->kind));
}

static clv_status check_step(const checker *c, const clv_sharding_row *row, clv_error *err)
{
    const clv_reshard_step *step = row->step;
    if (!step || !is_value(c->table->graph, row->value))
        return refuse(c, err, "an op, or a step of a value, belongs to a row");
    if (!row->explanation.by || !row->explanation.text || (unsigned)row->explanation.need >= CLV_NEED_COUNT)
        return refuse(c, err, "a step has a cause");
    CLV_TRY(check_read(c, row->from, row->value, &step->from, err));
    CLV_TRY(check_made(c, row->to, row->value, &step->to, err));
    if (!is_step(&c->table->graph->mesh, step))
        return refuse(c, err, "its kind and axes do not fit the layouts from which and to which it leads");
    return CLV_OK;
}

/* ---- what becomes of it ---- */

/* A value as it leaves: complete, in the layout that is stated. */
static bool leaves(const checker *c, int place, int value, const clv_layout *stated)
{
    if (!is_place(c->table, place) || !is_made(c, place))
        return false;
    const clv_sharded_value *at = &c->table->sharded[place];
    return same_value(c->table->graph, at->value, value) && !clv_layout_is_partial(at->layout) &&
           (!stated || clv_layout_equal(at->layout, stated));
}

static bool is_given(const clv_sharding_table *table, int place, int value)
{
    return is_place(table, place) && table->sharded[place].is_graph_input && table->sharded[place].value == value;
}

static clv_status check_ends(const checker *c, clv_error *err)
{
    const clv_sharding_table *table = c->table;
    const clv_graph *graph = table->graph;
    for (int o = 0; o < graph->n_outputs; o++) {
        const clv_graph_output *output = &graph->outputs[o];
        if (!leaves(c, table->output[o], output->value, output->stated ? &output->layout : NULL))
            return clv_fail(err, CLV_EINVAL, "assignment: output %s has no place that holds it, complete and as stated",
                            output->name);
    }
    for (int v = 1; v < graph->n_values; v++) {
        const clv_state_update *update = &table->update[v];
        const clv_value_info *info = &graph->values[v];
        if (info->assigned <= 0
                ? update->state >= 0
                : !is_given(table, update->state, v) || !update->explanation.by || !update->explanation.text ||
                      !leaves(c, update->becomes, info->assigned, &info->layout))
            return clv_fail(err, CLV_EINVAL, "assignment: %s has no place of what it becomes, complete and as stated",
                            clv_graph_name_of(graph, v));
    }
    return CLV_OK;
}

clv_status clv_sharding_table_verify(const clv_sharding_table *table, clv_error *err)
{
    checker c = {.table = table, .made = clv_arena_alloc(table->arena, (size_t)table->n_sharded + 1, sizeof *c.made)};
    if (!c.made)
        return clv_fail_memory(err, "checking an assignment", (size_t)table->n_sharded);
    for (int p = 0; p < table->n_sharded; p++) {
        CLV_TRY(check_place(table, p, err));
        c.made[p] = table->sharded[p].is_graph_input;
    }
    for (; c.row < table->n_rows; c.row++) {
        const clv_sharding_row *row = &table->rows[c.row];
        CLV_TRY(row->op ? check_op(&c, row, err) : check_step(&c, row, err));
    }
    return check_ends(&c, err);
}
