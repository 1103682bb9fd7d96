/* process_agreement.c - allgather between the processes of a session, checks that they match, propagates failures.
 * With all ranks in one process, nothing is exchanged.
 */
#include <stdio.h>

#include "base/majority_check.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

clv_status clv_session_finish_call(const clv_session *session, const char *call, clv_status status,
                                   const clv_error *why, clv_error *err)
{
    if (status == CLV_OK)
        return CLV_OK;
    if (clv_session_is_multi_process(session) && !clv_session_has_failed(session)) {
        clv_error notice = {.code = CLV_EPEER, .rank = why->rank >= 0 ? why->rank : session->first_local_rank};
        snprintf(notice.op, sizeof notice.op, "%s", why->op[0] ? why->op : call);
        snprintf(notice.message, sizeof notice.message, "%s failed only in the process of rank %d: %.400s", call,
                 session->first_local_rank, why->message);
        clv_world_fail(clv_rank_threads_world(session->team), &notice);
    }
    clv_world_broadcast_failure(clv_rank_threads_world(session->team));
    clv_flight_dump_on_failure(session, why);
    if (err && why->code != CLV_OK)
        *err = *why;
    return status;
}

/* The first rank of each process sends its row of [n_ranks, n] and receives all rows; other ranks have empty boxes. */
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

/* Copies the row of each process to all of its ranks. */
static void fill_rows_of_all_ranks(int64_t *all, const clv_session *session, const int64_t *gathered, int n)
{
    size_t bytes = (size_t)n * sizeof *all;
    for (int r = 0; r < session->n_ranks; r++)
        memcpy(all + (size_t)r * (size_t)n,
               clv_session_rank_is_process_leader(session, r) ? gathered + (size_t)r * (size_t)n
                                                              : all + (size_t)(r - 1) * (size_t)n,
               bytes);
}

/* clv_session_allgather in a call that uses the session already. */
static clv_status allgather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                            clv_error *err)
{
    size_t ranks = (size_t)session->n_ranks, here = (size_t)session->n_local_ranks, words = (size_t)n;
    if (clv_session_has_failed(session))
        return clv_rank_threads_run(session->team, NULL, NULL, err);
    clv_shard *shards = calloc(2 * ranks, sizeof *shards);
    void **data = calloc(2 * here, sizeof *data);
    int64_t *memory = calloc((ranks + 1) * words, sizeof *memory); /* mine, then all; a late rank may still use it */
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
    if (clv_session_has_failed(session) && !session->abandoned->scratch)
        session->abandoned->scratch = memory;
    else
        free(memory);
    free(shards);
    free(data);
    return status;
}

clv_status clv_session_allgather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                                 clv_error *err)
{
    if (!clv_session_is_multi_process(session)) {
        for (int r = 0; r < session->n_ranks; r++)
            memcpy(all + (size_t)r * (size_t)n, mine, (size_t)n * sizeof *mine);
        return CLV_OK;
    }
    CLV_TRY(clv_session_try_lock(session, what, err));
    clv_status status = allgather(session, what, mine, n, all, err);
    clv_session_unlock(session);
    return status;
}

/* Allocates *all: [n_ranks][n], to be freed; NULL after a failure. */
static clv_status allgather_new(int64_t **all, const clv_session *session, const char *what, const int64_t *mine,
                                size_t n, clv_error *err)
{
    *all = calloc((size_t)session->n_ranks * n, sizeof **all);
    clv_status status = *all ? allgather(session, what, mine, (int)n, *all, err)
                             : clv_fail_memory(err, what, (size_t)session->n_ranks * n * sizeof **all);
    if (status != CLV_OK) {
        free(*all);
        *all = NULL;
    }
    return status;
}

/* ---- matching ---- */

/* All processes find the mismatch at once: the session fails in each, with the same message. */
static clv_status fail_mismatch(const clv_session *session, const char *call, const char *expected,
                                const clv_mismatch *others, clv_error *err)
{
    clv_error error = {0};
    (void)clv_fail_at(&error, CLV_EPEER, others->first, call, "rank%s %s: another %s", others->n > 1 ? "s" : "",
                      others->members, expected);
    clv_world_fail(clv_rank_threads_world(session->team), &error);
    if (err)
        *err = error;
    return CLV_EPEER;
}

