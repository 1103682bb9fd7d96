/* exchange.c - what is moved between ranks outside of programs: state to another layout, and what the caller asks for. */
#include <stdlib.h>

#include "base/error.h"
#include "runtime/session.h"

typedef struct exchange_job {
    const clv_transport *transport;
    clv_plan **plans; /* [n_ranks] */
    void **staging;   /* [n_ranks] */
    const char *what;
} exchange_job;

static clv_status exchange_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const exchange_job *job = arg;
    clv_comm_note(comm, job->what);
    CLV_TRY(job->transport->start(job->plans[rank], job->staging[rank], err));
    CLV_TRY(job->transport->wait(job->plans[rank], CLV_WAIT_OUT, err));
    return job->transport->wait(job->plans[rank], CLV_WAIT_IN, err);
}

static void release(clv_leftovers *left, const clv_session *session)
{
    for (int r = 0; r < session->n_ranks; r++) {
        if (left->plans)
            session->transport->release(left->plans[r]);
        if (left->staging)
            free(left->staging[r]);
    }
    free(left->plans);
    free(left->staging);
    free(left->scratch);
}

void clv_session_free_leftovers(clv_session *session)
{
    if (!session->leftovers)
        return;
    release(session->leftovers, session);
    clv_session_free_state(session, &session->leftovers->state);
    free(session->leftovers);
}

bool clv_session_failed(const clv_session *session)
{
    return clv_world_failed(clv_team_world(session->team), NULL);
}

static clv_status prepare_rank(clv_leftovers *job, const clv_session *session, const clv_exchange *x, int rank,
                               clv_error *err)
{
    clv_comm *comm = clv_world_comm(clv_team_world(session->team), rank);
    clv_transfer transfer = {.what = x->what,
                             .group = clv_comm_group(comm, session->everyone),
                             .dtype = x->dtype,
                             .parts = {.n = session->n_ranks, .in = x->in, .out = x->out},
                             .in = x->in_data[rank],
                             .out = x->out_data[rank],
                             .in_window = x->in_window,
                             .out_window = x->out_window};
    int64_t staging = 0;
    CLV_TRY(session->transport->prepare(&job->plans[rank], comm, &transfer, &staging, err));
    if (staging > 0)
        job->staging[rank] = clv_staging_new(staging);
    if (staging > 0 && !job->staging[rank])
        return clv_fail_memory(err, "a rank's staging", (size_t)staging);
    return CLV_OK;
}

clv_status clv_session_exchange(const clv_session *session, const clv_exchange *x, clv_error *err)
{
    size_t n = (size_t)session->n_ranks;
    clv_leftovers mine = {
        .plans = calloc(n, sizeof *mine.plans), .staging = calloc(n, sizeof *mine.staging), .scratch = x->scratch};
    clv_status status = mine.plans && mine.staging ? CLV_OK : clv_fail_memory(err, x->what, n * sizeof *mine.plans);
    for (int r = 0; status == CLV_OK && r < session->n_ranks; r++)
        status = prepare_rank(&mine, session, x, r, err);
    exchange_job job = {session->transport, mine.plans, mine.staging, x->what};
    if (status == CLV_OK)
        status = clv_team_run(session->team, exchange_rank, &job, err);
    if (clv_session_failed(session))
        *session->leftovers = mine;
    else
        release(&mine, session);
    return status;
}

bool clv_session_reaches_all(const clv_session *session)
{
    return session->transport->add_window != NULL;
}

clv_status clv_session_fetch(const clv_session *session, const clv_type *type, const clv_layout *layout,
                             void *const *data, const clv_shard *box, void *out, clv_error *err)
{
    int n = session->n_ranks;
    clv_shard *shards = calloc(2 * (size_t)n, sizeof *shards);
    void **to = calloc((size_t)n, sizeof *to);
    int64_t *scratch = calloc((size_t)n, sizeof *scratch); /* a scalar is taken by all */
    if (!shards || !to || !scratch) {
        free(shards);
        free(to);
        free(scratch);
        return clv_fail_memory(err, "what the caller asked for", 2 * (size_t)n * sizeof *shards);
    }
    for (int r = 0; r < n; r++) {
        shards[r] = clv_layout_shard(layout, &session->mesh, type->shape, r);
        shards[n + r] = *box;
        for (int d = 0; r > 0 && d < box->rank; d++)
            shards[n + r].hi[d] = box->lo[d];
        to[r] = r > 0 ? &scratch[r] : out;
    }
    clv_exchange x = {.what = "what the caller asked for",
                      .dtype = type->dtype,
                      .in = shards,
                      .out = shards + n,
                      .in_data = data,
                      .out_data = to,
                      .scratch = scratch};
    clv_status status = clv_session_exchange(session, &x, err);
    free(shards);
    free(to);
    return status;
}
