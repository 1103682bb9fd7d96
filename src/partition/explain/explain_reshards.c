/* explain_reshards.c - writes the sentence why a collective exists, and why an op has its strategy.
 *
 * In: a reshard reason, or a strategy problem and its chosen strategy. Out: a sentence that leads back to the stated
 * layouts of inputs, state and constraints.
 */
#include <string.h>

#include "base/error.h"
#include "cleave/text.h"
#include "partition/explain/explain.h"
#include "partition/sharding/sharding_projection.h"
#include "tensor/parse_print.h"

/* ---- parts of sentences ---- */

/* "data and pod:(2)2" */
static void put_axes(clv_text *t, const clv_subaxis *axes, int n, const clv_mesh *mesh)
{
    for (int i = 0; i < n; i++) {
        clv_text_add(t, "%s", i == 0 ? "" : i < n - 1 ? ", " : " and ");
        clv_text_add_subaxis(t, axes[i], mesh);
    }
}

static void put_partial(clv_text *t, const clv_partitioner *p, const clv_layout *layout)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, layout, layout->rank);
    clv_text_add(t, "a %s over ", layout->reduction == CLV_REDUCTION_MAX ? "maximum" : "sum");
    put_axes(t, axes, n, &p->graph->mesh);
}

/* "split by batch over data, sequence over model"; "whole" */
static void put_layout(clv_text *t, const clv_partitioner *p, const clv_layout *layout, const char *const *names)
{
    const clv_subaxis *axes;
    bool split = false;
    for (int d = 0; d < layout->rank; d++) {
        int n = clv_layout_axes(&axes, layout, d);
        if (n == 0)
            continue;
        clv_text_add(t, "%s", split ? ", " : "split by ");
        if (names[d])
            clv_text_add(t, "%s over ", names[d]);
        else
            clv_text_add(t, "dimension %d over ", d);
        put_axes(t, axes, n, &p->graph->mesh);
        split = true;
    }
    if (!split)
        clv_text_add(t, "whole on every rank");
    if (clv_layout_is_partial(layout)) {
        clv_text_add(t, ", as ");
        put_partial(t, p, layout);
    }
}

static void put_layout_of(clv_text *t, const clv_partitioner *p, int value)
{
    put_layout(t, p, clv_partition_made_layout(p, value), p->available[value].dim_names);
}

/* The value of which it becomes the gradient by ops of one operand, such as a reshape; 0: none. */
static int primal_ahead(const clv_partitioner *p, int value)
{
    const clv_graph *graph = p->graph;
    for (int i = graph->values[value].op + 1; i < graph->n_ops; i++) {
        const clv_op *op = &graph->ops[i];
        if (op->n_in != 1 || op->in[0] != value)
            continue;
        value = op->out[0];
        if (graph->values[value].primal > 0)
            return graph->values[value].primal;
    }
    return 0;
}

/* "the gradient of mlp.up.bias"; false: it is no gradient. */
static bool put_gradient(clv_text *t, const clv_partitioner *p, int value)
{
    const clv_value_info *values = p->graph->values;
    int primal = values[value].primal, of_sum = values[p->available[value].outermost_sum].primal;
    if (primal <= 0 && of_sum <= 0)
        primal = primal_ahead(p, value);
    if (primal <= 0 && of_sum <= 0)
        return false;
    clv_text_add(t, "%s", primal > 0 ? "the gradient of " : "a partial sum of the gradient of ");
    clv_explain_value(t, p, primal > 0 ? primal : of_sum);
    return true;
}

void clv_explain_value(clv_text *t, const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (info->source == CLV_FROM_OP && p->graph->ops[info->op].backward && put_gradient(t, p, value))
        return;
    if (info->annotation && info->annotation->what)
        clv_text_add(t, "%s", info->annotation->what);
    else
        clv_text_add(t, "%s%s",
                     info->source == CLV_FROM_INPUT ? "input "
                     : info->source == CLV_FROM_OP  ? "the result of "
                                                    : "",
                     clv_graph_name_of(p->graph, value));
}

static void put_rules(clv_text *t, const clv_partitioner *p, int value)
{
    const clv_value_annotation *origin = p->graph->values[value].annotation;
    if (origin && origin->rules)
        clv_text_add(t, ", by the rules %s", origin->rules);
}

static bool is_stated(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    return info->stated || (info->source == CLV_FROM_OP && clv_op_constraint_of(&p->graph->ops[info->op]));
}

