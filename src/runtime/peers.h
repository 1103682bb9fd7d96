/* peers.h - which ranks of a session are in this process, and which in others. */
#ifndef CLEAVE_RUNTIME_PEERS_H
#define CLEAVE_RUNTIME_PEERS_H

#include "cleave/session.h"

/* Whether other processes have ranks, too. */
bool clv_session_has_peers(const clv_session *session);
/* Whether a rank is the first of its process, which speaks for the process. */
bool clv_session_rank_leads(const clv_session *session, int rank);
/* The ranks of this process: [*first, *last). */
void clv_session_ranks_here(const clv_session *session, int *first, int *last);

#endif
