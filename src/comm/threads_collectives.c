/* threads_collectives.c - the collectives that move values and do not change them, views, and the backend's table.
 *
 * Each rank reads what it needs out of its peers: out of their stages where a message is small (one meeting), out of
 * their own buffers where it is large (and then all meet again, so that no buffer changes while it is read). */
#include "comm/threads_collectives.h"

#include <stdio.h>

#include "base/error.h"

int64_t clv_sum_counts(const int64_t *counts, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* FNV-1a over words, with a shift, because the low bits of counts are often alike. */
uint64_t clv_hash_counts(const int64_t *counts, int n)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t)counts[i]) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

void *clv_pack(void *out, const void *in, const int64_t *counts, const int64_t *offsets, int n, size_t size)
{
    char *at = out;

    for (int i = 0; i < n; i++) {
        clv_copy(at, clv_at(in, offsets[i], size), (size_t)counts[i] * size);
        at += (size_t)counts[i] * size;
    }
    return out;
}

clv_status clv_threads_finish(clv_thread_comm *comm, const clv_group *group, clv_error *err)
{
    static const clv_post end = {.op = CLV_OP_FINISH};
    int direct = 0;

    for (int i = 0; i < group->n; i++)
        direct |= clv_threads_post(comm, group, i)->direct;
    if (direct)
        CLV_TRY(clv_threads_meet(comm, group, &end, err));
    clv_threads_leave(comm, group);
    return CLV_OK;
}

static clv_status barrier(clv_comm *base, const clv_group *group, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;

    CLV_TRY(clv_threads_meet(comm, group, &(clv_post){.op = CLV_OP_BARRIER}, err));
    clv_threads_leave(comm, group);
    return CLV_OK;
}

static clv_status all_gather(clv_comm *base, const clv_group *group, void *out, const void *in, const int64_t *counts,
                             const int64_t *offsets, clv_dtype dtype, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t size = clv_dtype_size(dtype);
    int64_t largest = 0;

    for (int i = 0; i < group->n; i++)
        largest = counts[i] > largest ? counts[i] : largest;
    int direct = (size_t)largest * size > clv_stage_limit(comm);
    clv_post post = {.in = in,
                     .tag = clv_hash_counts(counts, group->n),
                     .count = clv_sum_counts(counts, group->n),
                     .op = CLV_OP_ALL_GATHER,
                     .dtype = (uint8_t)dtype,
                     .direct = (uint8_t)direct};

    if (!direct)
        post.in = clv_copy(clv_threads_stage(comm, group), in, (size_t)counts[group->me] * size);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    for (int k = 0; k < group->n; k++) {
        int i = (group->me + k) % group->n; /* rotated: not all from one peer at once */

        clv_copy(clv_at_mutable(out, offsets[i], size), clv_threads_post(comm, group, i)->in, (size_t)counts[i] * size);
    }
    return clv_threads_finish(comm, group, err);
}

/* A small all_to_all's stage: the counts, then the runs one after the other. */
static const void *stage_runs(void *stage, const void *in, const int64_t *counts, const int64_t *offsets, int n,
                              size_t size)
{
    memcpy(stage, counts, (size_t)n * sizeof *counts);
    clv_pack((int64_t *)stage + n, in, counts, offsets, n, size);
    return stage;
}

/* The run that a peer sends to member `me`, and its count. */
static const void *find_run(int64_t *count, const clv_post *peer, int me, int n, size_t size)
{
    if (peer->direct) {
        *count = peer->counts[me];
        return clv_at(peer->in, peer->offsets[me], size);
    }
    const int64_t *counts = peer->in;
    *count = counts[me];
    return clv_at(counts + n, clv_sum_counts(counts, me), size);
}

static clv_status sizes_differ(clv_thread_comm *comm, const clv_group *group, int i, const char *op, int64_t expected,
                               int64_t sent, clv_error *err)
{
    char what[200];

    snprintf(what, sizeof what, "%s of group set %d: rank %d sends %lld elements to rank %d, which expects %lld", op,
             group->set, group->ranks[i], (long long)sent, comm->base.rank, (long long)expected);
    return clv_threads_mismatch(comm, group, i, what, err);
}

