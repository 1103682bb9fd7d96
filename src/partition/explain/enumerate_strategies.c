/* enumerate_strategies.c - lists an op's possible sharding strategies one by one, for explain. */
#include "partition/explain/enumerate_strategies.h"

#include "base/error.h"
#include "partition/sharding/sharding_projection.h"

enum { MOST_CANDIDATES = 4096, MOST_CHOICES = 2 * CLV_MAX_FACTORS + 2 };

typedef struct walk {
    clv_strategy_problem problem; /* a copy, which tells refusals */
    clv_refusal refusal;
    clv_projection_context context;
    const clv_strategy *chosen;
    clv_strategy trial;
    int n_choices;
    int8_t choices[MOST_CHOICES];
    int most_changes; /* subaxes in which a candidate differs from the chosen one */
    clv_strategy_visitor *visit;
    void *arg;
} walk;

/* What the search considers, and factors that must be whole: that they must is worth saying. */
static void list_choices(walk *w)
{
    const clv_rule *rule = &w->problem.rule;
    w->n_choices = clv_strategy_list_choices(w->choices, &w->problem);
    for (int f = 0; f < rule->n_factors; f++)
        if (rule->factor[f].whole && rule->factor[f].size > 1)
            w->choices[w->n_choices++] = (int8_t)f;
}

/* As many changes as give no more than MOST_CANDIDATES: the sum over k of C(subaxes, k) (choices - 1)^k; one at least.
 * */
static int changes_that_fit(int n_subaxes, int n_choices)
{
    double sum = 1, term = 1;
    for (int k = 1; k <= n_subaxes; k++) {
        term *= (double)(n_subaxes - k + 1) / k * (n_choices - 1);
        sum += term;
        if (k > 1 && sum > MOST_CANDIDATES)
            return k - 1;
    }
    return n_subaxes;
}

static clv_status visit_trial(walk *w, clv_error *err)
{
    bool legal;
    w->refusal = (clv_refusal){.kind = CLV_REFUSED_NONE, .factor = -1, .operand = -1};
    CLV_TRY(clv_strategy_fill_cost(&w->trial, &legal, &w->problem, &w->context, true, err));
    clv_refusal refusal = w->refusal;
    if (refusal.kind == CLV_REFUSED_STATIONARY)
        CLV_TRY(clv_strategy_fill_cost(&w->trial, &legal, &w->problem, &w->context, false, err));
    return w->visit(w->arg, &w->trial, &refusal, err);
}

static clv_status vary(walk *w, int subaxis, int changes, clv_error *err)
{
    if (subaxis == w->trial.n_subaxes)
        return visit_trial(w, err);
    for (int c = 0; c < w->n_choices; c++) {
        int changed = changes + (w->choices[c] != w->chosen->choice[subaxis]);
        w->trial.choice[subaxis] = w->choices[c];
        if (changed <= w->most_changes)
            CLV_TRY(vary(w, subaxis + 1, changed, err));
    }
    return CLV_OK;
}

clv_status clv_strategy_enumerate(const clv_strategy_problem *problem, const clv_strategy *chosen,
                                  clv_strategy_visitor *visit, void *arg, clv_error *err)
{
    walk w = {.problem = *problem, .chosen = chosen, .trial = *chosen, .visit = visit, .arg = arg};
    w.problem.refusal = &w.refusal;
    clv_projection_context_make(&w.context, &w.problem, w.trial.subaxis, w.trial.n_subaxes);
    list_choices(&w);
    w.most_changes = changes_that_fit(w.trial.n_subaxes, w.n_choices);
    return vary(&w, 0, 0, err);
}
