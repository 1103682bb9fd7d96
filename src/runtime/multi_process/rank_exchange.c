/* rank_exchange.c - moves data between ranks outside programs: reshards state, fetches a box. */
#include "base/hash.h"
#include "base/memory/aligned_memory.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/run_bindings.h"
#include "runtime/session/session_internal.h"
#include "tensor/box_copy.h"

void *clv_staging_alloc(int64_t bytes)
{
    return clv_huge_pages_alloc(CLV_BUFFER_ALIGN, (size_t)clv_buffer_aligned_bytes(bytes));
}

typedef struct exchange_job {
    const clv_transport *transport;
    int first_local_rank;
    clv_prepared_collective **collectives; /* [n_local_ranks] */
    void **staging;                        /* [n_local_ranks] */
    const char *what;
} exchange_job;

static clv_status exchange_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const exchange_job *job = arg;
    clv_prepared_collective *prepared = job->collectives[rank - job->first_local_rank];
    clv_comm_set_activity(comm, job->what);
    CLV_TRY(job->transport->start(prepared, job->staging[rank - job->first_local_rank], err));
    CLV_TRY(job->transport->wait(prepared, CLV_WAIT_OUTPUT_READY, err));
    return job->transport->wait(prepared, CLV_WAIT_INPUT_REUSABLE, err);
}

static void release(clv_abandoned_exchange *left, const clv_session *session)
{
    for (int r = 0; r < session->n_local_ranks; r++) {
        if (left->collectives)
            session->transport->release(left->collectives[r]);
        if (left->staging)
            free(left->staging[r]);
    }
    free(left->collectives);
    free(left->staging);
    free(left->scratch);
}

void clv_session_free_abandoned(clv_session *session)
{
    if (session->abandoned)
        release(session->abandoned, session);
}

static clv_status prepare_rank(clv_abandoned_exchange *job, const clv_session *session, const clv_rank_exchange *x,
                               int i, clv_error *err)
{
    clv_comm *comm = clv_world_comm(clv_rank_threads_world(session->team), session->first_local_rank + i);
    clv_transfer transfer = {.what = x->what,
                             .tag = x->tag,
                             .group = clv_comm_group(comm, session->all_ranks_set),
                             .dtype = x->dtype,
                             .parts = {.n = session->n_ranks, .in = x->in, .out = x->out},
                             .in = x->in_data[i],
                             .out = x->out_data[i],
                             .in_device = x->in_devices ? x->in_devices[i] : NULL,
                             .out_device = x->out_devices ? x->out_devices[i] : NULL,
                             .in_window = x->in_window,
                             .out_window = x->out_window};
    int64_t staging = 0;
    CLV_TRY(session->transport->prepare(&job->collectives[i], comm, &transfer, &staging, err));
    if (staging > 0)
        job->staging[i] = clv_staging_alloc(staging);
    if (staging > 0 && !job->staging[i])
        return clv_fail_memory(err, "a rank's staging", (size_t)staging);
    return CLV_OK;
}

clv_status clv_session_exchange(const clv_session *session, const clv_rank_exchange *x, clv_error *err)
{
    size_t n = (size_t)session->n_local_ranks;
    clv_abandoned_exchange mine = {.collectives = calloc(n, sizeof *mine.collectives),
                                   .staging = calloc(n, sizeof *mine.staging),
                                   .scratch = x->scratch};
    clv_status status =
        mine.collectives && mine.staging ? CLV_OK : clv_fail_memory(err, x->what, n * sizeof *mine.collectives);
    for (int r = 0; status == CLV_OK && r < session->n_local_ranks; r++)
        status = prepare_rank(&mine, session, x, r, err);
    exchange_job job = {session->transport, session->first_local_rank, mine.collectives, mine.staging, x->what};
    if (status == CLV_OK)
        status = clv_rank_threads_run(session->team, exchange_rank, &job, err);
    if (clv_session_has_failed(session))
        *session->abandoned = mine;
    else
        release(&mine, session);
    return status;
}

bool clv_session_shares_memory(const clv_session *session)
{
    return session->transport->add_window != NULL;
}

bool clv_rank_is_first_replica(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank)
{
    if (!clv_layout_has_rank(layout, mesh, rank))
        return false;
    clv_shard mine = clv_layout_shard(layout, mesh, shape, rank);
    for (int r = 0; r < rank; r++) {
        clv_shard other = clv_layout_shard(layout, mesh, shape, r);
        if (clv_shard_equal(&mine, &other))
            return false;
    }
    return true;
}

