/* spmd_collectives.c - collectives that a manual SPMD function calls: clv_spmd_all_reduce and others. */
#include "base/memory/aligned_memory.h"
#include "base/memory/grow.h"
#include "runtime/spmd/spmd_internal.h"

/* ---- memory ---- */

clv_local_tensor clv_spmd_local_tensor(const clv_spmd *spmd, const clv_type *type, const clv_layout *layout)
{
    const clv_mesh *mesh = &spmd->context->session->mesh;
    return (clv_local_tensor){
        .type = *type, .layout = *layout, .shard = clv_layout_shard(layout, mesh, type->shape, spmd->rank)};
}

clv_status clv_spmd_check_tensor(const clv_type *type, const clv_layout *layout, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_shape_check(type->shape, type->rank, type->dtype, err));
    return clv_layout_check(layout, mesh, type->shape, err);
}

clv_status clv_spmd_allocate(clv_local_tensor *local, clv_spmd *spmd, bool zeros, clv_error *err)
{
    size_t bytes = (size_t)clv_shard_elems(&local->shard) * clv_dtype_size(local->type.dtype);
    size_t whole = CLV_BUFFER_ALIGN + (size_t)clv_buffer_aligned_bytes((int64_t)bytes);
    clv_spmd_allocation *block = clv_huge_pages_alloc(CLV_BUFFER_ALIGN, whole);
    if (!block)
        return clv_fail_memory(err, "a rank's part of a tensor", bytes);
    *block = (clv_spmd_allocation){.next = spmd->blocks, .before = &spmd->blocks};
    if (block->next)
        block->next->before = &block->next;
    spmd->blocks = block;
    local->data = (char *)block + CLV_BUFFER_ALIGN;
    if (zeros)
        memset(local->data, 0, bytes);
    return CLV_OK;
}

void clv_spmd_free_allocations(clv_spmd *spmd)
{
    for (clv_spmd_allocation *block = spmd->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    spmd->blocks = NULL;
}

void clv_spmd_free(clv_spmd *spmd, clv_local_tensor *local)
{
    if (!spmd || !local || !local->data)
        return;
    for (clv_spmd_allocation *block = spmd->blocks; block && !clv_session_has_failed(spmd->context->session);
         block = block->next)
        if ((char *)block + CLV_BUFFER_ALIGN == local->data) {
            *block->before = block->next;
            if (block->next)
                block->next->before = block->before;
            free(block);
            break;
        }
    local->data = NULL; /* after a failure the memory stays, as another rank may still read it */
}

clv_status clv_spmd_zeros(clv_local_tensor *out, clv_spmd *spmd, clv_dtype dtype, int rank, const int64_t *shape,
                          const char *layout, clv_error *err)
{
    CLV_TRY(clv_require(out && spmd && layout && (shape || rank == 0), __func__,
                        "out, a communicator, a shape and a layout", err));
    const clv_mesh *mesh = &spmd->context->session->mesh;
    clv_type type = {.dtype = dtype, .rank = rank};
    clv_layout parsed;
    CLV_TRY(clv_layout_parse(&parsed, layout, mesh, rank, err));
    CLV_TRY(clv_shape_check(shape, rank, dtype, err));
    for (int d = 0; d < rank; d++)
        type.shape[d] = shape[d];
    CLV_TRY(clv_layout_check(&parsed, mesh, type.shape, err));
    clv_local_tensor local = clv_spmd_local_tensor(spmd, &type, &parsed);
    CLV_TRY(clv_spmd_allocate(&local, spmd, true, err));
    *out = local;
    return CLV_OK;
}

clv_status clv_spmd_state(clv_local_tensor *out, clv_spmd *spmd, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && spmd && name, __func__, "out, a communicator and a name", err));
    clv_named_state *state;
    CLV_TRY(clv_session_find_state(&state, spmd->context->session, name, err));
    if (!spmd->context->session->backend->is_host)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "state '%.80s' is in the memory of the device '%s', out of a function's reach; valid: 'cpu'",
                        name, spmd->context->session->backend->name);
    *out = clv_spmd_local_tensor(spmd, &state->type, &state->layout);
    out->data = state->data[spmd->rank - spmd->context->session->first_local_rank];
    return CLV_OK;
}

/* ---- running ---- */

