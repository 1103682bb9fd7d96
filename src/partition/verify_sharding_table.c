/* verify_sharding_table.c - IR verifier: checks that a sharding table computes what its graph says. */
#include <string.h>

#include "base/error.h"
#include "partition/sharding/sharding_projection.h"
#include "partition/sharding_table.h"

typedef struct checker {
    const clv_sharding_table *table;
    bool *made; /* [n_sharded] roots that exist before the current row */
    int row;
} checker;

/* ---- sharded values ---- */

/* The value before constraints, which do not change it. */
static int unconstrained(const clv_graph *graph, int value)
{
    while (graph->values[value].source == CLV_FROM_OP) {
        const clv_op *op = &graph->ops[graph->values[value].op];
        if (!clv_op_is_constraint(op))
            break;
        value = op->in[0];
    }
    return value;
}

static bool is_value(const clv_graph *graph, int value)
{
    return value > 0 && value < graph->n_values;
}

static bool is_sharded_value(const clv_sharding_table *table, int sharded)
{
    return sharded >= 0 && sharded < table->n_sharded;
}

static bool same_value(const clv_graph *graph, int a, int b)
{
    return a == b || (is_value(graph, a) && is_value(graph, b) && unconstrained(graph, a) == unconstrained(graph, b));
}

static bool same_shards(const clv_sharding_table *table, const clv_sharded_value *a, const clv_sharded_value *b)
{
    const int64_t *shape = table->graph->values[a->value].type.shape;
    return same_value(table->graph, a->value, b->value) &&
           clv_layout_max_elems(a->layout, shape) == clv_layout_max_elems(b->layout, shape);
}

static clv_status check_sharded_value(const clv_sharding_table *table, int p, clv_error *err)
{
    const clv_sharded_value *sharded = &table->sharded[p];
    const clv_graph *graph = table->graph;
    clv_error why = {0};
    if (!is_value(graph, sharded->value) || !sharded->layout)
        return clv_fail(err, CLV_EINVAL, "sharding table: %%%d has no value or no layout", p);
    const clv_value_info *info = &graph->values[sharded->value];
    if (sharded->layout->rank != info->type.rank)
        return clv_fail(err, CLV_EINVAL, "sharding table: %%%d: a layout of %d dimensions for %s, which has %d", p,
                        sharded->layout->rank, clv_graph_name_of(graph, sharded->value), info->type.rank);
    if (clv_layout_check(sharded->layout, &graph->mesh, info->type.shape, &why) != CLV_OK)
        return clv_fail(err, CLV_EINVAL, "sharding table: %%%d: %s", p, why.message);
    if (sharded->is_graph_input &&
        (info->source == CLV_FROM_OP || sharded->alias_of >= 0 || clv_layout_is_partial(sharded->layout)))
        return clv_fail(err, CLV_EINVAL,
                        "sharding table: %%%d is no input or state, or partial, but marked as a graph input", p);
    if (sharded->alias_of >= 0 && (sharded->alias_of >= p || table->sharded[sharded->alias_of].alias_of >= 0 ||
                                   !same_shards(table, sharded, &table->sharded[sharded->alias_of])))
        return clv_fail(err, CLV_EINVAL, "sharding table: %%%d is no alias of %%%d", p, sharded->alias_of);
    return CLV_OK;
}

static bool is_made(const checker *c, int sharded)
{
    return c->made[clv_sharding_table_root(c->table, sharded)];
}

static clv_status refuse(const checker *c, clv_error *err, const char *verb, const char *what)
{
    const clv_sharding_row *row = &c->table->rows[c->row];
    return clv_fail(err, CLV_EINVAL, "sharding table: row %d (%s) %s%s", c->row,
                    row->op               ? row->op->name
                    : row->explanation.by ? row->explanation.by
                                          : "a step",
                    verb, what);
}

/* Whether the layouts are the same but for pipeline stages, which strategies do not know. */
static bool same_layout(const clv_layout *a, const clv_layout *b)
{
    clv_layout x = *a, y = *b;
    x.stage_axis = y.stage_axis = 0;
    x.stages = y.stages = 0;
    return clv_layout_equal(&x, &y);
}

/* Whether a sharded value holds this value in this layout; `verb`: what the row does with it. */
static clv_status check_use(const checker *c, const char *verb, int sharded, int value, const clv_layout *layout,
                            clv_error *err)
{
    const clv_sharded_value *at = &c->table->sharded[sharded];
    if (!same_value(c->table->graph, at->value, value))
        return refuse(c, err, verb, "another value of the graph");
    return same_layout(at->layout, layout) ? CLV_OK : refuse(c, err, verb, "it in another layout than stated");
}