/* "the residual stream is stated as split by sequence over model, by the rules megatron-sp" */
static void put_statement(clv_text *t, const clv_partitioner *p, int value)
{
    clv_explain_value(t, p, value);
    clv_text_add(t, " is %s", is_stated(p, value) ? "stated as " : "");
    put_layout_of(t, p, value);
    put_rules(t, p, value);
}

/* ---- factors and splits ---- */

/* Whether another factor of the op has the same name. */
static bool is_ambiguous(const clv_partitioner *p, const clv_rule *rule, int f)
{
    for (int g = 0; g < rule->n_factors; g++)
        if (g != f && p->factor_names[g] && strcmp(p->factor_names[g], p->factor_names[f]) == 0)
            return true;
    return false;
}

/* The dimension of the first result that contains the factor; -1: none does. */
static int result_dim(const clv_op *op, const clv_rule *rule, int f)
{
    int d = -1;
    for (int o = 0; d < 0 && o < op->n_out; o++)
        d = clv_projection_dim_of_factor(rule->out[o], CLV_MAX_RANK, f);
    return d;
}

void clv_explain_factor(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule, int f)
{
    int d = result_dim(op, rule, f);
    if (p->factor_names[f])
        clv_text_add(t, "%s%s%s%s", rule->factor[f].order ? rule->factor[f].order : "",
                     rule->factor[f].order ? " " : "", p->factor_names[f],
                     !is_ambiguous(p, rule, f) ? ""
                     : d < 0                   ? " (summed)"
                                               : " (of the result)");
    else if (d >= 0)
        clv_text_add(t, "dimension %d of the result", d);
    else
        clv_text_add(t, "a dimension that is reduced");
}

/* The sub-axes with the same choice as sub-axis a. */
static void put_subaxes_alike(clv_text *t, const clv_partitioner *p, const clv_strategy *s, int a)
{
    clv_subaxis axes[CLV_MAX_SUBAXES];
    int n = 0;
    for (int b = a; b < s->n_subaxes; b++)
        if (s->choice[b] == s->choice[a])
            axes[n++] = s->subaxis[b];
    put_axes(t, axes, n, &p->graph->mesh);
}

static bool is_first_with_choice(const clv_strategy *s, int a)
{
    for (int b = 0; b < a; b++)
        if (s->choice[b] == s->choice[a])
            return false;
    return true;
}

void clv_explain_split(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule,
                       const clv_strategy *s)
{
    int n = 0;
    for (int a = 0; a < s->n_subaxes; a++) {
        if (s->choice[a] == CLV_CHOICE_NONE || !is_first_with_choice(s, a))
            continue;
        clv_text_add(t, "%s", n++ ? ", " : "");
        if (s->choice[a] == CLV_CHOICE_PARTIAL)
            clv_text_add(t, "partial sums");
        else
            clv_explain_factor(t, p, op, rule, s->choice[a]);
        clv_text_add(t, " over ");
        put_subaxes_alike(t, p, s, a);
    }
    if (n == 0)
        clv_text_add(t, "nothing (every rank does all of it)");
}

/* A primal value; if another result of the op has a primal of the same name (rotary embedding of queries and of keys),
 * with its operand. */
static void put_primal(clv_text *t, const clv_partitioner *p, const clv_op *op, int primal)
{
    const clv_value_info *values = p->graph->values;
    bool alike = false;
    for (int o = 0; o < op->n_out && values[primal].source == CLV_FROM_OP; o++) {
        int other = values[op->out[o]].primal;
        alike |= other > 0 && other != primal && values[other].source == CLV_FROM_OP &&
                 strcmp(clv_graph_name_of(p->graph, other), clv_graph_name_of(p->graph, primal)) == 0;
    }
    clv_explain_value(t, p, primal);
    if (!alike || p->graph->ops[values[primal].op].in[0] <= 0)
        return;
    clv_text_add(t, " (of ");
    clv_explain_value(t, p, p->graph->ops[values[primal].op].in[0]);
    clv_text_add(t, ")");
}

/* The state to which a result of the op is assigned; 0: none. */
static int state_assigned(const clv_partitioner *p, const clv_op *op)
{
    for (int i = 0; i < op->n_in; i++)
        for (int o = 0; o < op->n_out; o++)
            if (op->in[i] > 0 && p->graph->values[op->in[i]].assigned == op->out[o])
                return op->in[i];
    return 0;
}

