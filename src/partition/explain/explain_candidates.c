/* explain_candidates.c - records an op's candidate strategies with costs and why each was rejected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/text.h"
#include "partition/explain/enumerate_strategies.h"
#include "partition/partitioner.h"
#include "tensor/parse_print.h"

static bool is_named(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncmp(name, wanted, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

static bool is_asked_for(const clv_partitioner *p, const clv_op *op)
{
    const char *wanted = p->options->explain;
    bool found = is_named(op->name, wanted);
    for (int i = 0; i < op->n_in; i++)
        found = found || (op->in[i] > 0 && p->graph->values[op->in[i]].source == CLV_FROM_STATE &&
                          is_named(p->graph->values[op->in[i]].name, wanted));
    return found;
}

/* Gradients belong to the op that they are of: that of a weight does not read the weight. */
bool clv_partition_is_explained(const clv_partitioner *p, const clv_op *op)
{
    return p->options->explain &&
           (is_asked_for(p, op) || (op->gradient_of >= 0 && is_asked_for(p, &p->graph->ops[op->gradient_of])));
}

/* Whose candidates are noted. */
typedef struct candidate_recorder {
    clv_partitioner *p;
    const clv_op *op;
    const clv_strategy_problem *problem; /* NULL: of a constraint */
    const char *makes;
    const clv_strategy *chosen;
} candidate_recorder;

/* ---- why not ---- */

static void put_axis(clv_text *t, const candidate_recorder *l, clv_subaxis axis)
{
    clv_text_add_subaxis(t, axis, &l->p->graph->mesh);
}

/* Of the refusals that name a factor: what is said after it. */
static const char *const about_factor[] = {
    [CLV_REFUSED_WHOLE] = " must be whole for %s",
    [CLV_REFUSED_OVERFLOW] = " can only be split over ranks that the KV heads leave over",
    [CLV_REFUSED_MINOR_FACTOR] =
        " lies within a dimension whose outer part is not split down to single elements, so parts of it "
        "are not contiguous",
    [CLV_REFUSED_REDUCTION] = " is missing in a result, and %s cannot combine what its parts give",
    [CLV_REFUSED_LAYOUT] = " would be split by more axes than a layout has",
};

