/* search_candidates.c - compiles the candidates of a plan search and times them on this machine. */
#include "cli/bench/search_candidates.h"

#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench_session.h"
#include "cli/output/progress.h"
#include "cli/timing/clock.h"

/* ---- the programs ---- */

static bool same_plan(const clv_plan_candidate *a, const clv_plan_candidate *b)
{
    return a->mesh == b->mesh && a->rules == b->rules && a->accumulate == b->accumulate &&
           a->recompute == b->recompute && a->reshard_after_forward == b->reshard_after_forward;
}

static bool is_listed(const clv_timed_candidates *all, const clv_plan_candidate *c)
{
    for (int i = 0; i < all->n; i++) {
        const clv_plan_candidate *other = &all->item[i].plan;
        if (same_plan(other, c) ||
            (other->rules == c->rules && other->seconds == c->seconds && other->memory == c->memory))
            return true;
    }
    return false;
}

static clv_status vocabulary(int64_t *out, const clv_plan_options *base, clv_error *err)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    *out = 1;
    if (!base->model)
        return CLV_OK;
    CLV_TRY(clv_model_open(&model, base->model,
                           &(clv_model_options){.size = sizeof(clv_model_options), .config_only = 1}, err));
    clv_status status = clv_model_get_info(model, &info, err);
    clv_model_close(model);
    *out = info.vocab;
    return status;
}

static clv_status add(clv_timed_candidates *all, const clv_plan_candidate *c, const clv_plan_options *base,
                      int64_t vocab, clv_error *err)
{
    clv_prediction predicted = {.size = sizeof predicted};
    clv_timed_candidate *t = &all->item[all->n++];
    clv_plan_options o = *base;
    t->plan = *c;
    o.mesh = c->mesh;
    o.rules = c->rules;
    o.accumulate = c->accumulate;
    o.compile.recompute = c->recompute;
    o.compile.reshard_after_forward = c->reshard_after_forward;
    CLV_TRY(clv_plan_compile(&t->program, &o, err));
    CLV_TRY(clv_program_predict(t->program, base->compile.machine, &predicted, err));
    t->predicted = predicted.seconds;
    return clv_made_up_inputs_make(&t->inputs, t->program, base, vocab, err);
}

clv_status clv_timed_candidates_make(clv_timed_candidates *out, const clv_plan_search *found,
                                     const clv_plan_options *base, clv_error *err)
{
    const int n = clv_plan_search_priced_count(found);
    clv_plan_candidate c = {.size = sizeof c};
    int64_t vocab;
    CLV_TRY(vocabulary(&vocab, base, err));
    out->item = calloc((size_t)n + 1, sizeof *out->item);
    if (!out->item)
        return clv_fail_memory(err, "candidates", (size_t)n * sizeof *out->item);
    CLV_TRY(clv_plan_search_at(found, 0, &c, err));
    CLV_TRY(add(out, &c, base, vocab, err));
    for (int i = 0; i < n; i++) {
        CLV_TRY(clv_plan_search_priced_at(found, i, &c, err));
        if (c.fits && !is_listed(out, &c))
            CLV_TRY(add(out, &c, base, vocab, err));
    }
    return CLV_OK;
}

void clv_timed_candidates_free(clv_timed_candidates *all)
{
    for (int i = 0; i < all->n; i++) {
        clv_made_up_inputs_free(&all->item[i].inputs);
        clv_program_free(all->item[i].program);
        free(all->item[i].seconds);
    }
    free(all->item);
}

/* ---- their times ---- */

enum { ROUNDS = 3, WARM_UPS = 2 };

static clv_status time_run(double *seconds, const clv_timed_candidate *c, clv_session *session, clv_error *err)
{
    clv_session_stats stats = {.size = sizeof stats};
    CLV_TRY(clv_session_run(session, c->program, c->inputs.binding, c->inputs.n, NULL, 0, err));
    CLV_TRY(clv_session_take_stats(session, &stats, err));
    *seconds = stats.seconds;
    return CLV_OK;
}

/* Runs from `first` to before `end`, in a session of their own: a program leaves memory in other states and places than
 * the next one would find alone. */
static clv_status time_round(clv_timed_candidate *c, int64_t first, int64_t end, const clv_comm_option *comm,
                             clv_error *err)
{
    clv_session *session;
    double ignored;
    CLV_TRY(clv_bench_session_new(&session, clv_program_mesh(c->program), (clv_session_options){.seed = 1}, comm, err));
    clv_status status = CLV_OK;
    for (int64_t i = first - WARM_UPS; status == CLV_OK && i < end; i++)
        status = time_run(i < first ? &ignored : &c->seconds[i], c, session, err);
    clv_session_free(session);
    return status;
}

static clv_status time_rounds(clv_timed_candidates *all, int64_t runs, const clv_comm_option *comm,
                              clv_progress *progress, clv_error *err)
{
    int64_t first = 0, rounds = runs < ROUNDS ? runs : ROUNDS;
    for (int64_t round = 0; round < rounds; round++) {
        int64_t end = runs * (round + 1) / rounds;
        for (int i = 0; i < all->n; i++) {
            CLV_TRY(time_round(&all->item[i], first, end, comm, err));
            clv_progress_update(progress, round * all->n + i + 1, "");
        }
        first = end;
    }
    return CLV_OK;
}

clv_status clv_timed_candidates_measure(clv_timed_candidates *all, int64_t runs, const clv_comm_option *comm,
                                        clv_error *err)
{
    clv_progress progress;
    for (int i = 0; i < all->n; i++) {
        all->item[i].seconds = calloc((size_t)runs, sizeof *all->item[i].seconds);
        if (!all->item[i].seconds)
            return clv_fail_memory(err, "timings", (size_t)runs * sizeof(double));
    }
    clv_progress_begin(&progress, "search", (int64_t)all->n * (runs < ROUNDS ? runs : ROUNDS));
    clv_status status = time_rounds(all, runs, comm, &progress, err);
    clv_progress_end(&progress);
    for (int i = 0; status == CLV_OK && i < all->n; i++) {
        clv_times_sort(all->item[i].seconds, runs);
        all->item[i].measured = all->item[i].seconds[0];
    }
    return status;
}