void clv_explain_purpose(clv_text *t, const clv_partitioner *p, const clv_op *op)
{
    const clv_value_info *values = p->graph->values;
    int n = 0, state = state_assigned(p, op);
    for (int of_sum = 0; of_sum < 2 && n == 0; of_sum++)
        for (int o = 0; op->backward && o < op->n_out; o++) {
            int primal = values[of_sum ? p->available[op->out[o]].outermost_sum : op->out[o]].primal;
            if (primal <= 0)
                continue;
            clv_text_add(t, "%s", n > 0 ? ", " : of_sum ? "partial sum of the gradient of " : "gradient of ");
            n++;
            put_primal(t, p, op, primal);
        }
    if (n == 0 && op->backward && op->gradient_of >= 0)
        clv_text_add(t, "for the gradients of %s", p->graph->ops[op->gradient_of].name);
    else if (n == 0 && state > 0)
        clv_text_add(t, "new %s", values[state].name);
    else if (n == 0)
        clv_text_add(t, "result");
}

/* ---- sentences ---- */

/* The mesh axes of dimensions [first, end) of a layout. */
static uint32_t axes_of(const clv_layout *layout, int first, int end)
{
    uint32_t axes = 0;
    for (int i = layout->begin[first]; i < layout->begin[end]; i++)
        axes |= 1u << layout->axes[i].axis;
    return axes;
}

/* The mesh axes that shard a value as it was made. */
static uint32_t axes_that_split(const clv_partitioner *p, int value)
{
    const clv_layout *layout = clv_partition_made_layout(p, value);
    return axes_of(layout, 0, layout->rank);
}

/* Whether `value` may have its layout from `source`, which has all its axes, or both are replicated. */
static bool may_come_from(const clv_partitioner *p, int value, int source)
{
    if (p->available[source].n == 0)
        return false;
    uint32_t axes = axes_that_split(p, value), theirs = axes_that_split(p, source);
    return axes == 0 ? theirs == 0 : (axes & ~theirs) == 0;
}

/* The value from which an op's result has its layout: its primal, if it is a gradient, else the largest operand; 0:
 * none may be. */
static int source_of(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    const clv_op *op = &p->graph->ops[info->op];
    int64_t most = -1;
    int source = 0;
    if (info->primal > 0)
        return may_come_from(p, value, info->primal) ? info->primal : 0;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0 && clv_type_elems(&p->graph->values[op->in[i]].type) > most &&
            may_come_from(p, value, op->in[i])) {
            most = clv_type_elems(&p->graph->values[op->in[i]].type);
            source = op->in[i];
        }
    return source;
}

/* The stated layout from which a value has its layout: the nearest constraint, state or input; 0: none. */
static int statement_of(const clv_partitioner *p, int value)
{
    while (value > 0) { /* an op's operands are older than its results */
        const clv_value_info *info = &p->graph->values[value];
        if (info->source != CLV_FROM_OP || clv_op_constraint_of(&p->graph->ops[info->op]))
            return is_stated(p, value) ? value : 0;
        value = source_of(p, value);
    }
    return 0;
}

/* Another operand of the op: its stated layout is the other half of the conflict; 0: none. */
static int other_operand(const clv_op *op, int moved)
{
    for (int i = 0; i < op->n_in; i++)
        if (i != moved && op->in[i] > 0)
            return op->in[i];
    return 0;
}

typedef struct explanation_context {
    const clv_partitioner *p;
    const clv_reshard_reason *why;
    const clv_reshard_step *step;
    int value;
    int *statement; /* out: the value whose stated layout is behind it; 0: none */
} explanation_context;

/* Appends the sentence for one kind of need; returns the value whose stated layout is behind it. */
typedef int explainer(clv_text *t, const explanation_context *it);

