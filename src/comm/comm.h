/* comm.h - collectives over groups of ranks. Knows nothing of graphs or layouts.
 *
 * One clv_comm is one rank's endpoint of a world; only that rank's thread uses it. A group is named by a group set: a
 * partition of the world's ranks into disjoint groups (what "over mesh axes X" means), registered before the ranks
 * start. All members of a group call the same collectives in the same order with the same arguments.
 *
 * Failure: every wait ends by the world's deadline. A rank that fails calls abort; all waiters then return CLV_EPEER
 * with the failing rank, its op and its message. A wait that times out returns CLV_ETIMEOUT naming the ranks that did
 * not come and what they were last known to do, and aborts the world. A failed world is poisoned: every later call
 * returns the first failure; make a new one. Members whose calls do not match (operation, dtype, count) get CLV_EPEER,
 * not wrong data.
 *
 * Reduction order is fixed: group members in order 0..n-1, accumulated in f32 for bf16/f16 (rounded once), in the
 * dtype itself for f32 and f64. Results are equal on all members, and between runs, bit for bit.
 */
#ifndef CLEAVE_COMM_COMM_H
#define CLEAVE_COMM_COMM_H

#include <stdint.h>

#include "cleave/dtype.h"
#include "cleave/layout.h"
#include "cleave/status.h"

typedef struct clv_comm clv_comm;

/* What a rank's staging of small messages takes for each group set. */
enum { CLV_COMM_STAGING_BYTES = 65536 };

/* A group as one of its members sees it; owned by the world. */
typedef struct clv_group {
    int set;          /* id of the group set, the same on every rank */
    int n;            /* members */
    int me;           /* my index among them */
    const int *ranks; /* [n] world ranks in group order */
} clv_group;

/* A backend: one table, one row of the backends list (comm.c). v-forms: counts and offsets in elements, [n]. */
typedef struct clv_comm_backend {
    const char *name;
    clv_status (*barrier)(clv_comm *comm, const clv_group *group, clv_error *err);
    /* out[i] = reduction over members of in[i]; out may be in itself. */
    clv_status (*all_reduce)(clv_comm *comm, const clv_group *group, void *out, const void *in, int64_t count,
                             clv_dtype dtype, clv_reduction reduction, clv_error *err);
    /* out (counts[me]) = reduction over members of in[offsets[me] ...]; disjoint from in. */
    clv_status (*reduce_scatter)(clv_comm *comm, const clv_group *group, void *out, const void *in,
                                 const int64_t *counts, const int64_t *offsets, clv_dtype dtype,
                                 clv_reduction reduction, clv_error *err);
    /* out[offsets[i] ...] = member i's in (counts[i] elements); disjoint. */
    clv_status (*all_gather)(clv_comm *comm, const clv_group *group, void *out, const void *in, const int64_t *counts,
                             const int64_t *offsets, clv_dtype dtype, clv_error *err);
    /* member i's in[send_offsets_i[me]...] -> out[recv_offsets[i]...], recv_counts[i] elements. */
    clv_status (*all_to_all)(clv_comm *comm, const clv_group *group, void *out, const int64_t *recv_counts,
                             const int64_t *recv_offsets, const void *in, const int64_t *send_counts,
                             const int64_t *send_offsets, clv_dtype dtype, clv_error *err);
    /* out = the in of member `from`, whose in_count is out_count here. A member may be the source of several. */
    clv_status (*permute)(clv_comm *comm, const clv_group *group, void *out, int64_t out_count, const void *in,
                          int64_t in_count, int from, clv_dtype dtype, clv_error *err);
    /* data of member root to all. */
    clv_status (*broadcast)(clv_comm *comm, const clv_group *group, void *data, int64_t count, int root,
                            clv_dtype dtype, clv_error *err);
    /* Optional (NULL where memory is not shared). open publishes `mine`, waits until every member has, and fills
     * peers[n] with their buffers, readable and writable in place until close, which waits until every member is done.
     * Views may be opened again before they are closed; each open needs its close. tag identifies the step (op, dtype,
     * count hashed by the caller): members with different tags get CLV_EPEER. */
    clv_status (*open_views)(clv_comm *comm, const clv_group *group, void *mine, uint64_t tag, void **peers,
                             clv_error *err);
    clv_status (*close_views)(clv_comm *comm, const clv_group *group, clv_error *err);
} clv_comm_backend;

const clv_comm_backend *clv_comm_get_backend(const clv_comm *comm);
int clv_comm_rank(const clv_comm *comm);
int clv_comm_size(const clv_comm *comm);

/* This rank's view of a registered group set; NULL for an id out of range. */
const clv_group *clv_comm_group(const clv_comm *comm, int set);

/* What this rank is doing now, named in others' messages; the string must outlive the world (it is not copied). */
void clv_comm_note(clv_comm *comm, const char *op);

/* Poisons the world with this rank's failure; the first one wins. Ends this rank's open views. Waits, but not beyond
 * 80 ms, until no peer is in a collective or has views open: what a peer may still hold views of after that is to be
 * freed only when its thread has returned. The same holds for a collective that returns a failure. */
void clv_comm_abort(clv_comm *comm, const clv_error *error);

/* ---- a world of threads in this process (threads.c) ---- */

typedef struct clv_world clv_world;

typedef struct clv_world_options {
    int64_t timeout_ms; /* deadline of one collective; 0: 60000 */
    int spin;           /* spin before sleeping: 1 yes, 0 no (more ranks than cores), -1: decide by the cores here */
} clv_world_options;

clv_status clv_world_new(clv_world **out, int ranks, const clv_world_options *options, clv_error *err);
/* After all rank threads have made their last call. Should one be inside a call all the same, waits for it as long as
 * the deadline of a collective, then leaks the world. NULL is a no-op. */
void clv_world_free(clv_world *world);
/* Registers a partition of the ranks: group_of[r] in [0, n_groups); members in ascending rank order unless order[r]
 * (may be NULL) gives each rank's index inside its group. Not while ranks run. Equal partitions share an id. */
clv_status clv_world_add_groups(int *set, clv_world *world, const int *group_of, const int *order, clv_error *err);
/* A rank's endpoint, owned by the world; NULL for a rank out of range. */
clv_comm *clv_world_comm(clv_world *world, int rank);
/* Whether the world is poisoned; fills error (may be NULL) with the first failure. */
int clv_world_failed(const clv_world *world, clv_error *error);

#endif
