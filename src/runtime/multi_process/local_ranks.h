/* local_ranks.h - which ranks of a session are local to this process, and which rank leads each process. */
#ifndef CLEAVE_RUNTIME_MULTI_PROCESS_LOCAL_RANKS_H
#define CLEAVE_RUNTIME_MULTI_PROCESS_LOCAL_RANKS_H

#include "cleave/session.h"

/* Whether other processes have ranks, too. */
bool clv_session_is_multi_process(const clv_session *session);
/* Whether a rank is the first of its process, which speaks for the process. */
bool clv_session_rank_is_process_leader(const clv_session *session, int rank);
/* The ranks of this process: [*first, *last). */
void clv_session_local_ranks(const clv_session *session, int *first, int *last);

#endif
