/* state_memory.c - allocation of state memory on every rank, and its registration with the transport (MPI windows). */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory/aligned_memory.h"
#include "runtime/checks/guard_bytes.h"
#include "runtime/session/session_internal.h"

clv_status clv_session_register_memory(clv_window **out, const clv_session *session, void *const *memory,
                                       clv_error *err)
{
    *out = NULL;
    if (!session->transport->add_window)
        return CLV_OK;
    return session->transport->add_window(out, clv_rank_threads_world(session->team), memory, err);
}

static void drop_window(const clv_session *session, clv_window *window)
{
    if (window)
        session->transport->free_window(window);
}

void *clv_staging_alloc(int64_t bytes)
{
    return clv_huge_pages_alloc(CLV_BUFFER_ALIGN, (size_t)clv_buffer_aligned_bytes(bytes));
}

/* ---- state ---- */

/* Guard bytes before and behind the state of a session that checks. */
static int64_t guard_of(const clv_session *session)
{
    return session->check ? CLV_GUARD_BYTES : 0;
}

void clv_session_free_state(const clv_session *session, clv_named_state *state)
{
    drop_window(session, state->window);
    for (int r = 0; state->data && r < session->here; r++)
        if (state->data[r])
            session->backend->free(session->devices[r], (char *)state->data[r] - guard_of(session));
    free(state->data);
}

clv_status clv_session_allocate_state(clv_named_state *state, const clv_session *session, clv_error *err)
{
    int64_t planned = clv_shard_bytes(&state->type, &state->layout), guard = guard_of(session);
    size_t bytes = planned > 0 || guard > 0 ? (size_t)(planned + 2 * guard) : CLV_BUFFER_ALIGN;
    clv_status status = CLV_OK;
    state->data = calloc((size_t)session->here, sizeof *state->data);
    for (int r = 0; state->data && status == CLV_OK && r < session->here; r++) {
        char *base = session->backend->alloc(session->devices[r], CLV_BUFFER_ALIGN, bytes);
        if (!base)
            status = clv_fail_memory(err, "state", bytes);
        else if (session->check)
            clv_guard_bytes_fill(base, (int64_t)bytes);
        state->data[r] = base ? base + guard : NULL;
    }
    if (!state->data)
        status = clv_fail_memory(err, "state", (size_t)session->here * sizeof *state->data);
    if (status == CLV_OK)
        status = clv_session_register_memory(&state->window, session, state->data, err);
    if (status != CLV_OK)
        clv_session_free_state(session, state);
    return status;
}
