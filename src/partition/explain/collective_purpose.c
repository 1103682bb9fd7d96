/* collective_purpose.c - decides what a collective is for: weights, gradients, SP, CP, a split cache, TP, EP, the
 * vocabulary, resharding.
 *
 * In: a value, the step that it takes, and why. What counts, in this order, is whose value it is (a weight, its
 * gradient), whether it moves along axes that split experts, the dimension along which it is gathered or scattered, and
 * whether its op works on the vocabulary.
 */
#include <string.h>

#include "partition/explain/explain.h"

typedef struct reshard_context {
    const clv_partitioner *p;
    const clv_reshard_reason *why;
    const clv_reshard_step *step;
    int value;
} reshard_context;

/* How many ops may be between a weight and the slice, cast or sum of weights that a collective moves. */
enum { WEIGHT_OPS = 8 };

/* Whether a value is a weight, dense or quantised, or made of weights alone. */
static bool is_weight(const clv_graph *graph, int value, int ops)
{
    const clv_value_info *info = &graph->values[value];
    if (info->source == CLV_FROM_STATE)
        return info->role == CLV_ROLE_PARAMETER || info->role == CLV_ROLE_BUFFER;
    if (info->source != CLV_FROM_OP || ops == 0)
        return false;
    const clv_op *op = &graph->ops[info->op];
    bool any = false;
    for (int i = 0; i < op->n_in; i++) {
        int in = op->in[i];
        bool constant = in <= 0 || (graph->values[in].source == CLV_FROM_OP &&
                                    graph->ops[graph->values[in].op].n_in == 0); /* positions 0, 1, ... */
        if (!constant && !is_weight(graph, in, ops - 1))
            return false;
        any = any || !constant;
    }
    return any;
}

/* Whether a value is a weight's gradient, or a term of it. */
static bool is_gradient(const clv_partitioner *p, int value)
{
    int primal = p->graph->values[p->available[value].outermost_sum].primal;
    return primal > 0 && is_weight(p->graph, primal, WEIGHT_OPS);
}

/* Whether a value has a dimension of this name, or a gradient's primal has. */
static bool has_dim(const clv_partitioner *p, int value, const char *name)
{
    int primal = p->graph->values[value].primal;
    for (int d = 0; d < p->graph->values[value].type.rank; d++)
        if (p->available[value].dim_names[d] && strcmp(p->available[value].dim_names[d], name) == 0)
            return true;
    return primal > 0 && has_dim(p, primal, name);
}

/* Whether an op reads or makes a value with this dimension. */
static bool works_on(const clv_partitioner *p, const clv_op *op, const char *name)
{
    bool found = false;
    for (int i = 0; i < op->n_in; i++)
        found = found || (op->in[i] > 0 && has_dim(p, op->in[i], name));
    for (int o = 0; o < op->n_out; o++)
        found = found || has_dim(p, op->out[o], name);
    return found;
}

static const clv_op *maker_of(const clv_graph *graph, int value)
{
    const clv_value_info *info = &graph->values[value];
    return info->source == CLV_FROM_OP ? &graph->ops[info->op] : NULL;
}

static const char vocabulary[] = "vocabulary", experts[] = "experts", cached[] = "cached positions";

/* Whether the op that made the value, or, for its gradient, the primal, or the one that needs it works on the
 * vocabulary. */
static bool is_made_or_read_by_vocabulary(const reshard_context *it)
{
    const clv_graph *graph = it->p->graph;
    const clv_reshard_reason *why = it->why;
    int primal = why->need == CLV_NEEDED_BY_GRADIENT ? graph->values[why->reader->out[0]].primal : 0;
    const clv_op *ops[] = {maker_of(graph, it->value), primal > 0 ? maker_of(graph, primal) : NULL,
                           why->need == CLV_NEEDED_BY_OP ? why->reader : NULL};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i] && works_on(it->p, ops[i], vocabulary))
            return true;
    return false;
}

/* Whether a stated layout asks for the step, or asked for it in the forward pass. */
static bool is_stated(const reshard_context *it)
{
    const clv_op *maker = maker_of(it->p->graph, it->value);
    return it->why->need != CLV_NEEDED_BY_OP || (maker && clv_op_constraint_of(maker));
}

/* Whether the step gathers or scatters the value along this dimension. */
static bool is_along(const reshard_context *it, const char *name)
{
    const char *const *names = it->p->available[it->value].dim_names;
    for (int d = 0; d < it->step->from.rank; d++)
        if (names[d] && strcmp(names[d], name) == 0 &&
            clv_layout_block_count(&it->step->from, d) != clv_layout_block_count(&it->step->to, d))
            return true;
    return false;
}

