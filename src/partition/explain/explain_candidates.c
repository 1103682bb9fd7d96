/* explain_candidates.c - records an op's candidate strategies with costs and why each was rejected.
 *
 * In: the strategy problem of an op and its chosen strategy. Out: candidates of the table: all assignments of sub-axes
 * to factors if there are few, else those that differ from the chosen one in few sub-axes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/text.h"
#include "partition/explain/explain.h"
#include "partition/sharding/sharding_projection.h"

enum { MAX_CANDIDATES = 4096, MAX_CHOICES = 2 * CLV_MAX_FACTORS + 2 };

/* ---- which ops ---- */

static bool is_named(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

static bool is_requested(const clv_partitioner *p, const clv_op *op)
{
    const char *prefix = p->options->explain;
    bool found = is_named(op->name, prefix);
    for (int i = 0; i < op->n_in; i++)
        found = found || (op->in[i] > 0 && p->graph->values[op->in[i]].source == CLV_FROM_STATE &&
                          is_named(p->graph->values[op->in[i]].name, prefix));
    return found;
}

/* A gradient op belongs to the op that it is of: the gradient of a weight does not read the weight. */
bool clv_explain_is_requested(const clv_partitioner *p, const clv_op *op)
{
    return p->options->explain &&
           (is_requested(p, op) || (op->gradient_of >= 0 && is_requested(p, &p->graph->ops[op->gradient_of])));
}

/* ---- texts ---- */

typedef struct recorder {
    clv_partitioner *p;
    const clv_op *op;
    clv_strategy_problem problem; /* a copy, which reports refusals */
    const clv_strategy *chosen;
    const char *purpose;
    const clv_strategy *strategy; /* the current candidate */
    clv_refusal refusal;          /* of the current candidate */
    clv_strategy trial;
    clv_projection_context context;
    int n_choices;
    int8_t choices[MAX_CHOICES];
    int max_changes; /* sub-axes in which a candidate may differ from the chosen one */
} recorder;

static void put_axis(clv_text *t, const recorder *l, clv_subaxis axis)
{
    clv_text_add_subaxis(t, axis, &l->p->graph->mesh);
}

/* Refusals that begin with the name of a factor. */
static const char *const about_factor[] = {
    [CLV_REFUSED_WHOLE] = " must be whole for %s",
    [CLV_REFUSED_OVERFLOW] = " can only be split over ranks that the KV heads leave over",
    [CLV_REFUSED_MINOR_FACTOR] =
        " lies within a dimension whose outer part is not split down to single elements, so parts of it "
        "are not contiguous",
    [CLV_REFUSED_REDUCTION] = " is missing in a result, and %s cannot combine what its parts give",
    [CLV_REFUSED_LAYOUT] = " would be split by more axes than a layout has",
};

static void put_refusal(clv_text *t, const recorder *l)
{
    const clv_refusal *refusal = &l->refusal;
    if (refusal->kind == CLV_REFUSED_STATIONARY) {
        clv_text_add(t, "kept in place: ");
        clv_explain_value(t, l->p, l->op->in[refusal->operand]);
        clv_text_add(t, " stays as it is over ");
        put_axis(t, l, refusal->axis);
        return;
    }
    clv_text_add(t, "illegal: ");
    if (refusal->kind == CLV_REFUSED_PARTIAL) {
        clv_text_add(t, "no operand of %s is a partial sum over ", l->op->def->name);
        put_axis(t, l, refusal->axis);
        clv_text_add(t, " that it could pass on");
        return;
    }
    if (refusal->factor >= 0)
        clv_explain_factor(t, l->p, l->op, &l->problem.rule, refusal->factor);
    else
        clv_text_add(t, "a dimension");
    clv_text_add(t, about_factor[refusal->kind], l->op->def->name);
}

static void put_difference(clv_text *t, int *n, double more, const char *amount, const char *what)
{
    clv_text_add(t, "%s%s %s%s", (*n)++ ? ", " : ": ", amount, more > 0 ? "more" : "less", what);
}

/* The cost compared with that of the chosen strategy: by seconds, or by bytes and then work. */
static void put_cost(clv_text *t, const recorder *l)
{
    const clv_strategy *s = l->strategy;
    char amount[CLV_QUANTITY_TEXT];
    double seconds = s->seconds - l->chosen->seconds, bytes = s->bytes - l->chosen->bytes;
    double work = s->work_seconds - l->chosen->work_seconds;
    int moves = s->moves - l->chosen->moves, n = 0;
    bool same = fabs(seconds) <= 1e-9 * l->chosen->seconds;
    clv_text_add(t, "cost");
    clv_print_seconds(amount, sizeof amount, fabs(seconds));
    if (!l->problem.by_bytes && !same)
        clv_text_add(t, ": %s %s (%.0f %%)", amount, seconds > 0 ? "more" : "less by itself",
                     100 * fabs(seconds) / l->chosen->seconds);
    else if (!l->problem.by_bytes)
        clv_text_add(t, ": the same");
    clv_print_bytes(amount, sizeof amount, fabs(bytes));
    if (bytes != 0)
        put_difference(t, &n, bytes, amount, " moved");
    clv_print_seconds(amount, sizeof amount, fabs(work));
    if (fabs(work) > 1e-9 * l->chosen->work_seconds)
        put_difference(t, &n, work, amount, " work");
    if (moves != 0)
        clv_text_add(t, "%s%d %s step%s", n++ ? ", " : ": ", abs(moves), moves > 0 ? "more" : "fewer",
                     abs(moves) > 1 ? "s" : "");
    if (n == 0)
        clv_text_add(t, "%s the first one is chosen", l->problem.by_bytes ? ": the same;" : ";");
}

static bool has_cost(const recorder *l)
{
    return l->refusal.kind == CLV_REFUSED_NONE || l->refusal.kind == CLV_REFUSED_STATIONARY;
}

static bool is_chosen(const recorder *l)
{
    return memcmp(l->strategy->choice, l->chosen->choice, (size_t)l->strategy->n_subaxes) == 0;
}

static void write_split(clv_text *t, const void *arg)
{
    const recorder *l = arg;
    clv_explain_split(t, l->p, l->op, &l->problem.rule, l->strategy);
}

static void write_layouts(clv_text *t, const void *arg)
{
    const recorder *l = arg;
    if (has_cost(l))
        clv_strategy_put_layouts(t, l->op, l->strategy, &l->p->graph->mesh);
}

static void write_why(clv_text *t, const void *arg)
{
    const recorder *l = arg;
    if (is_chosen(l))
        clv_text_add(t, "chosen");
    else if (l->refusal.kind == CLV_REFUSED_NONE)
        put_cost(t, l);
    else
        put_refusal(t, l);
}

static void write_purpose(clv_text *t, const void *arg)
{
    const recorder *l = arg;
    clv_explain_purpose(t, l->p, l->op);
}

static void write_choice(clv_text *t, const void *arg)
{
    const recorder *l = arg;
    clv_explain_choice(t, l->p, &l->problem, l->chosen);
}

/* ---- candidates ---- */

static int changes_from_chosen(const recorder *l)
{
    int n = 0;
    for (int a = 0; a < l->trial.n_subaxes; a++)
        n += l->trial.choice[a] != l->chosen->choice[a];
    return n;
}

static clv_status add_candidate(clv_sharding_table *table, const clv_strategy_candidate *made, clv_error *err)
{
    if (!made->purpose || !made->split || !made->layouts || !made->why ||
        clv_arena_grow(table->arena, &table->candidates, &table->candidate_capacity, table->n_candidates,
                       sizeof *made) != 0)
        return clv_fail_memory(err, "candidates", sizeof *made);
    table->candidates[table->n_candidates++] = *made;
    return CLV_OK;
}

static clv_status record_trial(recorder *l, clv_error *err)
{
    clv_arena *arena = l->p->table.arena;
    bool legal;
    l->refusal = (clv_refusal){.kind = CLV_REFUSED_NONE, .factor = -1, .operand = -1};
    CLV_TRY(clv_strategy_fill_cost(&l->trial, &legal, &l->problem, &l->context, true, err));
    clv_refusal refusal = l->refusal;
    if (refusal.kind == CLV_REFUSED_STATIONARY)
        CLV_TRY(clv_strategy_fill_cost(&l->trial, &legal, &l->problem, &l->context, false, err));
    l->refusal = refusal;
    bool cost = has_cost(l);
    clv_strategy_candidate made = {.op = l->op->name,
                                   .purpose = l->purpose,
                                   .split = clv_text_to_arena(arena, write_split, l),
                                   .layouts = clv_text_to_arena(arena, write_layouts, l),
                                   .why = clv_text_to_arena(arena, write_why, l),
                                   .verdict = is_chosen(l)                             ? CLV_VERDICT_CHOSEN
                                              : refusal.kind == CLV_REFUSED_NONE       ? CLV_VERDICT_COSTLIER
                                              : refusal.kind == CLV_REFUSED_STATIONARY ? CLV_VERDICT_MOVES_STATIONARY
                                                                                       : CLV_VERDICT_ILLEGAL,
                                   .bytes = cost ? l->trial.bytes : 0,
                                   .seconds = cost ? l->trial.seconds : 0,
                                   .work_seconds = cost ? l->trial.work_seconds : 0,
                                   .changes = changes_from_chosen(l)};
    return add_candidate(&l->p->table, &made, err);
}

static clv_status record_from_subaxis(recorder *l, int subaxis, int changes, clv_error *err)
{
    if (subaxis == l->trial.n_subaxes)
        return record_trial(l, err);
    for (int c = 0; c < l->n_choices; c++) {
        int changed = changes + (l->choices[c] != l->chosen->choice[subaxis]);
        l->trial.choice[subaxis] = l->choices[c];
        if (changed <= l->max_changes)
            CLV_TRY(record_from_subaxis(l, subaxis + 1, changed, err));
    }
    return CLV_OK;
}

/* The choices of the search, and factors that must not be split: their refusal is worth showing. */
static void list_choices(recorder *l)
{
    const clv_rule *rule = &l->problem.rule;
    l->n_choices = clv_strategy_list_choices(l->choices, &l->problem);
    for (int f = 0; f < rule->n_factors; f++)
        if (rule->factor[f].whole && rule->factor[f].size > 1)
            l->choices[l->n_choices++] = (int8_t)f;
}

/* The number of changes, at least 1, that gives at most MAX_CANDIDATES: the sum over k of C(subaxes, k) (choices -
 * 1)^k.
 */
static int changes_that_fit(int n_subaxes, int n_choices)
{
    double sum = 1, term = 1;
    for (int k = 1; k <= n_subaxes; k++) {
        term *= (double)(n_subaxes - k + 1) / k * (n_choices - 1);
        sum += term;
        if (k > 1 && sum > MAX_CANDIDATES)
            return k - 1;
    }
    return n_subaxes;
}

static int compare_doubles(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* By verdict, then cost; illegal ones by the number of changes. */
static int compare(const clv_strategy_candidate *x, const clv_strategy_candidate *y, bool by_bytes)
{
    int bytes = compare_doubles(x->bytes, y->bytes), seconds = compare_doubles(x->seconds, y->seconds);
    if (x->verdict != y->verdict)
        return x->verdict < y->verdict ? -1 : 1;
    if (bytes != 0 && (by_bytes || seconds == 0))
        return bytes;
    if (seconds != 0)
        return seconds;
    return x->changes != y->changes ? x->changes - y->changes : strcmp(x->split, y->split);
}

static int compare_by_seconds(const void *a, const void *b)
{
    return compare(a, b, false);
}

static int compare_by_bytes(const void *a, const void *b)
{
    return compare(a, b, true);
}

clv_status clv_explain_candidates(clv_partitioner *p, const clv_strategy_problem *problem, const clv_strategy *chosen,
                                  clv_error *err)
{
    recorder l = {.p = p, .op = problem->op, .problem = *problem, .chosen = chosen, .trial = *chosen};
    clv_sharding_table *table = &p->table;
    int first = table->n_candidates;
    l.problem.refusal = &l.refusal;
    l.strategy = &l.trial;
    l.purpose = clv_text_to_arena(table->arena, write_purpose, &l);
    clv_projection_context_make(&l.context, &l.problem, l.trial.subaxis, l.trial.n_subaxes);
    list_choices(&l);
    l.max_changes = changes_that_fit(l.trial.n_subaxes, l.n_choices);
    CLV_TRY(record_from_subaxis(&l, 0, 0, err));
    qsort(table->candidates + first, (size_t)(table->n_candidates - first), sizeof *table->candidates,
          problem->by_bytes ? compare_by_bytes : compare_by_seconds);
    return CLV_OK;
}

clv_status clv_explain_constraint(clv_partitioner *p, const clv_op *op, const clv_reshard_reason *why, int first_row,
                                  clv_error *err)
{
    const clv_type *type = &p->graph->values[op->in[0]].type;
    recorder l = {.p = p, .op = op};
    clv_reshard_explanation explanation;
    CLV_TRY(clv_explain_step(&explanation, p, why, NULL, op->in[0], err));
    clv_strategy_candidate made = {.op = op->name,
                                   .purpose = clv_text_to_arena(p->table.arena, write_purpose, &l),
                                   .split = "as stated",
                                   .layouts = "-",
                                   .why = explanation.text,
                                   .verdict = CLV_VERDICT_CHOSEN};
    for (int i = first_row; i < p->table.n_rows; i++) {
        const clv_reshard_step *step = p->table.rows[i].step;
        made.bytes += step->bytes;
        made.seconds += clv_reshard_step_cost(p->cost, step, type->shape, type->dtype).seconds;
    }
    return add_candidate(&p->table, &made, err);
}

clv_status clv_explain_decision(clv_sharding_row *row, clv_partitioner *p, const clv_strategy_problem *problem,
                                clv_error *err)
{
    clv_arena *arena = p->table.arena;
    recorder l = {.p = p, .op = problem->op, .problem = *problem, .chosen = row->strategy, .strategy = row->strategy};
    row->decision = (clv_row_decision){.purpose = clv_text_to_arena(arena, write_purpose, &l),
                                       .split = clv_text_to_arena(arena, write_split, &l),
                                       .why = clv_text_to_arena(arena, write_choice, &l),
                                       .seconds = row->strategy->work_seconds};
    return row->decision.purpose && row->decision.split && row->decision.why
               ? CLV_OK
               : clv_fail_memory(err, "a row's text", sizeof *row);
}
