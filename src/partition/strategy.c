#include "partition/strategy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/check.h"
#include "tensor/text.h"
#include "partition/split.h"
#include "program/program.h"

/* Assignments tried one by one; beyond, atoms are improved in turn until none can be (stated limit, see docs). */
enum { MAX_EXHAUSTIVE = 20000 };

/* ---- atoms ---- */

/* Where an axis must be divided so that every sub-axis in use is a whole number of atoms: products of pre. */
typedef struct breaks {
    int n;
    int64_t at[2 * CLV_MAX_SUBAXES + 2];
    bool used;
} breaks;

static void add_break(breaks *b, int64_t at)
{
    int i = 0;
    while (i < b->n && b->at[i] < at)
        i++;
    if ((i < b->n && b->at[i] == at) || b->n == (int)(sizeof b->at / sizeof *b->at))
        return;
    memmove(b->at + i + 1, b->at + i, (size_t)(b->n - i) * sizeof *b->at);
    b->at[i] = at;
    b->n++;
}

static void add_layout(breaks *axes, const clv_layout *layout)
{
    for (int i = 0; i < layout->begin[layout->rank + 1]; i++) {
        clv_subaxis sub = layout->axes[i];
        add_break(&axes[sub.axis], sub.pre);
        add_break(&axes[sub.axis], (int64_t)sub.pre * sub.size);
        axes[sub.axis].used = true;
    }
}

/* Whether a layout at hand or a target has the atom: the rest of an axis that is used in part is as idle as a whole axis
 * that is not. */
static bool in_use(const clv_problem *p, clv_subaxis atom)
{
    for (int i = 0; i < p->op->n_in; i++)
        for (int k = 0; k < p->n_available[i]; k++)
            if (clv_layout_uses(&p->available[i][k], atom))
                return true;
    for (int o = 0; o < p->op->n_out; o++)
        if (p->wanted[o] && clv_layout_uses(&p->target[o], atom))
            return true;
    return false;
}

int clv_strategy_atoms(clv_subaxis *atoms, const clv_problem *p)
{
    breaks axes[CLV_MAX_AXES] = {0};
    for (int i = 0; i < p->op->n_in; i++)
        for (int k = 0; k < p->n_available[i]; k++)
            add_layout(axes, &p->available[i][k]);
    for (int o = 0; o < p->op->n_out; o++)
        if (p->wanted[o])
            add_layout(axes, &p->target[o]);
    int n = 0;
    for (int a = 0; a < p->mesh->n_axes; a++) {
        if (p->mesh->axis[a].size == 1 || (!axes[a].used && !p->idle_axes))
            continue;
        add_break(&axes[a], 1);
        add_break(&axes[a], p->mesh->axis[a].size);
        for (int i = 0; i + 1 < axes[a].n; i++) {
            clv_subaxis atom = {a, (int32_t)axes[a].at[i], (int32_t)(axes[a].at[i + 1] / axes[a].at[i])};
            if (axes[a].at[i + 1] % axes[a].at[i] != 0)
                return -1;
            if (!p->idle_axes && !in_use(p, atom))
                continue;
            if (n == CLV_MAX_ATOMS)
                return -1;
            atoms[n++] = atom;
        }
    }
    return n;
}

/* ---- the price of one assignment ---- */

static double work_seconds(const clv_problem *p, const clv_strategy *s)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    clv_op_cost cost = {0};
    for (int i = 0; i < p->op->n_in; i++)
        if (p->op->in[i] > 0) {
            in[i] = clv_local_type(&p->in[i], &s->in[i]);
            cost.bytes += clv_type_bytes(&in[i]);
        }
    for (int o = 0; o < p->op->n_out; o++) {
        out[o] = clv_local_type(&p->out[o], &s->out[o]);
        cost.bytes += clv_type_bytes(&out[o]);
    }
    if (p->op->def->cost)
        cost = p->op->def->cost(p->op, in, out);
    return clv_cost_compute(p->cost, cost.flops, cost.bytes);
}

/* A change of layout as the search sees it. */
typedef struct price {
    double bytes;
    int moves;
} price;

static clv_status price_change(price *out, const clv_problem *p, const clv_layout *from, const clv_layout *to,
                               const clv_type *type, clv_error *err)
{
    const clv_reshard_plan *plan;
    CLV_TRY(clv_reshard_cached(&plan, p->reshards, from, to, type->shape, type->dtype, err));
    *out = (price){.bytes = plan->bytes};
    for (int i = 0; i < plan->n_steps; i++)
        out->moves += clv_step_moves(plan->steps[i].kind);
    return CLV_OK;
}

