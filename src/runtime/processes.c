/* processes.c - what the processes of a session say to each other beside steps: what each has, and that one has failed.
 * A session whose ranks are all here says nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/flight.h"

static bool is_alone(const clv_session *session)
{
    return session->here == session->n_ranks;
}

clv_status clv_session_end_call(const clv_session *session, const char *call, clv_status status, const clv_error *why,
                                clv_error *err)
{
    if (status == CLV_OK)
        return CLV_OK;
    if (!is_alone(session) && !clv_session_failed(session)) {
        clv_error told = {.code = CLV_EPEER, .rank = why->rank >= 0 ? why->rank : session->first};
        snprintf(told.op, sizeof told.op, "%s", why->op[0] ? why->op : call);
        snprintf(told.message, sizeof told.message, "%s failed in the process of rank %d alone: %.400s", call,
                 session->first, why->message);
        clv_world_fail(clv_team_world(session->team), &told);
    }
    clv_world_pass_on(clv_team_world(session->team));
    clv_flight_note_failure(session, why);
    if (err && why->code != CLV_OK)
        *err = *why;
    return status;
}

/* Of rank r: its row of [n_ranks, n]. Of the first rank of each process: all. */
static void lay_out_rows(clv_shard *rows, clv_shard *all, const clv_session *session, int n)
{
    for (int r = 0; r < session->n_ranks; r++) {
        rows[r] = (clv_shard){.rank = 2, .lo = {r}, .hi = {r + 1, n}};
        all[r] = (clv_shard){.rank = 2};
        if (clv_world_leads(clv_team_world(session->team), r))
            all[r] = (clv_shard){.rank = 2, .hi = {session->n_ranks, n}};
    }
}

clv_status clv_session_gather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                              clv_error *err)
{
    size_t ranks = (size_t)session->n_ranks, here = (size_t)session->here, words = (size_t)n;
    if (clv_session_failed(session))
        return clv_team_run(session->team, NULL, NULL, err);
    clv_shard *shards = calloc(2 * ranks, sizeof *shards);
    void **data = calloc(2 * here, sizeof *data);
    int64_t *memory = calloc((ranks + 1) * words, sizeof *memory); /* mine, then all; a late rank may be in it */
    clv_status status = shards && data && memory ? CLV_OK : clv_fail_memory(err, what, 2 * ranks * sizeof *shards);
    if (status == CLV_OK) {
        memcpy(memory, mine, words * sizeof *mine);
        lay_out_rows(shards, shards + ranks, session, n);
        for (size_t i = 0; i < here; i++) {
            data[i] = memory;
            data[here + i] = memory + words;
        }
        const clv_exchange x = {.what = what,
                                .tag = words,
                                .dtype = CLV_I64,
                                .in = shards,
                                .out = shards + ranks,
                                .in_data = data,
                                .out_data = data + here};
        status = clv_session_exchange(session, &x, err);
    }
    if (status == CLV_OK)
        memcpy(all, memory + words, ranks * words * sizeof *all);
    if (clv_session_failed(session) && !session->leftovers->scratch)
        session->leftovers->scratch = memory;
    else
        free(memory);
    free(shards);
    free(data);
    return status;
}

/* ---- what all say alike ---- */

/* What most ranks say, the lowest one's of those where as many say another; word by word, n apart. */
static int64_t most_common(const int64_t *says, int ranks, int n)
{
    int most = 0, best = 0;
    for (int i = 0; i < ranks; i++) {
        int same = 0;
        for (int k = 0; k < ranks; k++)
            same += says[k * n] == says[i * n];
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return says[best * n];
}

/* All processes find this at once: the session has failed in each, and by the same words. */
static clv_status fail_other(const clv_session *session, const char *call, const char *is, const int64_t *says, int n,
                             clv_error *err)
{
    int64_t common = most_common(says, session->n_ranks, n);
    char ranks[160] = "";
    size_t used = 0;
    int first = -1, others = 0;
    clv_error error = {0};
    for (int r = 0; r < session->n_ranks; r++) {
        if (says[r * n] == common)
            continue;
        if (used < sizeof ranks - 1)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", others ? ", " : "", r);
        first = others++ ? first : r;
    }
    (void)clv_fail_at(&error, CLV_EPEER, first, call, "rank%s %s: another %s", others > 1 ? "s" : "", ranks, is);
    clv_world_fail(clv_team_world(session->team), &error);
    if (err)
        *err = error;
    return CLV_EPEER;
}

clv_status clv_session_compare(const clv_session *session, const char *call, const char *what, const clv_alike *mine,
                               int n, clv_error *err)
{
    enum { MOST = 4 };
    int64_t words[MOST];
    int ranks = session->n_ranks;
    if (is_alone(session))
        return CLV_OK;
    for (int i = 0; i < n && i < MOST; i++)
        words[i] = mine[i].word;
    int64_t *all = calloc((size_t)ranks * (size_t)n, sizeof *all);
    if (!all)
        return clv_fail_memory(err, what, (size_t)ranks * (size_t)n * sizeof *all);
    clv_status status = clv_session_gather(session, what, words, n, all, err);
    for (int i = 0; i < n; i++)
        for (int r = 1; status == CLV_OK && r < ranks; r++)
            if (all[r * n + i] != all[i])
                status = fail_other(session, call, mine[i].is, all + i, n, err);
    free(all);
    return status;
}

clv_status clv_session_compare_programs(const clv_session *session, uint64_t digest, clv_error *err)
{
    const clv_alike mine[] = {
        {(int64_t)digest,
         "program than that of the other ranks: tensors, layouts, steps, ops or their attributes differ; valid: the "
         "same graph, compiled with the same options in every process"},
        {(int64_t)session->seed, "seed of first values than that of the other ranks; valid: the same "
                                 "clv_session_options.seed in every process"}};
    return clv_session_compare(session, "clv_session_load", "a comparison of programs", mine, 2, err);
}
