/* keep_gradients_partial.c - decides where a gradient stays a partial sum instead of being reduced at once.
 *
 * In: an op, and the layouts made so far. Out: whether a result stays partial, and in which layout. A value that is
 * replicated over an axis over which a reader is sharded has a partial cotangent, one partial sum a rank: partial and
 * replicated are dual. It stays partial if all its uses are linear and end in gradients of parameters, or in sums that
 * are partial over that axis anyway; so the gradient of keys and values that ranks share reaches the weights of their
 * projection before it is reduced. An op alone would rather divide the rows of such a cotangent among the ranks, but
 * these rows would have to be gathered again to be added to the other partial sums.
 */
#include "partition/partitioner.h"

enum { MAX_AXES = 4 * CLV_MAX_SUBAXES };

typedef struct subaxis_set {
    int n;
    clv_subaxis axis[MAX_AXES];
} subaxis_set;

static bool inside(clv_subaxis a, clv_subaxis b)
{
    return a.axis == b.axis && a.pre >= b.pre && (int64_t)a.pre * a.size <= (int64_t)b.pre * b.size;
}

static bool holds(const subaxis_set *set, clv_subaxis axis)
{
    for (int i = 0; i < set->n; i++)
        if (inside(axis, set->axis[i]))
            return true;
    return false;
}

/* The sub-axes of dimensions [first, end) of a layout (its rank: the partial ones) that another does not use. */
static void add_axes(subaxis_set *set, const clv_layout *layout, int first, int end, const clv_layout *but)
{
    for (int i = layout->begin[first]; i < layout->begin[end]; i++)
        if (set->n < MAX_AXES && !clv_layout_uses_subaxis(but, layout->axes[i]) && !holds(set, layout->axes[i]))
            set->axis[set->n++] = layout->axes[i];
}

/* Adds the axes that split an op of the forward pass but not the operand as it reads it. */
static void add_split_by(subaxis_set *set, const clv_partitioner *p, const clv_op *op, int operand)
{
    int made = p->row_of[op->id];
    if (op->backward || made < 0)
        return;
    const clv_sharding_row *row = &p->table.rows[made];
    const clv_layout *mine = clv_partition_layout_of(p, row->in[operand]);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0) {
            const clv_layout *other = clv_partition_layout_of(p, row->in[i]);
            add_axes(set, other, 0, other->rank, mine);
        }
    for (int o = 0; o < op->n_out; o++) {
        const clv_layout *result = clv_partition_layout_of(p, row->out[o]);
        add_axes(set, result, 0, result->rank, mine);
    }
}

/* The axes over which the cotangent of a value is partial. */
static void add_replicated_axes(subaxis_set *set, const clv_partitioner *p, int primal)
{
    for (int r = p->first_reader[primal]; r < p->first_reader[primal + 1]; r++) {
        const clv_op *op = &p->graph->ops[p->readers[r]];
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] == primal)
                add_split_by(set, p, op, i);
    }
}

static bool uses_any(const clv_layout *layout, const subaxis_set *set)
{
    for (int i = 0; layout && i < set->n; i++)
        if (clv_layout_uses_subaxis(layout, set->axis[i]))
            return true;
    return false;
}

static int primal_of(const clv_partitioner *p, int value)
{
    return p->graph->values[p->available[value].outermost_sum].primal;
}

/* Whether `value`, partial over the axes, is part of the gradient of a parameter, or of a sum that is partial over
 * these axes anyway. */
static bool joins_partial_sum(const clv_partitioner *p, int value, const subaxis_set *axes)
{
    int primal = primal_of(p, value);
    if (primal <= 0 || uses_any(clv_partition_made_layout(p, primal), axes))
        return false;
    const clv_value_info *info = &p->graph->values[primal];
    if (info->source == CLV_FROM_STATE && info->role == CLV_ROLE_PARAMETER)
        return true;
    subaxis_set shared = {0};
    add_replicated_axes(&shared, p, primal);
    for (int i = 0; i < axes->n; i++)
        if (!holds(&shared, axes->axis[i]))
            return false;
    return true;
}

static bool is_reduced_downstream(const clv_partitioner *p, int value, const subaxis_set *axes);

/* Whether the op is linear in `value`, and its result may stay partial, too. */
static bool passes_on(const clv_partitioner *p, const clv_op *op, int value, const subaxis_set *axes)
{
    if (clv_op_traits_of(op)->follows_primal) {
        int primal = p->graph->values[op->out[0]].primal;
        return primal > 0 && !uses_any(clv_partition_made_layout(p, primal), axes) &&
               is_reduced_downstream(p, op->out[0], axes);
    }
    if (!op->def->rule || op->n_out != 1)
        return false;
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_partition_init_problem(&problem, types, p, op);
    for (int i = 0; i < op->n_in; i++) {
        bool linear = problem.rule.linearity == CLV_MULTILINEAR && (problem.rule.linear >> i & 1);
        if (op->in[i] == value ? !linear : op->in[i] > 0 && uses_any(clv_partition_made_layout(p, op->in[i]), axes))
            return false;
    }
    if (joins_partial_sum(p, op->out[0], axes))
        return true;
    return clv_type_elems(&problem.out[0]) == clv_type_elems(&p->graph->values[value].type) &&
           is_reduced_downstream(p, op->out[0], axes);
}

static bool is_reduced_downstream(const clv_partitioner *p, int value, const subaxis_set *axes)
{
    int first = p->first_reader[value], end = p->first_reader[value + 1];
    for (int r = first; r < end; r++)
        if (!passes_on(p, &p->graph->ops[p->readers[r]], value, axes))
            return false;
    return first < end && !p->available[value].is_output;
}

/* The dimensions of `like`, partial over those axes of the set that it does not use; the others leave the set. */
static clv_layout partial_over(subaxis_set *axes, const clv_partitioner *p, const clv_layout *like)
{
    clv_layout layout = clv_layout_without_partial(like);
    subaxis_set left = {0};
    for (int i = 0; i < axes->n; i++)
        if (!clv_layout_uses_subaxis(&layout, axes->axis[i]) &&
            clv_layout_add_partial(&layout, &p->graph->mesh, CLV_REDUCTION_SUM, axes->axis[i], NULL) == CLV_OK)
            left.axis[left.n++] = axes->axis[i];
    *axes = left;
    return layout;
}

bool clv_partition_keeps_gradient_partial(clv_layout *out, const clv_partitioner *p, const clv_op *op, int result)
{
    int value = op->out[result], primal = primal_of(p, value);
    const clv_layout *like = primal > 0 ? clv_partition_made_layout(p, primal) : NULL;
    if (!like)
        return false;
    subaxis_set axes = {0};
    add_replicated_axes(&axes, p, primal);
    for (int i = 0; i < op->n_in; i++) {
        const clv_layout *operand = op->in[i] > 0 ? clv_partition_made_layout(p, op->in[i]) : NULL;
        if (operand && operand->reduction == CLV_REDUCTION_SUM)
            add_axes(&axes, operand, operand->rank, operand->rank + 1, like);
    }
    *out = partial_over(&axes, p, like);
    return axes.n > 0 && is_reduced_downstream(p, value, &axes);
}