static clv_status all_to_all(clv_comm *base, const clv_group *group, void *out, const int64_t *recv_counts,
                             const int64_t *recv_offsets, const void *in, const int64_t *send_counts,
                             const int64_t *send_offsets, clv_dtype dtype, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t size = clv_dtype_size(dtype);
    size_t bytes = (size_t)clv_sum_counts(send_counts, group->n) * size + (size_t)group->n * sizeof *send_counts;
    clv_post post = {.in = in,
                     .counts = send_counts,
                     .offsets = send_offsets,
                     .op = CLV_OP_ALL_TO_ALL,
                     .dtype = (uint8_t)dtype,
                     .direct = bytes > clv_stage_limit(comm)};

    if (!post.direct)
        post.in = stage_runs(clv_threads_stage(comm, group), in, send_counts, send_offsets, group->n, size);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    for (int k = 0; k < group->n; k++) {
        int i = (group->me + k) % group->n;
        int64_t count;
        const void *run = find_run(&count, clv_threads_post(comm, group, i), group->me, group->n, size);

        if (count != recv_counts[i])
            return sizes_differ(comm, group, i, "all_to_all", recv_counts[i], count, err);
        clv_copy(clv_at_mutable(out, recv_offsets[i], size), run, (size_t)count * size);
    }
    return clv_threads_finish(comm, group, err);
}

static clv_status permute(clv_comm *base, const clv_group *group, void *out, int64_t out_count, const void *in,
                          int64_t in_count, int from, clv_dtype dtype, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t size = clv_dtype_size(dtype);
    size_t bytes = (size_t)in_count * size;
    clv_post post = {.in = in,
                     .size = in_count,
                     .op = CLV_OP_PERMUTE,
                     .dtype = (uint8_t)dtype,
                     .direct = bytes > clv_stage_limit(comm)};

    if (from < 0 || from >= group->n)
        return clv_fail(err, CLV_EINVAL, "permute from member %d; members are 0 to %d", from, group->n - 1);
    if (!post.direct)
        post.in = clv_copy(clv_threads_stage(comm, group), in, bytes);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    const clv_post *peer = clv_threads_post(comm, group, from);
    if (peer->size != out_count)
        return sizes_differ(comm, group, from, "permute", out_count, peer->size, err);
    clv_copy(out, peer->in, (size_t)out_count * size);
    return clv_threads_finish(comm, group, err);
}

static clv_status broadcast(clv_comm *base, const clv_group *group, void *data, int64_t count, int root,
                            clv_dtype dtype, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t bytes = (size_t)count * clv_dtype_size(dtype);
    clv_post post = {.in = data,
                     .count = count,
                     .root = root,
                     .op = CLV_OP_BROADCAST,
                     .dtype = (uint8_t)dtype,
                     .direct = bytes > clv_stage_limit(comm)};

    if (root < 0 || root >= group->n)
        return clv_fail(err, CLV_EINVAL, "broadcast from member %d; members are 0 to %d", root, group->n - 1);
    if (!post.direct && group->me == root)
        post.in = clv_copy(clv_threads_stage(comm, group), data, bytes);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    if (group->me != root)
        clv_copy(data, clv_threads_post(comm, group, root)->in, bytes);
    return clv_threads_finish(comm, group, err);
}

static clv_status open_views(clv_comm *base, const clv_group *group, void *mine, uint64_t tag, void **peers,
                             clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    clv_slot *slot = &comm->world->sets[group->set]->slots[base->rank];

    CLV_TRY(clv_threads_meet(comm, group, &(clv_post){.out = mine, .tag = tag, .op = CLV_OP_OPEN_VIEWS}, err));
    slot->views++;
    for (int i = 0; i < group->n; i++)
        peers[i] = clv_threads_post(comm, group, i)->out;
    return CLV_OK;
}

static clv_status close_views(clv_comm *base, const clv_group *group, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    clv_slot *slot = &comm->world->sets[group->set]->slots[base->rank];

    if (slot->views == 0 && !clv_world_failed(comm->world, NULL))
        return clv_fail(err, CLV_EINVAL, "close_views of group set %d without open_views", group->set);
    CLV_TRY(clv_threads_meet(comm, group, &(clv_post){.op = CLV_OP_CLOSE_VIEWS}, err));
    slot->views--;
    clv_threads_leave(comm, group);
    return CLV_OK;
}

const clv_comm_backend clv_threads_backend = {
    .name = "threads",
    .barrier = barrier,
    .all_reduce = clv_threads_all_reduce,
    .reduce_scatter = clv_threads_reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .permute = permute,
    .broadcast = broadcast,
    .open_views = open_views,
    .close_views = close_views,
};
