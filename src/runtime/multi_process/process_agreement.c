/* process_agreement.c - processes of a session exchange words, check that they match, propagate failures. A session
 * whose ranks are all here says nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/majority_check.h"
#include "runtime/diagnostics/flight_dump.h"
#include "runtime/multi_process/local_ranks.h"

clv_status clv_session_finish_call(const clv_session *session, const char *call, clv_status status,
                                   const clv_error *why, clv_error *err)
{
    if (status == CLV_OK)
        return CLV_OK;
    if (clv_session_is_multi_process(session) && !clv_session_failed(session)) {
        clv_error told = {.code = CLV_EPEER, .rank = why->rank >= 0 ? why->rank : session->first};
        snprintf(told.op, sizeof told.op, "%s", why->op[0] ? why->op : call);
        snprintf(told.message, sizeof told.message, "%s failed in the process of rank %d alone: %.400s", call,
                 session->first, why->message);
        clv_world_fail(clv_rank_threads_world(session->team), &told);
    }
    clv_world_broadcast_failure(clv_rank_threads_world(session->team));
    clv_flight_dump_on_failure(session, why);
    if (err && why->code != CLV_OK)
        *err = *why;
    return status;
}

/* Of the first rank of each process: its row of [n_ranks, n], and all. Others have none. */
static void make_row_boxes(clv_shard *rows, clv_shard *all, const clv_session *session, int n)
{
    for (int r = 0; r < session->n_ranks; r++) {
        rows[r] = all[r] = (clv_shard){.rank = 2};
        if (!clv_session_rank_is_process_leader(session, r))
            continue;
        rows[r] = (clv_shard){.rank = 2, .lo = {r}, .hi = {r + 1, n}};
        all[r] = (clv_shard){.rank = 2, .hi = {session->n_ranks, n}};
    }
}

/* A process said it once, for all of its ranks. */
static void fill_rows_of_all_ranks(int64_t *all, const clv_session *session, const int64_t *said, int n)
{
    size_t bytes = (size_t)n * sizeof *all;
    for (int r = 0; r < session->n_ranks; r++)
        memcpy(all + (size_t)r * (size_t)n,
               clv_session_rank_is_process_leader(session, r) ? said + (size_t)r * (size_t)n
                                                              : all + (size_t)(r - 1) * (size_t)n,
               bytes);
}

clv_status clv_session_allgather_unlocked(const clv_session *session, const char *what, const int64_t *mine, int n,
                                          int64_t *all, clv_error *err)
{
    size_t ranks = (size_t)session->n_ranks, here = (size_t)session->here, words = (size_t)n;
    if (clv_session_failed(session))
        return clv_rank_threads_run(session->team, NULL, NULL, err);
    clv_shard *shards = calloc(2 * ranks, sizeof *shards);
    void **data = calloc(2 * here, sizeof *data);
    int64_t *memory = calloc((ranks + 1) * words, sizeof *memory); /* mine, then all; a late rank may be in it */
    clv_status status = shards && data && memory ? CLV_OK : clv_fail_memory(err, what, 2 * ranks * sizeof *shards);
    if (status == CLV_OK) {
        memcpy(memory, mine, words * sizeof *mine);
        make_row_boxes(shards, shards + ranks, session, n);
        for (size_t i = 0; i < here; i++) {
            data[i] = memory;
            data[here + i] = memory + words;
        }
        const clv_rank_exchange x = {.what = what,
                                     .tag = words,
                                     .dtype = CLV_I64,
                                     .in = shards,
                                     .out = shards + ranks,
                                     .in_data = data,
                                     .out_data = data + here};
        status = clv_session_exchange(session, &x, err);
    }
    if (status == CLV_OK)
        fill_rows_of_all_ranks(all, session, memory + words, n);
    if (clv_session_failed(session) && !session->abandoned->scratch)
        session->abandoned->scratch = memory;
    else
        free(memory);
    free(shards);
    free(data);
    return status;
}

/* ---- what all say alike ---- */

/* All processes find this at once: the session has failed in each, and by the same words. */
static clv_status fail_mismatch(const clv_session *session, const char *call, const char *is,
                                const clv_mismatch *others, clv_error *err)
{
    clv_error error = {0};
    (void)clv_fail_at(&error, CLV_EPEER, others->first, call, "rank%s %s: another %s", others->n > 1 ? "s" : "",
                      others->members, is);
    clv_world_fail(clv_rank_threads_world(session->team), &error);
    if (err)
        *err = error;
    return CLV_EPEER;
}

clv_status clv_session_check_match(const clv_session *session, const char *call, const char *what,
                                   const clv_must_match *mine, int n, clv_error *err)
{
    enum { MOST = 4 };
    int64_t words[MOST];
    int ranks = session->n_ranks;
    if (!clv_session_is_multi_process(session))
        return CLV_OK;
    for (int i = 0; i < n && i < MOST; i++)
        words[i] = mine[i].word;
    size_t all_words = (size_t)ranks * (size_t)n;
    int64_t *all = calloc(all_words + (size_t)ranks, sizeof *all);
    if (!all)
        return clv_fail_memory(err, what, (all_words + (size_t)ranks) * sizeof *all);
    int64_t *says = all + all_words; /* one word of each rank */
    clv_status status = clv_session_allgather_unlocked(session, what, words, n, all, err);
    for (int i = 0; status == CLV_OK && i < n; i++) {
        for (int r = 0; r < ranks; r++)
            says[r] = all[r * n + i];
        clv_mismatch others = clv_mismatch_find(says, ranks);
        if (others.n > 0)
            status = fail_mismatch(session, call, mine[i].is, &others, err);
    }
    free(all);
    return status;
}

clv_status clv_session_check_same_program(const clv_session *session, uint64_t digest, clv_error *err)
{
    const clv_must_match mine[] = {
        {(int64_t)digest,
         "program than that of the other ranks: tensors, layouts, steps, ops or their attributes differ; valid: the "
         "same graph, compiled with the same options in every process"},
        {(int64_t)session->seed, "seed of first values than that of the other ranks; valid: the same "
                                 "clv_session_options.seed in every process"}};
    return clv_session_check_match(session, "clv_session_load", "a comparison of programs", mine, 2, err);
}