static int explain_operand(clv_text *t, const explanation_context *it)
{
    const clv_partitioner *p = it->p;
    const clv_reshard_reason *why = it->why;
    int statement = statement_of(p, it->value), other = other_operand(why->reader, why->operand);
    int second = other > 0 ? statement_of(p, other) : 0;
    if (clv_step_reduces(it->step->kind)) {
        clv_explain_value(t, p, it->value);
        clv_text_add(t, " is ");
        put_partial(t, p, &it->step->from);
        clv_text_add(t, ", and %s needs it complete", why->by);
        return statement;
    }
    clv_text_add(t, "%s is split by ", why->by);
    clv_explain_split(t, p, why->reader, why->rule, why->strategy);
    clv_text_add(t, "; ");
    if (statement != it->value) {
        clv_explain_value(t, p, it->value);
        clv_text_add(t, " is ");
        put_layout_of(t, p, it->value);
        clv_text_add(t, "%s", statement > 0 ? ", as " : "");
    }
    if (statement > 0)
        put_statement(t, p, statement);
    if (second > 0 && second != statement) {
        clv_text_add(t, "; ");
        put_statement(t, p, second);
    }
    return statement;
}

/* The gradient of state or an input usually has its layout; any other constraint is a stated layout of its own. */
static int explain_constraint(clv_text *t, const explanation_context *it)
{
    const clv_partitioner *p = it->p;
    int made = it->why->reader->out[0], primal = p->graph->values[made].primal;
    if (primal > 0 && p->graph->values[primal].source != CLV_FROM_OP &&
        clv_layout_equal(it->why->to, clv_partition_made_layout(p, primal))) {
        put_statement(t, p, primal);
        clv_text_add(t, ", and its gradient is laid out alike");
        return primal;
    }
    clv_explain_value(t, p, made);
    clv_text_add(t, " is stated as ");
    put_layout(t, p, it->why->to, p->available[made].dim_names);
    put_rules(t, p, made);
    return made;
}

/* A value that is a sum in the forward pass has the same gradient for all terms. */
static int explain_gradient(clv_text *t, const explanation_context *it)
{
    const clv_partitioner *p = it->p;
    int primal = p->graph->values[it->why->reader->out[0]].primal;
    if (primal <= 0 || p->available[primal].n == 0) {
        clv_text_add(t, "%s needs the gradient complete", it->why->by);
        return 0;
    }
    const clv_layout *layout = clv_partition_made_layout(p, primal);
    clv_text_add(t, "the gradient of ");
    clv_explain_value(t, p, primal);
    if (!clv_layout_is_partial(layout)) {
        clv_text_add(t, " is laid out as that is: ");
        put_layout_of(t, p, primal);
        return primal;
    }
    clv_layout whole = clv_layout_without_partial(layout);
    clv_text_add(t, ", which is ");
    put_partial(t, p, layout);
    clv_text_add(t, ", is the same for every partial sum: ");
    put_layout(t, p, &whole, p->available[primal].dim_names);
    return primal;
}

static int explain_output(clv_text *t, const explanation_context *it)
{
    const clv_partitioner *p = it->p;
    clv_text_add(t, "output %s is ", it->why->by);
    if (it->why->stated) {
        clv_text_add(t, "stated as ");
        put_layout(t, p, it->why->to, p->available[it->value].dim_names);
    } else {
        clv_text_add(t, "returned complete, and made as ");
        put_partial(t, p, clv_partition_made_layout(p, it->value));
    }
    return 0;
}

static int explain_state(clv_text *t, const explanation_context *it)
{
    int state = it->why->state;
    clv_text_add(t, "%s, which is assigned this value, is stated as ", it->why->by);
    put_layout_of(t, it->p, state);
    put_rules(t, it->p, state);
    return state;
}

static int explain_copy(clv_text *t, const explanation_context *it)
{
    clv_text_add(t, "%s needs a copy of state, which this run may overwrite", it->why->by);
    return 0;
}

/* Whether the step is implicit: it moves an op's operand that is no weight without clv_keep_stationary over its axes.
 * */
static bool is_implicit(const explanation_context *it)
{
    const clv_value_info *info = &it->p->graph->values[it->value];
    const clv_reshard_step *step = it->step;
    if (it->why->need != CLV_NEEDED_BY_OP || !clv_step_moves(step->kind))
        return false;
    bool weight = info->source == CLV_FROM_STATE && info->role == CLV_ROLE_PARAMETER;
    for (int a = 0; weight && a < step->n_axes; a++)
        weight = !(info->stationary_axes >> step->axes[a].axis & 1);
    return !weight;
}

static void write_cause(clv_text *t, const void *arg)
{
    static explainer *const explainers[] = {
        [CLV_NEEDED_BY_OP] = explain_operand,        [CLV_NEEDED_BY_CONSTRAINT] = explain_constraint,
        [CLV_NEEDED_BY_GRADIENT] = explain_gradient, [CLV_NEEDED_BY_OUTPUT] = explain_output,
        [CLV_NEEDED_BY_STATE] = explain_state,       [CLV_NEEDED_AS_COPY] = explain_copy};
    const explanation_context *it = arg;
    *it->statement = explainers[it->why->need](t, it);
}

