/* local_ranks.c - which ranks of a session are local to this process. */
#include "runtime/multi_process/local_ranks.h"

#include "runtime/session/session_internal.h"

bool clv_session_is_multi_process(const clv_session *session)
{
    return session->n_local_ranks < session->n_ranks;
}

bool clv_session_rank_is_process_leader(const clv_session *session, int rank)
{
    return clv_world_is_process_root(clv_rank_threads_world(session->team), rank);
}

void clv_session_local_ranks(const clv_session *session, int *first, int *last)
{
    *first = session->first_local_rank;
    *last = session->first_local_rank + session->n_local_ranks;
}
