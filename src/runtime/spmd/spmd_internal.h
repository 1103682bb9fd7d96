/* spmd_internal.h - per-session SPMD data: group sets, rank communicators, cached collective plans. */
#ifndef CLEAVE_RUNTIME_SPMD_SPMD_INTERNAL_H
#define CLEAVE_RUNTIME_SPMD_SPMD_INTERNAL_H

#include "cleave/spmd.h"
#include "runtime/session/session_internal.h"

/* The ranks that differ on these sub-axes alone. */
typedef struct clv_spmd_group_set {
    int n;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /* as layouts have partial ones: in the mesh's order */
    int set;                           /* the world's */
} clv_spmd_group_set;

/* A collective as a rank has made it before. Lives as long as the session: peers name it in messages. */
typedef struct clv_spmd_cached_collective {
    struct clv_spmd_cached_collective *next;
    uint64_t hash; /* of text */
    char *text;    /* the whole call, and nothing else, decides the plan */
    char *what;    /* its beginning, for messages */
    clv_plan *plan;
    clv_layout layout; /* of the result, and from as clv_local_tensor has it */
    clv_shard shard;
    const int *source_ranks;
    int *owned_source_ranks; /* what from points to, if the call made it */
    bool zeros;              /* nobody sends to this rank */
    clv_collective made;
} clv_spmd_cached_collective;

/* Memory of a local, and what lies before it. */
typedef struct clv_spmd_allocation {
    struct clv_spmd_allocation *next, **before;
} clv_spmd_allocation;

struct clv_spmd {
    struct clv_spmd_context *world;
    clv_comm *comm;
    int rank;
    clv_spmd_cached_collective *calls; /* the latest first */
    void *staging;
    int64_t staging_bytes;
    clv_spmd_allocation *blocks; /* of the function that runs */
    int n_made, room;            /* collectives of the last run, noted by the first rank here alone */
    const clv_spmd_cached_collective **made;
};

/* A run. */
typedef struct clv_spmd_invocation {
    struct clv_spmd_context *world;
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
    clv_spmd_invocation job; /* the last, while it runs or after it failed */
    int n_groups;
    clv_spmd_group_set *groups;
    clv_spmd *ranks; /* [n_local_ranks] */
} clv_spmd_context;

void clv_spmd_context_free(clv_spmd_context *world);

/* What a collective does with its operand. */
typedef struct clv_spmd_request {
    clv_step_kind kind;
    const char *name;  /* for messages */
    bool is_broadcast; /* all pairs are from one member */
    bool is_barrier;   /* what it moves is not the caller's */
    const clv_local_tensor *in;
    clv_reduction reduction;
    int dim; /* that is cut further; -1: none */
    const char *axes;
    const clv_spmd_pair *pairs; /* a permute's */
    int n_pairs;
} clv_spmd_request;

/* ---- spmd_collective_plan.c ---- */

/* The sub-axes that a text names. */
clv_status clv_spmd_parse_axes(clv_spmd_group_set *out, const clv_mesh *mesh, const char *axes, clv_error *err);
/* Writes the axes over which a layout is partial as such a text: "x,y:(2)2"; size: CLV_LAYOUT_TEXT. */
void clv_spmd_partial_axes(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh);
/* The group set over these sub-axes; NULL: none is ready. */
clv_spmd_group_set *clv_spmd_find_group_set(const clv_spmd_context *world, const clv_subaxis *axes, int n);
/* The group set over the axes that a text names. */
clv_status clv_spmd_parse_group_set(const clv_spmd_group_set **out, const clv_spmd *spmd, const char *axes,
                                    clv_error *err);
/* The call as it was made before, or makes it. */
clv_status clv_spmd_plan_collective(clv_spmd_cached_collective **out, clv_spmd *spmd, const clv_spmd_request *q,
                                    clv_error *err);
void clv_spmd_free_cached_collectives(clv_spmd *spmd);

/* ---- spmd_collectives.c ---- */

/* What a rank holds under a layout. */
clv_local_tensor clv_spmd_local_tensor(const clv_spmd *spmd, const clv_type *type, const clv_layout *layout);
/* Memory for what a local's shard holds. */
clv_status clv_spmd_allocate(clv_local_tensor *local, clv_spmd *spmd, bool zeros, clv_error *err);
void clv_spmd_free_allocations(clv_spmd *spmd);

#endif