static void add_price(clv_strategy *s, const price *change, const clv_problem *p)
{
    s->bytes += change->bytes;
    s->moves += change->moves;
    s->seconds += clv_cost_step(p->cost, change->bytes, change->moves);
}

/* Adds the change from whichever available layout reaches `to` with the fewest bytes, then moves. */
static clv_status add_operand(clv_strategy *s, const clv_problem *p, int i, clv_error *err)
{
    price best = {.bytes = INFINITY};
    for (int k = 0; k < p->n_available[i]; k++) {
        price change;
        CLV_TRY(price_change(&change, p, &p->available[i][k], &s->in[i], &p->in[i], err));
        if (change.bytes < best.bytes || (change.bytes == best.bytes && change.moves < best.moves)) {
            best = change;
            s->source[i] = k;
        }
    }
    add_price(s, &best, p);
    return CLV_OK;
}

/* The dimension that an atom cuts; -1: none. */
static int dim_of(const clv_layout *layout, clv_subaxis atom)
{
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int i = 0; i < n; i++)
            if (clv_subaxis_overlap(axes[i], atom))
                return d;
    }
    return -1;
}

bool clv_strategy_refuse(const clv_problem *p, clv_refusal why)
{
    if (p->refusal)
        *p->refusal = why;
    return false;
}

/* Whether operands that are to stay in place do. */
static bool keeps_in_place(const clv_strategy *s, const clv_problem *p)
{
    for (int i = 0; i < p->op->n_in; i++)
        for (int a = 0; p->kept[i] && a < s->n_atoms; a++)
            if ((p->kept[i] >> s->atom[a].axis & 1) &&
                dim_of(&s->in[i], s->atom[a]) != dim_of(&p->available[i][0], s->atom[a]))
                return clv_strategy_refuse(
                    p, (clv_refusal){.kind = CLV_REFUSED_KEPT, .operand = i, .axis = s->atom[a], .factor = -1});
    return true;
}

clv_status clv_strategy_price(clv_strategy *s, bool *legal, const clv_problem *p, const clv_split_context *context,
                              bool keep, clv_error *err)
{
    clv_splits splits;
    *legal = clv_splits_make(&splits, p, context, s->atom, s->choice, s->n_atoms);
    for (int i = 0; *legal && i < p->op->n_in; i++)
        *legal = p->op->in[i] == 0 || clv_split_operand(&s->in[i], p, &splits, i);
    for (int o = 0; *legal && o < p->op->n_out; o++)
        *legal = clv_split_result(&s->out[o], p, &splits, o);
    *legal = *legal && (!keep || keeps_in_place(s, p));
    if (!*legal)
        return CLV_OK;
    s->bytes = 0;
    s->moves = 0;
    s->seconds = s->work_seconds = work_seconds(p, s);
    for (int i = 0; i < p->op->n_in; i++) {
        s->source[i] = -1;
        if (p->op->in[i] > 0)
            CLV_TRY(add_operand(s, p, i, err));
    }
    for (int o = 0; o < p->op->n_out; o++) {
        clv_layout whole = clv_layout_without_partial(&s->out[o]);
        price change;
        CLV_TRY(price_change(&change, p, &s->out[o], p->wanted[o] ? &p->target[o] : &whole, &p->out[o], err));
        if (clv_layout_is_partial(&s->out[o]))
            change.bytes /= p->fan_in[o];
        add_price(s, &change, p);
    }
    return CLV_OK;
}

/* Relative slack within which two prices are equal, so that rounding never decides. */
static int compare(double a, double b)
{
    double slack = 1e-9 * (fabs(a) + fabs(b));
    return a < b - slack ? -1 : a > b + slack;
}

static bool better(const clv_strategy *a, const clv_strategy *b, bool by_bytes)
{
    if (!by_bytes && compare(a->seconds, b->seconds) != 0)
        return a->seconds < b->seconds;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    if (compare(a->work_seconds, b->work_seconds) != 0)
        return a->work_seconds < b->work_seconds;
    return a->moves < b->moves;
}

/* ---- search ---- */

typedef struct search {
    const clv_problem *problem;
    clv_split_context context;
    clv_strategy best, trial;
    bool found;
    bool keep; /* operands stay in place where that is asked for */
} search;

