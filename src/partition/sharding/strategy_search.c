/* strategy_search.c - branch and bound for the cheapest sharding strategy of one op (clv_strategy_choose).
 *
 * In: the strategy problem of an op. Out: the strategy that enumeration of all assignments in order would find. No
 * reshard is planned before the bounds of work and bytes (strategy_cost_bound.h) say that it may matter.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/sharding/strategy_cost_bound.h"

/* With uniform links bounds are tight, and few leaves are planned. With two links they are loose: if there are more
 * than FEW assignments, only the MAX_LEAVES most promising ones are planned. */
enum { FEW = 512, MAX_LEAVES = 64 };

typedef struct search {
    const clv_strategy_space *space;
    clv_cost_bound bound;
    clv_strategy trial;
    int8_t choice_index[CLV_MAX_SUBAXES],
        best_choice_index[CLV_MAX_SUBAXES]; /* choices of trial and best, as indices into the space's lists */
    clv_strategy *best;
    bool *found;
    bool own;   /* best is of this space */
    int leaves; /* number that may still be planned, once something is found */
    clv_strategy_cost best_cost;
} search;

static clv_strategy_cost sum(clv_strategy_cost a, clv_strategy_cost b)
{
    return (clv_strategy_cost){a.seconds + b.seconds, a.bytes + b.bytes, a.work_seconds + b.work_seconds,
                               a.moves + b.moves};
}

/* Whether an assignment of cost `least` or more that begins with the trial's first n choices may be the best: it is
 * cheaper, or as cheap and earlier in order. */
static bool may_win(const search *s, const clv_strategy_cost *least, int n)
{
    if (!*s->found)
        return true;
    int order = clv_strategy_cost_compare(least, &s->best_cost, s->space->problem->by_bytes);
    return order < 0 || (order == 0 && s->own && memcmp(s->choice_index, s->best_choice_index, (size_t)n) <= 0);
}

static void take_trial(search *s)
{
    *s->best = s->trial;
    *s->found = s->own = true;
    s->best_cost = clv_strategy_cost_of(&s->trial);
    memcpy(s->best_choice_index, s->choice_index, sizeof s->choice_index);
}

static clv_strategy_cost bound_of_prefix(search *s, int n)
{
    clv_strategy_cost cost = clv_cost_bound_work(&s->bound, s->trial.choice, n);
    for (int t = 0; t < s->bound.n_terms; t++)
        cost = sum(cost, clv_cost_bound_reshard(&s->bound, t, s->trial.choice, n));
    return cost;
}

/* Whether the trial may win, given its cost up to term t and bounds of the other terms. */
static bool leaf_may_win(const search *s, clv_strategy_cost cost, const clv_strategy_cost *least, int t)
{
    for (; t < s->bound.n_terms; t++)
        cost = sum(cost, least[t]);
    return may_win(s, &cost, s->space->n_subaxes);
}

/* Computes the cost of a complete assignment in stages, from bounds to exact counts, layouts and reshard plans, until
 * it is clear that it does not win. */
static clv_status evaluate_leaf(search *s, clv_error *err)
{
    const clv_strategy_problem *p = s->space->problem;
    clv_cost_bound *bound = &s->bound;
    clv_strategy_cost least[CLV_MAX_IN + CLV_MAX_OUT],
        work = clv_cost_bound_work(bound, s->trial.choice, s->space->n_subaxes);
    for (int t = 0; t < bound->n_terms; t++)
        least[t] = clv_cost_bound_reshard(bound, t, s->trial.choice, s->space->n_subaxes);
    s->leaves--;
    for (int t = bound->n_terms - 1; leaf_may_win(s, work, least, 0) && t >= 0; t--) /* results tell most */
        least[t] = clv_cost_bound_exact_reshard(bound, t, s->trial.choice);
    if (!leaf_may_win(s, work, least, 0) ||
        !clv_strategy_fill_layouts(&s->trial, p, &s->space->context, s->space->keep_stationary))
        return CLV_OK;
    for (int t = 0; t < bound->n_terms; t++) {
        if (!leaf_may_win(s, clv_strategy_cost_of(&s->trial), least, t))
            return CLV_OK;
        int id = bound->term[t].id;
        CLV_TRY(bound->term[t].result ? clv_strategy_add_result_reshard(&s->trial, p, id, err)
                                      : clv_strategy_add_operand_reshard(&s->trial, p, id, err));
    }
    if (leaf_may_win(s, clv_strategy_cost_of(&s->trial), least, bound->n_terms))
        take_trial(s);
    return CLV_OK;
}

typedef struct branch {
    int8_t choice_index;
    clv_strategy_cost least;
} branch;