static bool is_of_weights(const reshard_context *it)
{
    const clv_reshard_reason *why = it->why;
    return is_weight(it->p->graph, it->value, WEIGHT_OPS) ||
           (why->need == CLV_NEEDED_BY_STATE && is_weight(it->p->graph, why->state, 0));
}

uint32_t clv_explain_find_expert_axes(const clv_partitioner *p)
{
    uint32_t split = 0;
    for (int v = 1; v < p->graph->n_values; v++) {
        const clv_available_layouts *weight = &p->available[v];
        if (p->graph->values[v].source != CLV_FROM_STATE || weight->n == 0)
            continue;
        const clv_layout *layout = clv_partition_made_layout(p, v);
        for (int d = 0; d < layout->rank; d++)
            if (weight->dim_names[d] && strcmp(weight->dim_names[d], experts) == 0)
                for (int a = layout->begin[d]; a < layout->begin[d + 1]; a++)
                    split |= 1u << layout->axes[a].axis;
    }
    return split;
}

uint32_t clv_explain_find_stationary_axes(const clv_graph *graph)
{
    uint32_t kept = 0;
    for (int v = 1; v < graph->n_values; v++)
        kept |= graph->values[v].stationary_axes;
    return kept;
}

/* Whether the value is what experts have at their places, or the step moves along axes alone that split the experts of
 * a weight. */
static bool is_of_experts(const reshard_context *it)
{
    uint32_t moved = 0;
    for (int a = 0; a < it->step->n_axes; a++)
        moved |= 1u << it->step->axes[a].axis;
    return has_dim(it->p, it->value, experts) || (moved != 0 && (moved & ~it->p->expert_axes) == 0);
}

/* Whether it moves along axes alone over which no weight and no head is kept: they split positions for attention's
 * sake, not beside tensor parallelism. */
static bool is_of_context(const reshard_context *it)
{
    uint32_t moved = 0;
    for (int a = 0; a < it->step->n_axes; a++)
        moved |= 1u << it->step->axes[a].axis;
    return (moved & it->p->stationary_axes) == 0;
}

/* What attention to each part of a cache makes, or a sum of that. */
static bool is_of_split_cache(const reshard_context *it)
{
    const clv_op *maker = maker_of(it->p->graph, it->value);
    return has_dim(it->p, it->value, cached) ||
           (clv_step_reduces(it->step->kind) && maker && works_on(it->p, maker, cached));
}

/* A weight's gradient, or what becomes one by a constraint or an op of a single operand. */
static bool is_of_gradients(const reshard_context *it)
{
    const clv_reshard_reason *why = it->why;
    bool becomes = why->need == CLV_NEEDED_BY_CONSTRAINT || (why->need == CLV_NEEDED_BY_OP && why->reader->n_in == 1);
    return is_gradient(it->p, it->value) || (becomes && is_gradient(it->p, why->reader->out[0]));
}

clv_collective_purpose clv_explain_collective_purpose(const clv_partitioner *p, const clv_reshard_reason *why,
                                                      const clv_reshard_step *step, int value)
{
    const reshard_context it = {p, why, step, value};
    bool moves_sequence = is_along(&it, "sequence");
    if (p->graph->values[value].type.rank == 0)
        return CLV_PURPOSE_SCALAR;
    if (is_of_weights(&it))
        return CLV_PURPOSE_WEIGHT_GATHER;
    if (is_of_gradients(&it))
        return CLV_PURPOSE_GRADIENT_REDUCTION;
    if (has_dim(p, value, vocabulary))
        return CLV_PURPOSE_VOCABULARY;
    if (is_of_experts(&it))
        return CLV_PURPOSE_EXPERT_PARALLEL;
    if (moves_sequence && is_of_context(&it))
        return CLV_PURPOSE_CONTEXT_PARALLEL;
    if (moves_sequence && is_stated(&it))
        return CLV_PURPOSE_SEQUENCE_PARALLEL;
    if (is_made_or_read_by_vocabulary(&it))
        return CLV_PURPOSE_VOCABULARY;
    if (moves_sequence)
        return CLV_PURPOSE_SEQUENCE_PARALLEL;
    if (is_of_split_cache(&it))
        return CLV_PURPOSE_SPLIT_CACHE;
    if (clv_step_reduces(step->kind))
        return CLV_PURPOSE_TP_REDUCTION;
    return step->kind == CLV_STEP_ALL_GATHER && !is_along(&it, "batch") ? CLV_PURPOSE_TP_GATHER
                                                                        : CLV_PURPOSE_RESHARDING;
}