static clv_status run(clv_local_tensor *out, const clv_spmd_cached_collective **made, clv_spmd *spmd,
                      const clv_spmd_request *q, clv_error *err)
{
    const clv_transport *transport = spmd->context->session->transport;
    clv_spmd_cached_collective *call;
    if (clv_cancel_requested(spmd->context->session->options.cancel))
        return clv_fail(err, CLV_ECANCELLED, "the run was cancelled before %s", q->name);
    CLV_TRY(clv_spmd_find_or_plan_collective(&call, spmd, q, err));
    clv_local_tensor result = {
        .type = q->in->type, .layout = call->layout, .shard = call->shard, .source_ranks = call->source_ranks};
    CLV_TRY(clv_spmd_allocate(&result, spmd, call->zeros, err));
    call->prepared->in = q->in->data;
    call->prepared->out = result.data;
    CLV_TRY(transport->start(call->prepared, spmd->staging, err));
    CLV_TRY(transport->wait(call->prepared, CLV_WAIT_OUTPUT_READY, err));
    CLV_TRY(transport->wait(call->prepared, CLV_WAIT_INPUT_REUSABLE, err));
    *out = result;
    *made = call;
    return CLV_OK;
}

static clv_status record_call(clv_spmd *spmd, const clv_spmd_cached_collective *call, clv_error *err)
{
    if (spmd->rank != spmd->context->session->first_local_rank || call->info.n_axes == 0)
        return CLV_OK;
    CLV_TRY(clv_grow(&spmd->called, &spmd->capacity, spmd->n_called + 1, sizeof(const clv_spmd_cached_collective *),
                     "the list of collectives", err));
    spmd->called[spmd->n_called++] = call;
    return CLV_OK;
}

/* The function may have changed the fields of its local tensors. */
static clv_status check_local(const clv_local_tensor *in, const clv_mesh *mesh, const char *name, clv_error *err)
{
    clv_error why = {0};
    const clv_type *type = &in->type;
    clv_status status = CLV_OK;
    if (type->rank < 0 || type->rank > CLV_MAX_RANK)
        status = clv_fail(&why, CLV_ELIMIT, "%d dimensions; valid: 0 to %d", type->rank, CLV_MAX_RANK);
    else if (in->layout.rank != type->rank || in->shard.rank != type->rank)
        status = clv_fail(&why, CLV_ESHAPE, "%d dimensions, of which the layout has %d and the shard %d", type->rank,
                          in->layout.rank, in->shard.rank);
    if (status == CLV_OK)
        status = clv_spmd_check_tensor(type, &in->layout, mesh, &why);
    return status == CLV_OK ? CLV_OK : clv_fail(err, status, "%s: the local: %s", name, why.message);
}

static clv_status collective(clv_local_tensor *out, clv_spmd *spmd, clv_spmd_request q, clv_error *err)
{
    const clv_spmd_cached_collective *call;
    clv_local_tensor made;
    q.name = q.name ? q.name : clv_step_name(q.kind);
    CLV_TRY(clv_require(out && spmd && q.in && q.axes, "a collective", "out, a communicator, a local and axes", err));
    CLV_TRY(clv_require(q.in->data != NULL, q.name, "a local that holds memory", err));
    CLV_TRY(check_local(q.in, &spmd->context->session->mesh, q.name, err));
    CLV_TRY(run(&made, &call, spmd, &q, err));
    *out = made;
    return record_call(spmd, call, err);
}

static clv_status check_reduction(clv_reduction reduction, clv_error *err)
{
    if (reduction >= CLV_REDUCTION_SUM && reduction <= CLV_REDUCTION_PRODUCT)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "reduction %d; valid: CLV_REDUCTION_SUM, _MAX, _MIN and _PRODUCT", (int)reduction);
}

static clv_status check_dim(const clv_local_tensor *in, int dim, clv_error *err)
{
    if (!in || (dim >= 0 && dim < in->type.rank))
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "dimension %d of a tensor of %d", dim, in->type.rank);
}

clv_status clv_spmd_all_reduce(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                               clv_reduction reduction, const char *axes, clv_error *err)
{
    CLV_TRY(check_reduction(reduction, err));
    clv_spmd_request q = {.kind = CLV_STEP_ALL_REDUCE, .in = in, .reduction = reduction, .dim = -1, .axes = axes};
    return collective(out, spmd, q, err);
}

clv_status clv_spmd_reduce_scatter(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                   clv_reduction reduction, int dim, const char *axes, clv_error *err)
{
    CLV_TRY(check_reduction(reduction, err));
    CLV_TRY(check_dim(in, dim, err));
    clv_spmd_request q = {.kind = CLV_STEP_REDUCE_SCATTER, .in = in, .reduction = reduction, .dim = dim, .axes = axes};
    return collective(out, spmd, q, err);
}