static clv_status check_read(const checker *c, int sharded, int value, const clv_layout *layout, clv_error *err)
{
    if (!is_sharded_value(c->table, sharded))
        return refuse(c, err, "reads ", "a sharded value that does not exist");
    if (!is_made(c, sharded))
        return refuse(c, err, "reads ", "a sharded value before it is made");
    return check_use(c, "reads ", sharded, value, layout, err);
}

static clv_status check_made(const checker *c, int sharded, int value, const clv_layout *layout, clv_error *err)
{
    if (!is_sharded_value(c->table, sharded))
        return refuse(c, err, "makes ", "a sharded value that does not exist");
    if (c->table->sharded[sharded].alias_of >= 0 || c->made[sharded])
        return refuse(c, err, "makes ", "a sharded value that exists already");
    CLV_TRY(check_use(c, "makes ", sharded, value, layout, err));
    c->made[sharded] = true;
    return CLV_OK;
}

/* Whether the pipeline stages of a row hold what it reads, and alone what it makes. */
static clv_status check_stages(const checker *c, const clv_sharding_row *row, clv_error *err)
{
    const uint32_t runs = row->stages ? row->stages : UINT32_MAX;
    const bool sends = !row->op && row->step->kind == CLV_STEP_SEND;
    int n_in, n_out;
    const int *in = clv_sharding_row_reads(&n_in, row), *out = clv_sharding_row_makes(&n_out, row);
    uint32_t ends = 0;
    for (int i = 0; i < n_in; i++)
        if (in[i] >= 0) {
            const uint32_t held = clv_layout_stage_bits(c->table->sharded[in[i]].layout);
            ends |= held;
            if (!sends && (runs & ~held))
                return refuse(c, err, "reads ", "what another stage holds");
        }
    for (int o = 0; o < n_out; o++) {
        const uint32_t made = clv_layout_stage_bits(c->table->sharded[out[o]].layout);
        ends |= made;
        if (!sends && made != runs)
            return refuse(c, err, "makes ", "a value of other stages than its own");
    }
    const int axis = c->table->graph->stage_axis - 1;
    const int64_t stages = axis >= 0 ? c->table->graph->mesh.axis[axis].size : 1;
    const uint32_t all = stages == CLV_MAX_STAGES ? UINT32_MAX : (1u << stages) - 1;
    return sends && (ends & all) != (runs & all)
               ? refuse(c, err, "sends ", "between other stages than those that run it")
               : CLV_OK;
}

/* ---- ops ---- */

static bool is_subaxis(const clv_mesh *mesh, clv_subaxis subaxis)
{
    return subaxis.axis >= 0 && subaxis.axis < mesh->n_axes && subaxis.pre > 0 && subaxis.size > 0 &&
           mesh->axis[subaxis.axis].size % ((int64_t)subaxis.pre * subaxis.size) == 0;
}

static bool has_choices(const clv_strategy_problem *problem, const clv_strategy *s)
{
    bool good = s->n_subaxes >= 0 && s->n_subaxes <= CLV_MAX_SUBAXES;
    for (int a = 0; good && a < s->n_subaxes; a++)
        good = is_subaxis(problem->mesh, s->subaxis[a]) && s->choice[a] >= CLV_CHOICE_PARTIAL &&
               s->choice[a] < problem->rule.n_factors;
    return good;
}

/* Whether the op's rule gives the strategy's layouts for its choices. */
static bool is_legal(clv_strategy_problem *problem, const clv_strategy *s)
{
    const clv_op *op = problem->op;
    const clv_layout *available[CLV_MAX_IN];
    clv_projection_context context;
    clv_sharding_projection splits;
    clv_layout layout;
    for (int i = 0; i < op->n_in; i++) {
        available[i] = &s->in[i];
        problem->available[i] = &available[i];
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
                        "sharding table: row %d needs an op of the graph that has a rule, and a strategy", c->row);
    if (c->table->keeps_decisions && (!row->decision.purpose || !row->decision.split || !row->decision.why))
        return refuse(c, err, "has ", "no decision, which the table keeps");
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            CLV_TRY(check_read(c, row->in[i], op->in[i], &row->strategy->in[i], err));
        else if (row->in[i] != -1)
            return refuse(c, err, "reads ", "a sharded value for an absent operand");
    for (int o = 0; o < op->n_out; o++)
        CLV_TRY(check_made(c, row->out[o], op->out[o], &row->strategy->out[o], err));
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_strategy_problem_init(&problem, types, graph, op);
    if (!has_choices(&problem, row->strategy))
        return refuse(c, err, "has ", "a strategy with a sub-axis or factor that does not exist");
    if (!is_legal(&problem, row->strategy))
        return refuse(c, err, "has ", "layouts that do not follow from its rule and strategy");
    return CLV_OK;
}

