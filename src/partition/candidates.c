#include "partition/candidates.h"

#include "base/error.h"
#include "partition/split.h"

enum { MOST_CANDIDATES = 4096, MOST_CHOICES = 2 * CLV_MAX_FACTORS + 2 };

typedef struct walk {
    clv_problem problem; /* a copy, which tells refusals */
    clv_refusal refusal;
    clv_split_context context;
    const clv_strategy *chosen;
    clv_strategy trial;
    int n_choices;
    int8_t choices[MOST_CHOICES];
    int most_changes; /* atoms in which a candidate differs from the chosen one */
    clv_candidate_visit *visit;
    void *arg;
} walk;

/* What the search considers, and factors that must be whole: that they must is worth saying. */
static void list_choices(walk *w)
{
    const clv_rule *rule = &w->problem.rule;
    w->n_choices = clv_strategy_choices(w->choices, &w->problem);
    for (int f = 0; f < rule->n_factors; f++)
        if (rule->factor[f].whole && rule->factor[f].size > 1)
            w->choices[w->n_choices++] = (int8_t)f;
}

/* As many changes as give no more than MOST_CANDIDATES: the sum over k of C(atoms, k) (choices - 1)^k; one at least. */
static int changes_that_fit(int n_atoms, int n_choices)
{
    double sum = 1, term = 1;
    for (int k = 1; k <= n_atoms; k++) {
        term *= (double)(n_atoms - k + 1) / k * (n_choices - 1);
        sum += term;
        if (k > 1 && sum > MOST_CANDIDATES)
            return k - 1;
    }
    return n_atoms;
}

static clv_status visit_trial(walk *w, clv_error *err)
{
    bool legal;
    w->refusal = (clv_refusal){.kind = CLV_REFUSED_NOT, .factor = -1, .operand = -1};
    CLV_TRY(clv_strategy_price(&w->trial, &legal, &w->problem, &w->context, true, err));
    clv_refusal refusal = w->refusal;
    if (refusal.kind == CLV_REFUSED_KEPT)
        CLV_TRY(clv_strategy_price(&w->trial, &legal, &w->problem, &w->context, false, err));
    return w->visit(w->arg, &w->trial, &refusal, err);
}

static clv_status vary(walk *w, int atom, int changes, clv_error *err)
{
    if (atom == w->trial.n_atoms)
        return visit_trial(w, err);
    for (int c = 0; c < w->n_choices; c++) {
        int changed = changes + (w->choices[c] != w->chosen->choice[atom]);
        w->trial.choice[atom] = w->choices[c];
        if (changed <= w->most_changes)
            CLV_TRY(vary(w, atom + 1, changed, err));
    }
    return CLV_OK;
}

clv_status clv_candidates_visit(const clv_problem *problem, const clv_strategy *chosen, clv_candidate_visit *visit,
                                void *arg, clv_error *err)
{
    walk w = {.problem = *problem, .chosen = chosen, .trial = *chosen, .visit = visit, .arg = arg};
    w.problem.refusal = &w.refusal;
    clv_split_context_make(&w.context, &w.problem, w.trial.atom, w.trial.n_atoms);
    list_choices(&w);
    w.most_changes = changes_that_fit(w.trial.n_atoms, w.n_choices);
    return vary(&w, 0, 0, err);
}
