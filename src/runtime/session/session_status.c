/* session_status.c - locks a session for one call at a time; says whether it failed, and which ranks this process
 * has. */
#include <stdatomic.h>

#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

clv_status clv_session_try_lock(const clv_session *session, const char *call, clv_error *err)
{
    if (atomic_exchange_explicit(session->in_use, 1, memory_order_acquire) == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "%s: another call uses this session, on another thread or one whose function this is called from; "
                    "valid: one call at a time, or a session for each thread",
                    call);
}

void clv_session_unlock(const clv_session *session)
{
    atomic_store_explicit(session->in_use, 0, memory_order_release);
}

bool clv_session_has_failed(const clv_session *session)
{
    return session->team && clv_world_has_failed(clv_rank_threads_world(session->team), NULL);
}

bool clv_session_is_multi_process(const clv_session *session)
{
    return session->n_local_ranks < session->n_ranks;
}

bool clv_session_is_root(const clv_session *session)
{
    return session->first_local_rank == 0;
}

bool clv_session_rank_is_process_leader(const clv_session *session, int rank)
{
    return clv_world_is_process_leader(clv_rank_threads_world(session->team), rank);
}

void clv_session_local_ranks(const clv_session *session, int *first, int *last)
{
    *first = session->first_local_rank;
    *last = session->first_local_rank + session->n_local_ranks;
}
