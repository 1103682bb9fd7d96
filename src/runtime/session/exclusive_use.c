/* exclusive_use.c - try-lock of a session: a second concurrent call gets CLV_EINVAL at once. */
#include <stdatomic.h>

#include "base/error.h"
#include "runtime/session/session_internal.h"

clv_status clv_session_acquire(const clv_session *session, const char *call, clv_error *err)
{
    if (atomic_exchange_explicit(session->in_use, 1, memory_order_acquire) == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "%s: another call uses this session, on another thread or one whose function this is called from; "
                    "valid: one call at a time, or a session for each thread",
                    call);
}

void clv_session_release(const clv_session *session)
{
    atomic_store_explicit(session->in_use, 0, memory_order_release);
}