/* ---- steps ---- */

static int64_t partial_ranks(const clv_layout *layout)
{
    const clv_subaxis *axes;
    int64_t blocks = 1;
    for (int n = clv_layout_axes(&axes, layout, layout->rank), i = 0; i < n; i++)
        blocks *= axes[i].size;
    return blocks;
}

/* Whether the step's kind and axes are possible for its layouts. */
static bool is_step(const clv_mesh *mesh, const clv_reshard_step *step)
{
    if ((unsigned)step->kind >= CLV_STEP_COUNT || step->n_axes < 0 || step->n_axes > CLV_MAX_SUBAXES)
        return false;
    int64_t from = partial_ranks(&step->from), to = partial_ranks(&step->to);
    bool good = clv_step_reduces(step->kind) ? to < from : step->kind == CLV_STEP_MASK ? to > from : to == from;
    for (int a = 0; good && a < step->n_axes; a++)
        good = is_subaxis(mesh, step->axes[a]);
    return good && (step->n_axes > 0 || !clv_step_moves(step->kind));
}

static clv_status check_step(const checker *c, const clv_sharding_row *row, clv_error *err)
{
    const clv_reshard_step *step = row->step;
    if (!step || !is_value(c->table->graph, row->value))
        return refuse(c, err, "needs ", "an op, or a step of a value");
    if (!row->explanation.by || !row->explanation.text || (unsigned)row->explanation.need >= CLV_NEED_COUNT)
        return refuse(c, err, "needs ", "an explanation of its step");
    CLV_TRY(check_read(c, row->from, row->value, &step->from, err));
    CLV_TRY(check_made(c, row->to, row->value, &step->to, err));
    if (!is_step(&c->table->graph->mesh, step))
        return refuse(c, err, "has ", "a step whose kind or axes do not fit its layouts");
    return CLV_OK;
}

/* ---- outputs and state ---- */

/* Whether it holds the value, not partial, in the stated layout. */
static bool is_final(const checker *c, int sharded, int value, const clv_layout *stated)
{
    if (!is_sharded_value(c->table, sharded) || !is_made(c, sharded))
        return false;
    const clv_sharded_value *at = &c->table->sharded[sharded];
    return same_value(c->table->graph, at->value, value) && !clv_layout_is_partial(at->layout) &&
           (!stated || same_layout(at->layout, stated));
}

static bool is_graph_input(const clv_sharding_table *table, int sharded, int value)
{
    return is_sharded_value(table, sharded) && table->sharded[sharded].is_graph_input &&
           table->sharded[sharded].value == value;
}

static clv_status check_outputs(const checker *c, clv_error *err)
{
    const clv_sharding_table *table = c->table;
    const clv_graph *graph = table->graph;
    for (int o = 0; o < graph->n_outputs; o++) {
        const clv_graph_output *output = &graph->outputs[o];
        if (!is_final(c, table->output[o], output->value, output->stated ? &output->layout : NULL))
            return clv_fail(err, CLV_EINVAL, "sharding table: output %s is partial, or not in its stated layout",
                            output->name);
    }
    for (int v = 1; v < graph->n_values; v++) {
        const clv_state_update *update = &table->update[v];
        const clv_value_info *info = &graph->values[v];
        if (info->assigned <= 0
                ? update->state >= 0
                : !is_graph_input(table, update->state, v) || !update->explanation.by || !update->explanation.text ||
                      !is_final(c, update->becomes, info->assigned, &info->layout))
            return clv_fail(err, CLV_EINVAL, "sharding table: the new value of %s is partial, or not in its layout",
                            clv_graph_name_of(graph, v));
    }
    return CLV_OK;
}

clv_status clv_sharding_table_verify(const clv_sharding_table *table, clv_error *err)
{
    checker c = {.table = table, .made = clv_arena_alloc(table->arena, (size_t)table->n_sharded + 1, sizeof *c.made)};
    if (!c.made)
        return clv_fail_memory(err, "a check of a sharding table", (size_t)table->n_sharded);
    for (int p = 0; p < table->n_sharded; p++) {
        CLV_TRY(check_sharded_value(table, p, err));
        c.made[p] = table->sharded[p].is_graph_input;
    }
    for (; c.row < table->n_rows; c.row++) {
        const clv_sharding_row *row = &table->rows[c.row];
        CLV_TRY(row->op ? check_op(&c, row, err) : check_step(&c, row, err));
        CLV_TRY(check_stages(&c, row, err));
    }
    return check_outputs(&c, err);
}