bool clv_rank_shards_next(clv_shard *out, int *i, const void *arg)
{
    const clv_rank_shards *of = arg;
    if (of->first + *i >= of->end)
        return false;
    *out = clv_layout_shard(of->layout, of->mesh, of->type->shape, of->first + *i);
    ++*i;
    return true;
}

static clv_rank_shards local_shards(const clv_session *session, const clv_type *type, const clv_layout *layout)
{
    return (clv_rank_shards){.mesh = &session->mesh,
                             .type = type,
                             .layout = layout,
                             .first = session->first_local_rank,
                             .end = session->first_local_rank + session->n_local_ranks};
}

clv_status clv_session_check_local(const clv_session *session, const char *name, const clv_type *type,
                                   const clv_layout *layout, const clv_shard *box, clv_error *err)
{
    const clv_rank_shards shards = local_shards(session, type, layout);
    clv_shard uncovered;
    char text[CLV_BOX_TEXT];
    if (!clv_box_find_uncovered(&uncovered, clv_rank_shards_next, &shards, box))
        return CLV_OK;
    clv_box_print(text, sizeof text, &uncovered);
    return clv_fail(err, CLV_EPEER, "'%s': other processes hold %s, and this one's ranks do not", name, text);
}

clv_status clv_session_copy_local(const clv_session *session, const clv_named_state *tensor,
                                  const clv_device *const *devices, const clv_shard *box, void *out, clv_error *err)
{
    const clv_rank_shards shards = local_shards(session, &tensor->type, &tensor->layout);
    clv_shard has;
    CLV_TRY(clv_session_check_local(session, tensor->name, &tensor->type, &tensor->layout, box, err));
    for (int i = 0; clv_rank_shards_next(&has, &i, &shards);) {
        clv_shard both = clv_shard_intersect(box, &has);
        const void *data = tensor->data[i - 1];
        if (data) /* NULL in a snapshot, which has the shard of another replica */
            CLV_TRY(devices[i - 1]->backend->copy(devices[i - 1], CLV_COPY_TO_HOST, out, box, data, &has, &both,
                                                  clv_dtype_size(tensor->type.dtype), err));
    }
    return CLV_OK;
}

/* Processes that ask for different boxes or tensors get different tags, and fail. */
static uint64_t tag_of(uint64_t tag, const clv_type *type, const clv_shard *box)
{
    uint64_t words[3 + 2 * CLV_MAX_RANK] = {tag, (uint64_t)type->dtype, (uint64_t)box->rank};
    for (int d = 0; d < box->rank; d++) {
        words[3 + 2 * d] = (uint64_t)box->lo[d];
        words[4 + 2 * d] = (uint64_t)box->hi[d];
    }
    return clv_hash_bytes(words, sizeof words);
}

clv_status clv_session_fetch(const clv_session *session, uint64_t tag, const clv_named_state *tensor,
                             const clv_device *const *devices, const clv_shard *box, void *out, clv_error *err)
{
    static const char what[] = "what the caller asked for";
    int n = session->n_ranks;
    CLV_FREED clv_shard *shards = calloc(2 * (size_t)n, sizeof *shards);
    CLV_FREED void **to = calloc((size_t)session->n_local_ranks, sizeof *to);
    int64_t *scratch =
        calloc((size_t)session->n_local_ranks, sizeof *scratch); /* for scalars, which have no empty box */
    if (!shards || !to || !scratch) {
        free(scratch);
        return clv_fail_memory(err, what, 2 * (size_t)n * sizeof *shards);
    }
    for (int r = 0; r < n; r++) {
        shards[r] = clv_layout_shard(&tensor->layout, &session->mesh, tensor->type.shape, r);
        shards[n + r] = *box;
        for (int d = 0; !clv_session_rank_is_process_leader(session, r) && d < box->rank; d++)
            shards[n + r].hi[d] = box->lo[d];
    }
    for (int i = 0; i < session->n_local_ranks; i++)
        to[i] = i > 0 ? &scratch[i] : out;
    clv_rank_exchange x = {.what = what,
                           .tag = tag_of(tag, &tensor->type, box),
                           .dtype = tensor->type.dtype,
                           .in = shards,
                           .out = shards + n,
                           .in_data = tensor->data,
                           .out_data = to,
                           .in_devices = devices,
                           .scratch = scratch};
    return clv_session_exchange(session, &x, err);
}
