/* multi_process.c - lists which process holds which box of a tensor, and reads boxes that this process holds. */
#include "runtime/multi_process/multi_process.h"

#include "runtime/session/run_bindings.h"
#include "runtime/session/session_internal.h"

clv_status clv_session_for_each_box_of_process(const clv_session *session, const clv_type *type,
                                               const clv_layout *layout, clv_owned_box_fn *callback, void *arg,
                                               clv_error *err)
{
    clv_shard box = clv_box_of_type(type);
    if (!clv_session_is_multi_process(session))
        return callback(arg, &box, err);
    for (int r = session->first_local_rank; r < session->first_local_rank + session->n_local_ranks; r++) {
        box = clv_layout_shard(layout, &session->mesh, type->shape, r);
        if (clv_shard_elems(&box) > 0 && clv_rank_is_first_replica(layout, &session->mesh, type->shape, r))
            CLV_TRY(callback(arg, &box, err));
    }
    return CLV_OK;
}

bool clv_session_each_process_has_all(const clv_session *session, const clv_type *type, const clv_layout *layout)
{
    const clv_shard whole = clv_box_of_type(type);
    for (int first = 0, end; first < session->n_ranks; first = end) {
        for (end = first + 1; end < session->n_ranks && !clv_session_rank_is_process_leader(session, end);)
            end++;
        const clv_rank_shards shards = {&session->mesh, type, layout, first, end};
        clv_shard uncovered;
        if (clv_box_find_uncovered(&uncovered, clv_rank_shards_next, &shards, &whole))
            return false;
    }
    return true;
}

clv_status clv_session_read_local(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                  clv_error *err)
{
    clv_named_state *state;
    CLV_TRY(clv_session_try_lock(session, "clv_session_read", err));
    clv_status status = clv_session_find_state(&state, session, name, err);
    if (status == CLV_OK)
        status = clv_session_copy_local(session, state, session->devices, box, out, err);
    clv_session_unlock(session);
    return status;
}
