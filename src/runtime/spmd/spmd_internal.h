/* spmd_internal.h - per-session SPMD data: group sets, rank communicators, cached collective plans. */
#pragma once

#include "cleave/spmd.h"
#include "runtime/session/session_internal.h"

/* The ranks that differ on these sub-axes alone. */
typedef struct clv_spmd_group_set {
    int n;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /* as layouts have partial ones: in the mesh's order */
    int group_set;                     /* group set of the world */
} clv_spmd_group_set;

/* A planned collective of a rank. Lives as long as the session, as other ranks name it in messages. */
typedef struct clv_spmd_cached_collective {
    struct clv_spmd_cached_collective *next;
    uint64_t hash; /* of text */
    char *text;    /* the cache key: everything that the plan depends on */
    char *what;    /* beginning of the text, for messages */
    clv_prepared_collective *prepared;
    clv_layout layout; /* of the result, as are shard and source_ranks */
    clv_shard shard;
    const int *source_ranks;
    int *owned_source_ranks; /* what source_ranks points to, if this call allocated it */
    bool zeros;              /* no rank sends to this one */
    clv_collective info;
} clv_spmd_cached_collective;

/* Header of a local tensor's memory. */
typedef struct clv_spmd_allocation {
    struct clv_spmd_allocation *next, **before;
} clv_spmd_allocation;

struct clv_spmd {
    struct clv_spmd_context *context;
    clv_comm *comm;
    int rank;
    clv_spmd_cached_collective *cache; /* the newest first */
    void *staging;
    int64_t staging_bytes;
    clv_spmd_allocation *blocks; /* of the current function */
    int64_t capacity;
    int n_called; /* collectives of the last run, on the first local rank only */
    const clv_spmd_cached_collective **called;
};

/* A call of clv_spmd_run. */
typedef struct clv_spmd_invocation {
    struct clv_spmd_context *context;
    clv_spmd_function *function;
    void *arg;
    int n_inputs, n_outputs;
    const clv_spmd_input *inputs;
    const clv_spmd_output *outputs;
    clv_layout *layouts;      /* [n_inputs + n_outputs] */
    clv_local_tensor *locals; /* [n_local_ranks * (n_inputs + n_outputs)] */
} clv_spmd_invocation;

typedef struct clv_spmd_context {
    clv_session *session;
    clv_spmd_invocation job; /* the current one, or the one that failed */
    int n_groups;
    int64_t groups_capacity;
    clv_spmd_group_set *groups;
    clv_spmd *ranks; /* [n_local_ranks] */
} clv_spmd_context;

void clv_spmd_context_free(clv_spmd_context *context);

/* Arguments of a collective. */
typedef struct clv_spmd_request {
    clv_step_kind kind;
    const char *name;  /* for messages */
    bool is_broadcast; /* all pairs are from one member */
    bool is_barrier;   /* moves no data of the caller */
    const clv_local_tensor *in;
    clv_reduction reduction;
    int dim; /* dimension that becomes sharded; -1: none */
    const char *axes;
    const clv_spmd_pair *pairs; /* of a permute */
    int n_pairs;
} clv_spmd_request;

/* ---- spmd_collective_plan.c ---- */

/* Parses axes; the group set is not looked up. */
clv_status clv_spmd_parse_axes(clv_spmd_group_set *out, const clv_mesh *mesh, const char *axes, clv_error *err);
/* Writes the axes over which a layout is partial as such a text: "x,y:(2)2"; size: CLV_LAYOUT_TEXT. */
void clv_spmd_partial_axes(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh);
/* The group set over these sub-axes; NULL: none was added. */
clv_spmd_group_set *clv_spmd_find_group_set(const clv_spmd_context *context, const clv_subaxis *axes, int n);
/* Finds the group set over the axes that a text names. */
clv_status clv_spmd_parse_group_set(const clv_spmd_group_set **out, const clv_spmd *spmd, const char *axes,
                                    clv_error *err);
/* Returns the planned collective from the cache, or plans it. */
clv_status clv_spmd_find_or_plan_collective(clv_spmd_cached_collective **out, clv_spmd *spmd, const clv_spmd_request *q,
                                            clv_error *err);
void clv_spmd_free_cached_collectives(clv_spmd *spmd);

/* ---- spmd_collectives.c ---- */

/* The rank's local tensor under a layout, without memory. */
clv_local_tensor clv_spmd_local_tensor(const clv_spmd *spmd, const clv_type *type, const clv_layout *layout);
/* Checks the shape of a tensor, and that the layout fits it. */
clv_status clv_spmd_check_tensor(const clv_type *type, const clv_layout *layout, const clv_mesh *mesh, clv_error *err);
/* Allocates the memory of a local tensor's shard. */
clv_status clv_spmd_allocate(clv_local_tensor *local, clv_spmd *spmd, bool zeros, clv_error *err);
void clv_spmd_free_allocations(clv_spmd *spmd);
