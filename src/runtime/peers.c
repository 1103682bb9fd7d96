/* peers.c - see peers.h. */
#include "runtime/peers.h"

#include "runtime/session.h"

bool clv_session_has_peers(const clv_session *session)
{
    return session->here < session->n_ranks;
}

bool clv_session_rank_leads(const clv_session *session, int rank)
{
    return clv_world_leads(clv_team_world(session->team), rank);
}

void clv_session_ranks_here(const clv_session *session, int *first, int *last)
{
    *first = session->first;
    *last = session->first + session->here;
}