clv_status clv_spmd_all_gather(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, const char *axes,
                               clv_error *err)
{
    clv_spmd_request q = {.kind = CLV_STEP_ALL_GATHER, .in = in, .dim = -1, .axes = axes};
    return collective(out, spmd, q, err);
}

clv_status clv_spmd_all_to_all(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int dim,
                               const char *axes, clv_error *err)
{
    CLV_TRY(check_dim(in, dim, err));
    clv_spmd_request q = {.kind = CLV_STEP_ALL_TO_ALL, .in = in, .dim = dim, .axes = axes};
    return collective(out, spmd, q, err);
}

clv_status clv_spmd_permute(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                            const clv_spmd_pair *pairs, int n_pairs, const char *axes, clv_error *err)
{
    CLV_TRY(clv_require_count(n_pairs, 0, __func__, "pairs", err));
    CLV_TRY(clv_require(n_pairs == 0 || pairs, __func__, "all of its pairs", err));
    clv_spmd_request q = {
        .kind = CLV_STEP_PERMUTE, .in = in, .dim = -1, .axes = axes, .pairs = pairs, .n_pairs = n_pairs};
    return collective(out, spmd, q, err);
}

/* A permute in which every member receives: broadcast from `root` (name), or shift by `by` (name NULL). */
static clv_status permute_all(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, const char *name,
                              int64_t by, int root, const char *axes, clv_error *err)
{
    int n;
    CLV_TRY(clv_spmd_group(&n, NULL, spmd, axes, err));
    if (root >= n || (name && root < 0))
        return clv_fail(err, CLV_EINVAL, "broadcast over '%.60s' from member %d; the group's members are 0 to %d", axes,
                        root, n - 1);
    CLV_FREED clv_spmd_pair *pairs = malloc((size_t)n * sizeof *pairs);
    if (!pairs)
        return clv_fail_memory(err, "the pairs of a permute", (size_t)n * sizeof *pairs);
    for (int i = 0; i < n; i++) {
        pairs[i].from = name ? root : (int)(((i - by % n) % n + n) % n);
        pairs[i].to = i;
    }
    clv_spmd_request q = {.kind = CLV_STEP_PERMUTE,
                          .name = name,
                          .is_broadcast = name != NULL,
                          .in = in,
                          .dim = -1,
                          .axes = axes,
                          .pairs = pairs,
                          .n_pairs = n};
    return collective(out, spmd, q, err);
}

clv_status clv_spmd_shift(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int64_t by,
                          const char *axes, clv_error *err)
{
    return permute_all(out, spmd, in, NULL, by, -1, axes, err);
}

clv_status clv_spmd_broadcast(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int root,
                              const char *axes, clv_error *err)
{
    return permute_all(out, spmd, in, "broadcast", 0, root, axes, err);
}

clv_status clv_spmd_barrier(clv_spmd *spmd, const char *axes, clv_error *err)
{
    CLV_TRY(clv_require(spmd && axes, __func__, "a communicator and axes", err));
    unsigned char byte = 0;
    const clv_type type = {.dtype = CLV_U8};
    const clv_spmd_cached_collective *call;
    const clv_layout scalar = clv_layout_replicated(0);
    clv_local_tensor in = clv_spmd_local_tensor(spmd, &type, &scalar), out;
    in.data = &byte;
    clv_spmd_request q = {.kind = CLV_STEP_ALL_REDUCE,
                          .name = "barrier",
                          .is_barrier = true,
                          .in = &in,
                          .reduction = CLV_REDUCTION_MAX,
                          .dim = -1,
                          .axes = axes};
    CLV_TRY(run(&out, &call, spmd, &q, err));
    clv_spmd_free(spmd, &out);
    return CLV_OK;
}

/* ---- queries ---- */

int clv_spmd_rank(const clv_spmd *spmd)
{
    return spmd ? spmd->rank : 0;
}

const clv_mesh *clv_spmd_mesh(const clv_spmd *spmd)
{
    return spmd ? &spmd->context->session->mesh : NULL;
}

clv_status clv_spmd_group(int *size, int *index, clv_spmd *spmd, const char *axes, clv_error *err)
{
    const clv_spmd_group_set *group_set;
    CLV_TRY(clv_require(spmd && axes, __func__, "a communicator and axes", err));
    CLV_TRY(clv_spmd_parse_group_set(&group_set, spmd, axes, err));
    const clv_group *group = clv_comm_group(spmd->comm, group_set->group_set);
    if (size)
        *size = group->n;
    if (index)
        *index = group->me;
    return CLV_OK;
}