static void put_refusal(clv_text *t, const candidate_recorder *l, const clv_refusal *refusal)
{
    if (refusal->kind == CLV_REFUSED_STATIONARY) {
        clv_text_add(t, "kept in place: ");
        clv_partition_put_value(t, l->p, l->op->in[refusal->operand]);
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
        clv_partition_put_factor(t, l->p, l->op, &l->problem->rule, refusal->factor);
    else
        clv_text_add(t, "a dimension");
    clv_text_add(t, about_factor[refusal->kind], l->op->def->name);
}

static void put_difference(clv_text *t, int *n, double more, const char *amount, const char *what)
{
    clv_text_add(t, "%s%s %s%s", (*n)++ ? ", " : ": ", amount, more > 0 ? "more" : "less", what);
}

/* The price by seconds, and what makes it; or by bytes, and then work. Beside the chosen one's. */
static void put_cost(clv_text *t, const candidate_recorder *l, const clv_strategy *s)
{
    char amount[CLV_QUANTITY_TEXT];
    double seconds = s->seconds - l->chosen->seconds, bytes = s->bytes - l->chosen->bytes;
    double work = s->work_seconds - l->chosen->work_seconds;
    int moves = s->moves - l->chosen->moves, n = 0;
    bool same = fabs(seconds) <= 1e-9 * l->chosen->seconds;
    clv_text_add(t, "cost");
    clv_print_seconds(amount, sizeof amount, fabs(seconds));
    if (!l->problem->by_bytes && !same)
        clv_text_add(t, ": %s %s (%.0f %%)", amount, seconds > 0 ? "more" : "less by itself",
                     100 * fabs(seconds) / l->chosen->seconds);
    else if (!l->problem->by_bytes)
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
        clv_text_add(t, "%s the first in order is taken", l->problem->by_bytes ? ": the same;" : ";");
}

/* ---- keeping candidates ---- */

/* What is written of one. */
typedef struct candidate {
    const candidate_recorder *l;
    const clv_strategy *strategy;
    const clv_refusal *refusal;
} candidate;

static void write_split(clv_text *t, const void *arg)
{
    const candidate *c = arg;
    clv_partition_put_split(t, c->l->p, c->l->op, &c->l->problem->rule, c->strategy);
}

static bool is_priced(const clv_refusal *refusal)
{
    return refusal->kind == CLV_REFUSED_NONE || refusal->kind == CLV_REFUSED_STATIONARY;
}

static void write_layouts(clv_text *t, const void *arg)
{
    const candidate *c = arg;
    if (is_priced(c->refusal))
        clv_strategy_put_layouts(t, c->l->op, c->strategy, &c->l->p->graph->mesh);
}

static bool is_chosen(const candidate_recorder *l, const clv_strategy *s)
{
    return memcmp(s->choice, l->chosen->choice, (size_t)s->n_subaxes) == 0;
}

static void write_why(clv_text *t, const void *arg)
{
    const candidate *c = arg;
    if (is_chosen(c->l, c->strategy))
        clv_text_add(t, "chosen");
    else if (c->refusal->kind == CLV_REFUSED_NONE)
        put_cost(t, c->l, c->strategy);
    else
        put_refusal(t, c->l, c->refusal);
}

static void write_purpose(clv_text *t, const void *arg)
{
    const candidate_recorder *l = arg;
    clv_partition_put_result(t, l->p, l->op);
}

static int changes_from_chosen(const candidate_recorder *l, const clv_strategy *s)
{
    int n = 0;
    for (int a = 0; a < s->n_subaxes; a++)
        n += s->choice[a] != l->chosen->choice[a];
    return n;
}

static clv_status note(clv_sharding_table *table, const clv_strategy_candidate *made, clv_error *err)
{
    if (!made->purpose || !made->split || !made->layouts || !made->why ||
        clv_arena_grow(table->arena, &table->candidates, &table->candidate_capacity, table->n_candidates,
                       sizeof *made) != 0)
        return clv_fail_memory(err, "candidates", sizeof *made);
    table->candidates[table->n_candidates++] = *made;
    return CLV_OK;
}

static clv_status record_candidate(void *arg, const clv_strategy *s, const clv_refusal *refusal, clv_error *err)
{
    const candidate_recorder *l = arg;
    clv_arena *arena = l->p->table.arena;
    bool priced = is_priced(refusal);
    candidate c = {l, s, refusal};
    clv_strategy_candidate made = {.op = l->op->name,
                                   .purpose = l->makes,
                                   .split = clv_text_to_arena(arena, write_split, &c),
                                   .layouts = clv_text_to_arena(arena, write_layouts, &c),
                                   .why = clv_text_to_arena(arena, write_why, &c),
                                   .verdict = is_chosen(l, s)                           ? CLV_VERDICT_CHOSEN
                                              : refusal->kind == CLV_REFUSED_NONE       ? CLV_VERDICT_COSTLIER
                                              : refusal->kind == CLV_REFUSED_STATIONARY ? CLV_VERDICT_MOVES_STATIONARY
                                                                                        : CLV_VERDICT_ILLEGAL,
                                   .bytes = priced ? s->bytes : 0,
                                   .seconds = priced ? s->seconds : 0,
                                   .work_seconds = priced ? s->work_seconds : 0,
                                   .changes = changes_from_chosen(l, s)};
    return note(&l->p->table, &made, err);
}

static int compare_doubles(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* By verdict; those with a price by price, illegal ones by how much they differ from the chosen one. */
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

clv_status clv_partition_record_candidates(clv_partitioner *p, const clv_strategy_problem *problem,
                                           const clv_strategy *chosen, clv_error *err)
{
    candidate_recorder l = {.p = p, .op = problem->op, .problem = problem, .chosen = chosen};
    clv_sharding_table *table = &p->table;
    int first = table->n_candidates;
    l.makes = clv_text_to_arena(table->arena, write_purpose, &l);
    CLV_TRY(clv_strategy_enumerate(problem, chosen, record_candidate, &l, err));
    qsort(table->candidates + first, (size_t)(table->n_candidates - first), sizeof *table->candidates,
          problem->by_bytes ? compare_by_bytes : compare_by_seconds);
    return CLV_OK;
}

/* There is nothing to choose: one candidate, and the statement behind it. */
clv_status clv_partition_explain_constraint(clv_partitioner *p, const clv_op *op, const clv_reshard_reason *why,
                                            int first_row, clv_error *err)
{
    const clv_type *type = &p->graph->values[op->in[0]].type;
    candidate_recorder l = {.p = p, .op = op};
    clv_reshard_explanation cause;
    CLV_TRY(clv_partition_explain_step(&cause, p, why, NULL, op->in[0], err));
    clv_strategy_candidate made = {.op = op->name,
                                   .purpose = clv_text_to_arena(p->table.arena, write_purpose, &l),
                                   .split = "as stated",
                                   .layouts = "-",
                                   .why = cause.text,
                                   .verdict = CLV_VERDICT_CHOSEN};
    for (int i = first_row; i < p->table.n_rows; i++) {
        const clv_reshard_step *step = p->table.rows[i].step;
        made.bytes += step->bytes;
        made.seconds += clv_reshard_step_cost(p->cost, step, type->shape, type->dtype).seconds;
    }
    return note(&p->table, &made, err);
}

/* ---- what was chosen ---- */

static void write_choice(clv_text *t, const void *arg)
{
    const candidate_recorder *l = arg;
    clv_partition_put_choice(t, l->p, l->problem, l->chosen);
}

clv_status clv_partition_record_decision(clv_sharding_row *row, clv_partitioner *p, const clv_strategy_problem *problem,
                                         clv_error *err)
{
    clv_arena *arena = p->table.arena;
    candidate_recorder l = {.p = p, .op = problem->op, .problem = problem, .chosen = row->strategy};
    row->decision =
        (clv_row_decision){.purpose = clv_text_to_arena(arena, write_purpose, &l),
                           .split = clv_text_to_arena(arena, write_split, &(candidate){&l, row->strategy, NULL}),
                           .why = clv_text_to_arena(arena, write_choice, &l),
                           .seconds = row->strategy->work_seconds};
    return row->decision.purpose && row->decision.split && row->decision.why
               ? CLV_OK
               : clv_fail_memory(err, "a row's text", sizeof *row);
}