/* Lists the choices for a sub-axis that may win, the most promising first. @return their number */
static int list_branches(branch *branches, search *s, int subaxis)
{
    int n = 0;
    for (int c = 0; c < s->space->n_choices[subaxis]; c++) {
        branch b = {.choice_index = (int8_t)c};
        s->choice_index[subaxis] = (int8_t)c;
        s->trial.choice[subaxis] = s->space->choice[subaxis][c];
        b.least = bound_of_prefix(s, subaxis + 1);
        if (!may_win(s, &b.least, subaxis + 1))
            continue;
        int i = n++;
        for (; i > 0 && clv_strategy_cost_compare(&b.least, &branches[i - 1].least, s->space->problem->by_bytes) < 0;
             i--)
            branches[i] = branches[i - 1];
        branches[i] = b;
    }
    return n;
}

static clv_status branch_on_subaxis(search *s, int subaxis, clv_error *err)
{
    branch branches[CLV_MAX_FACTORS + 2];
    if (*s->found && s->leaves <= 0)
        return CLV_OK;
    if (subaxis == s->space->n_subaxes)
        return evaluate_leaf(s, err);
    int n = list_branches(branches, s, subaxis);
    for (int i = 0; i < n; i++) {
        s->choice_index[subaxis] = branches[i].choice_index;
        s->trial.choice[subaxis] = s->space->choice[subaxis][branches[i].choice_index];
        if (may_win(s, &branches[i].least, subaxis + 1))
            CLV_TRY(branch_on_subaxis(s, subaxis + 1, err));
    }
    return CLV_OK;
}

static int max_leaves(const clv_strategy_space *space)
{
    double all = 1;
    for (int a = 0; a < space->n_subaxes; a++)
        all *= space->n_choices[a];
    return space->problem->cost->uniform_links || all <= FEW ? INT_MAX : MAX_LEAVES;
}

static search *begin(clv_strategy *best, bool *found, const clv_strategy_space *space)
{
    search *s = calloc(1, sizeof *s); /* too large for a thread's stack */
    if (s == NULL)
        return NULL;
    s->space = space;
    s->best = best;
    s->found = found;
    s->leaves = max_leaves(space);
    s->trial.n_subaxes = space->n_subaxes;
    memcpy(s->trial.subaxis, space->subaxis, sizeof space->subaxis);
    if (*found)
        s->best_cost = clv_strategy_cost_of(best);
    return s;
}

/* Replaces *best if the space has a cheaper strategy, or if *found is false and it has a legal one. */
static clv_status search_space(clv_strategy *best, bool *found, const clv_strategy_space *space, clv_error *err)
{
    search *s = begin(best, found, space);
    if (s == NULL)
        return clv_fail_memory(err, "a strategy", sizeof *s);
    clv_status status = clv_cost_bound_make(&s->bound, space, err);
    if (status == CLV_OK) {
        status = branch_on_subaxis(s, 0, err);
        clv_cost_bound_free(&s->bound);
    }
    free(s);
    return status;
}

/* ---- the spaces of a problem ---- */

/* Whether stationary operands can stay in place with this choice for the sub-axis. */
static bool may_stay_in_place(const clv_strategy_problem *p, clv_subaxis subaxis, int choice)
{
    if (choice >= 0 && p->rule.factor[choice].overflow >= 0)
        return true;
    for (int i = 0; i < p->op->n_in; i++) {
        if (!(p->stationary_axes[i] >> subaxis.axis & 1u))
            continue;
        int made = clv_strategy_dim_of(p->available[i][0], subaxis);
        bool partial = choice == CLV_CHOICE_PARTIAL && made == p->in[i].rank;
        if (!partial && clv_projection_dim_of_factor(p->rule.in[i], p->in[i].rank, choice) != made)
            return false;
    }
    return true;
}

static bool may_choose(const clv_strategy_space *space, clv_subaxis subaxis, int choice)
{
    return (choice != CLV_CHOICE_PARTIAL || clv_projection_may_stay_partial(space->problem, subaxis)) &&
           (!space->keep_stationary || may_stay_in_place(space->problem, subaxis, choice));
}

static void list_space(clv_strategy_space *space, const clv_strategy_problem *p, bool keep)
{
    int8_t choices[CLV_MAX_FACTORS + 2];
    int n = clv_strategy_list_choices(choices, p);
    space->problem = p;
    space->keep_stationary = keep;
    clv_projection_context_make(&space->context, p, space->subaxis, space->n_subaxes);
    for (int a = 0; a < space->n_subaxes; a++) {
        space->n_choices[a] = 0;
        for (int c = 0; c < n; c++)
            if (may_choose(space, space->subaxis[a], choices[c]))
                space->choice[a][space->n_choices[a]++] = choices[c];
    }
}

clv_status clv_strategy_choose(clv_strategy *out, const clv_strategy_problem *problem, clv_error *err)
{
    clv_strategy_space space;
    bool found = false;
    for (int keep = 1; keep >= 0 && !found; keep--)
        for (int d = 0; (space.n_subaxes = clv_strategy_list_subaxes(space.subaxis, problem, d)) >= 0; d++) {
            list_space(&space, problem, keep);
            CLV_TRY(search_space(out, &found, &space, err));
        }
    if (!found)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: no layout of its operands is legal", problem->op->name);
    return CLV_OK;
}