clv_status clv_session_check_match(const clv_session *session, const char *call, const char *what,
                                   const clv_must_match *mine, int n, clv_error *err)
{
    int64_t words[CLV_MUST_MATCH_MAX];
    CLV_FREED int64_t *all = NULL;
    int ranks = session->n_ranks;
    if (!clv_session_is_multi_process(session))
        return CLV_OK;
    for (int i = 0; i < n; i++)
        words[i] = mine[i].value;
    CLV_TRY(allgather_new(&all, session, what, words, (size_t)n, err));
    CLV_FREED int64_t *column = malloc((size_t)ranks * sizeof *column);
    if (!column)
        return clv_fail_memory(err, what, (size_t)ranks * sizeof *column);
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < ranks; r++)
            column[r] = all[r * n + i];
        clv_mismatch others = clv_mismatch_find(column, ranks);
        if (others.n > 0)
            return fail_mismatch(session, call, mine[i].what, &others, err);
    }
    return CLV_OK;
}

clv_status clv_session_check_same_program(const clv_session *session, uint64_t digest, clv_error *err)
{
    const clv_must_match mine[] = {
        {(int64_t)digest,
         "program than that of the other ranks: tensors, layouts, steps, ops or their attributes differ; valid: the "
         "same graph, compiled with the same options in every process"},
        {(int64_t)session->options.seed, "seed of first values than that of the other ranks; valid: the same "
                                         "clv_session_options.seed in every process"}};
    return clv_session_check_match(session, "clv_session_load", "a comparison of programs", mine, 2, err);
}

/* ---- agreement ---- */

/* After a failure that all processes know of: fetches the message of the process of rank `failed`. */
static clv_status fetch_failure_message(const clv_session *session, const char *what, int failed, const clv_error *mine,
                                        clv_error *err)
{
    enum { WORDS = sizeof(mine->message) / sizeof(int64_t) };
    int64_t words[WORDS], *all;
    char text[sizeof mine->message];
    memcpy(words, mine->message, sizeof words);
    CLV_TRY(allgather_new(&all, session, what, words, WORDS, err));
    memcpy(text, all + (size_t)failed * WORDS, sizeof text);
    text[sizeof text - 1] = '\0';
    free(all);
    return clv_fail_at(err, CLV_EPEER, failed, what, "%s failed in the process of rank %d: %.400s", what, failed, text);
}

static clv_status agree(const clv_session *session, const char *what, clv_status status, int64_t number, int64_t *sum,
                        const clv_error *mine, clv_error *err)
{
    enum { STATUS, NUMBER, WORDS };
    const int64_t words[WORDS] = {status, number};
    int64_t *all;
    int failed = -1;
    *sum = 0;
    clv_status gathered = allgather_new(&all, session, what, words, WORDS, err);
    for (int r = 0; gathered == CLV_OK && r < session->n_ranks; r++) {
        if (!clv_session_rank_is_process_leader(session, r))
            continue;
        *sum += all[r * WORDS + NUMBER];
        if (failed < 0 && all[r * WORDS + STATUS] != CLV_OK)
            failed = r;
    }
    free(all);
    if (failed >= 0)
        gathered = fetch_failure_message(session, what, failed, mine, err);
    return status != CLV_OK ? status : gathered;
}

clv_status clv_session_agree(const clv_session *session, const char *what, clv_status status, int64_t number,
                             int64_t *sum, clv_error *err)
{
    clv_error why = {.rank = -1}, mine = {.rank = -1};
    *sum = number;
    if (!clv_session_is_multi_process(session))
        return status;
    if (status != CLV_OK)
        snprintf(mine.message, sizeof mine.message, "%s",
                 err && err->message[0] ? err->message : clv_status_text(status));
    CLV_TRY(clv_session_try_lock(session, what, status == CLV_OK ? err : NULL));
    clv_status agreed = agree(session, what, status, number, sum, &mine, &why);
    clv_session_unlock(session);
    if (err && status == CLV_OK && agreed != CLV_OK)
        *err = why;
    return agreed;
}