static clv_status try_trial(search *s, clv_error *err)
{
    bool legal;
    CLV_TRY(clv_strategy_price(&s->trial, &legal, s->problem, &s->context, s->keep, err));
    if (!legal || (s->found && !better(&s->trial, &s->best, s->problem->by_bytes)))
        return CLV_OK;
    s->best = s->trial;
    s->found = true;
    return CLV_OK;
}

static bool some_partial(const clv_problem *p)
{
    for (int i = 0; i < p->op->n_in; i++)
        for (int k = 0; k < p->n_available[i]; k++)
            if (clv_layout_is_partial(&p->available[i][k]))
                return true;
    return false;
}

/* The blocks that a factor takes, with what spills over. */
static int64_t cuttable_size(const clv_rule *rule, int f)
{
    int spill = rule->factor[f].spill;
    return rule->factor[f].size * (spill < 0 ? 1 : rule->factor[spill].size);
}

/* Pass, none, each factor that can be split. Equal prices go to the first, so that partial values stay partial for as long
 * as that costs nothing. */
int clv_strategy_choices(int8_t *choices, const clv_problem *p)
{
    int n = 0;
    if (some_partial(p) && (p->rule.linearity != CLV_NOT_LINEAR || p->rule.passes_max))
        choices[n++] = CLV_CHOICE_PARTIAL;
    choices[n++] = CLV_CHOICE_NONE;
    for (int f = 0; f < p->rule.n_factors; f++)
        if (!p->rule.factor[f].whole && cuttable_size(&p->rule, f) > 1)
            choices[n++] = (int8_t)f;
    return n;
}

static clv_status try_all(search *s, const int8_t *choices, int n_choices, clv_error *err)
{
    int digit[CLV_MAX_ATOMS] = {0};
    for (;;) {
        for (int a = 0; a < s->trial.n_atoms; a++)
            s->trial.choice[a] = choices[digit[a]];
        CLV_TRY(try_trial(s, err));
        int a = s->trial.n_atoms - 1;
        while (a >= 0 && ++digit[a] == n_choices)
            digit[a--] = 0;
        if (a < 0)
            return CLV_OK;
    }
}

/* One atom at a time from "none", twice round: for meshes with many axes. */
static clv_status try_in_turn(search *s, const int8_t *choices, int n_choices, clv_error *err)
{
    memset(s->trial.choice, CLV_CHOICE_NONE, sizeof s->trial.choice);
    CLV_TRY(try_trial(s, err));
    for (int round = 0; round < 2; round++)
        for (int a = 0; a < s->trial.n_atoms; a++)
            for (int c = 0; c < n_choices; c++) {
                memcpy(s->trial.choice, s->best.choice, sizeof s->trial.choice);
                s->trial.choice[a] = choices[c];
                CLV_TRY(try_trial(s, err));
            }
    return CLV_OK;
}

clv_status clv_strategy_choose(clv_strategy *out, const clv_problem *problem, clv_error *err)
{
    search s = {.problem = problem};
    s.trial.n_atoms = clv_strategy_atoms(s.trial.atom, problem);
    if (s.trial.n_atoms < 0)
        return clv_fail(err, CLV_ELIMIT, "%s: its operands split mesh axes into more than %d parts", problem->op->name,
                        CLV_MAX_ATOMS);
    clv_split_context_make(&s.context, problem, s.trial.atom, s.trial.n_atoms);
    int8_t choices[CLV_MAX_FACTORS + 2];
    int n_choices = clv_strategy_choices(choices, problem);
    double all = pow(n_choices, s.trial.n_atoms);
    for (s.keep = true; !s.found; s.keep = false) {
        CLV_TRY(all <= MAX_EXHAUSTIVE ? try_all(&s, choices, n_choices, err)
                                      : try_in_turn(&s, choices, n_choices, err));
        if (!s.keep)
            break;
    }
    if (!s.found)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: no layout of its operands is legal", problem->op->name);
    *out = s.best;
    return CLV_OK;
}

int clv_strategy_print(char *out, size_t size, const clv_strategy *s, const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    for (int a = 0; a < s->n_atoms; a++) {
        if (s->choice[a] == CLV_CHOICE_NONE)
            continue;
        clv_text_add(&text, "%s", text.length ? ", " : "");
        clv_text_add_subaxis(&text, s->atom[a], mesh);
        if (s->choice[a] == CLV_CHOICE_PARTIAL)
            clv_text_add(&text, " passes partial");
        else
            clv_text_add(&text, "->factor %d", s->choice[a]);
    }
    if (text.length == 0)
        clv_text_add(&text, "repeated on every rank");
    return clv_text_end(&text);
}
