/* multi_process.c - owned boxes, local reads and status agreement for sessions over several processes. */
#include "runtime/multi_process/multi_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/multi_process/local_ranks.h"
#include "runtime/session/run_bindings.h"
#include "runtime/session/session_internal.h"

bool clv_session_is_root(const clv_session *session)
{
    return session->first_local_rank == 0;
}

clv_status clv_session_each_owned_box(const clv_session *session, const clv_type *type, const clv_layout *layout,
                                      clv_owned_box_fn *take, void *arg, clv_error *err)
{
    clv_shard box = clv_box_of_type(type);
    if (!clv_session_is_multi_process(session))
        return take(arg, &box, err);
    for (int r = session->first_local_rank; r < session->first_local_rank + session->n_local_ranks; r++) {
        box = clv_layout_shard(layout, &session->mesh, type->shape, r);
        if (clv_shard_elems(&box) > 0 && clv_rank_is_first_replica(layout, &session->mesh, type->shape, r))
            CLV_TRY(take(arg, &box, err));
    }
    return CLV_OK;
}

/* The shards of one process's ranks. */
typedef struct process_shards {
    const clv_session *session;
    const clv_type *type;
    const clv_layout *layout;
    int first; /* rank of it */
} process_shards;

static bool next_shard(clv_shard *out, int *i, const void *arg)
{
    const process_shards *of = arg;
    int rank = of->first + *i;
    if (rank >= of->session->n_ranks || (*i > 0 && clv_session_rank_is_process_leader(of->session, rank)))
        return false;
    *out = clv_layout_shard(of->layout, &of->session->mesh, of->type->shape, rank);
    ++*i;
    return true;
}

clv_status clv_session_each_process_has_all(bool *all, const clv_session *session, const clv_type *type,
                                            const clv_layout *layout, clv_error *err)
{
    const clv_shard whole = clv_box_of_type(type);
    bool lacks = false;
    for (int r = 0; !lacks && r < session->n_ranks; r++) {
        const process_shards of = {session, type, layout, r};
        clv_shard lacking;
        if (clv_session_rank_is_process_leader(session, r))
            CLV_TRY(clv_box_find_uncovered(&lacks, &lacking, next_shard, &of, &whole, err));
    }
    *all = !lacks;
    return CLV_OK;
}

clv_status clv_session_allgather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                                 clv_error *err)
{
    if (!clv_session_is_multi_process(session)) {
        for (int r = 0; r < session->n_ranks; r++)
            memcpy(all + (size_t)r * (size_t)n, mine, (size_t)n * sizeof *mine);
        return CLV_OK;
    }
    CLV_TRY(clv_session_acquire(session, what, err));
    clv_status status = clv_session_allgather_unlocked(session, what, mine, n, all, err);
    clv_session_release(session);
    return status;
}

static clv_status read_here(const clv_session *session, const char *name, const clv_shard *box, void *out,
                            clv_error *err)
{
    clv_named_state *state;
    CLV_TRY(clv_session_find_state(&state, session, name, err));
    return clv_session_copy_local(session, name, &state->type, &state->layout, session->devices, state->data, box, out,
                                  err);
}

clv_status clv_session_read_local(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                  clv_error *err)
{
    CLV_TRY(clv_session_acquire(session, "clv_session_read", err));
    clv_status status = read_here(session, name, box, out, err);
    clv_session_release(session);
    return status;
}

/* After a failure that all know of: what the process of rank `failed` says of it. */
static clv_status fetch_failure_message(const clv_session *session, const char *what, int failed, const clv_error *mine,
                                        clv_error *err)
{
    enum { WORDS = sizeof(mine->message) / sizeof(int64_t) };
    int64_t said[WORDS], *all = calloc((size_t)session->n_ranks * WORDS, sizeof *all);
    if (!all)
        return clv_fail_memory(err, what, (size_t)session->n_ranks * sizeof said);
    memcpy(said, mine->message, sizeof said);
    clv_status status = clv_session_allgather_unlocked(session, what, said, WORDS, all, err);
    if (status == CLV_OK) {
        char text[sizeof mine->message];
        memcpy(text, all + (size_t)failed * WORDS, sizeof text);
        text[sizeof text - 1] = '\0';
        status = clv_fail_at(err, CLV_EPEER, failed, what, "%s failed in the process of rank %d: %.400s", what, failed,
                             text);
    }
    free(all);
    return status;
}

static clv_status agree(const clv_session *session, const char *what, clv_status status, int64_t number, int64_t *sum,
                        const clv_error *mine, clv_error *err)
{
    enum { WORDS = 2 };
    const int64_t said[WORDS] = {status, number};
    int n = session->n_ranks, failed = -1;
    int64_t *all = calloc((size_t)n * WORDS, sizeof *all);
    clv_status heard = all ? clv_session_allgather_unlocked(session, what, said, WORDS, all, err)
                           : clv_fail_memory(err, what, (size_t)n * sizeof said);
    *sum = 0;
    for (int r = 0; heard == CLV_OK && r < n; r++) {
        if (!clv_session_rank_is_process_leader(session, r))
            continue;
        *sum += all[r * WORDS + 1];
        if (failed < 0 && all[r * WORDS] != CLV_OK)
            failed = r;
    }
    free(all);
    if (failed >= 0)
        heard = fetch_failure_message(session, what, failed, mine, err);
    return status != CLV_OK ? status : heard;
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
    CLV_TRY(clv_session_acquire(session, what, status == CLV_OK ? err : NULL));
    clv_status agreed = agree(session, what, status, number, sum, &mine, &why);
    clv_session_release(session);
    if (err && status == CLV_OK && agreed != CLV_OK)
        *err = why;
    return agreed;
}