clv_status clv_explain_step(clv_reshard_explanation *out, const clv_partitioner *p, const clv_reshard_reason *why,
                            const clv_reshard_step *step, int value, clv_error *err)
{
    int statement = 0;
    explanation_context it = {p, why, step, value, &statement};
    const bool is_read = !p->is_priced || p->options->max_implicit_bytes > 0;
    *out = (clv_reshard_explanation){.need = why->need,
                                     .by = why->by,
                                     .text = is_read ? clv_text_to_arena(p->scratch, write_cause, &it) : "",
                                     .implicit = is_implicit(&it)};
    if (step)
        out->purpose = clv_explain_collective_purpose(p, why, step, value);
    if (!out->text)
        return clv_fail_memory(err, "a cause", sizeof *out);
    if (statement <= 0)
        return CLV_OK;
    const clv_value_annotation *origin = p->graph->values[statement].annotation;
    out->statement = clv_graph_name_of(p->graph, statement);
    out->rules = origin ? origin->rules : NULL;
    return CLV_OK;
}

/* ---- why an op has its strategy ---- */

static uint32_t axes_of_split(const clv_strategy *s)
{
    uint32_t axes = 0;
    for (int a = 0; a < s->n_subaxes; a++)
        axes |= s->choice[a] == CLV_CHOICE_NONE ? 0 : 1u << s->subaxis[a].axis;
    return axes;
}

/* Sentences, and the axes that they have not explained yet. */
typedef struct choice_explanation {
    clv_text *text;
    int n;
    uint32_t unexplained; /* of the axes that split the op */
} choice_explanation;

/* Begins a sentence about these axes; false: they are explained already. */
static bool begin_sentence(choice_explanation *a, uint32_t axes)
{
    if ((axes & a->unexplained) == 0)
        return false;
    clv_text_add(a->text, "%s", a->n++ ? "; " : "");
    a->unexplained &= ~axes;
    return true;
}

/* "the result of mlp.dot_general is a sum over model". */
static void explain_partial_sums(choice_explanation *a, const clv_partitioner *p, int value, const clv_layout *in)
{
    if (!begin_sentence(a, axes_of(in, in->rank, in->rank + 1)))
        return;
    clv_explain_value(a->text, p, value);
    clv_text_add(a->text, " is ");
    put_partial(a->text, p, in);
}

static void explain_operand_layout(choice_explanation *a, const clv_partitioner *p, int value)
{
    int statement = statement_of(p, value);
    if (statement > 0 && begin_sentence(a, axes_that_split(p, statement)))
        put_statement(a->text, p, statement);
}

static void explain_result_layout(choice_explanation *a, const clv_partitioner *p, int value, const clv_layout *target)
{
    if (!begin_sentence(a, axes_of(target, 0, target->rank)))
        return;
    clv_explain_value(a->text, p, value);
    clv_text_add(a->text, " has the target layout ");
    put_layout(a->text, p, target, p->available[value].dim_names);
}

static bool reads_whole_values(const clv_partitioner *p, const clv_op *op)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0 &&
            (axes_that_split(p, op->in[i]) != 0 || clv_layout_is_partial(clv_partition_made_layout(p, op->in[i]))))
            return false;
    return true;
}

void clv_explain_choice(clv_text *t, const clv_partitioner *p, const clv_strategy_problem *problem,
                        const clv_strategy *strategy)
{
    const clv_op *op = problem->op;
    choice_explanation a = {.text = t, .unexplained = axes_of_split(strategy)};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            explain_partial_sums(&a, p, op->in[i], &strategy->in[i]);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            explain_operand_layout(&a, p, op->in[i]);
    for (int o = 0; o < op->n_out; o++)
        if (problem->has_target[o])
            explain_result_layout(&a, p, op->out[o], &problem->target[o]);
    if (a.unexplained)
        clv_text_add(t, "%sdividing the work costs less", a.n ? "; " : "");
    else if (a.n == 0)
        clv_text_add(t, "%s",
                     reads_whole_values(p, op) ? "its operands are whole on every rank"
                                               : "repeating the work costs less");
}
