/* shares.h - for what is above sessions and has to know that their ranks may be in several processes. */
#ifndef CLEAVE_RUNTIME_SHARES_H
#define CLEAVE_RUNTIME_SHARES_H

#include "cleave/session.h"

/* Takes the boxes of a tensor in this layout that this process is to hand on, so that all processes together hand on
 * each element once: the whole tensor, where all ranks are here. */
typedef clv_status clv_share_fn(void *arg, const clv_shard *box, clv_error *err);
clv_status clv_session_each_share(const clv_session *session, const clv_type *type, const clv_layout *layout,
                                  clv_share_fn *take, void *arg, clv_error *err);

/* As clv_session_read, by this process alone. CLV_EPEER when others hold a part of it. */
clv_status clv_session_read_here(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                 clv_error *err);

/* Whether this is the process of rank 0. */
bool clv_session_leads(const clv_session *session);

/* Waits for all processes, which make the same call, and say how they fared, and a number each. *sum: of the numbers.
 * `what`: a constant.
 * @return `status` where it is a failure; CLV_EPEER where another process failed, naming its first rank */
clv_status clv_session_agree(const clv_session *session, const char *what, clv_status status, int64_t number,
                             int64_t *sum, clv_error *err);

#endif
