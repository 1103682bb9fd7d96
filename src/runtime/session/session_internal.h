/* session_internal.h - struct clv_session and the functions that session, state, multi-process and SPMD files share. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/session.h"
#include "runtime/session/executor.h"
#include "runtime/session/rank_threads.h"

/* clv_session_new for a mesh whose ranks are in several processes (links NULL: in this one). All processes make the
 * same calls of sessions in the same order. */
clv_status clv_session_new_with_links(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                      const struct clv_process_links *links, clv_error *err);

/* A tensor that the session's ranks hold: one buffer per rank, in one layout at a time. */
typedef struct clv_named_state {
    char *name;
    clv_type type;
    clv_layout layout;
    void **data;        /* [n_local_ranks] */
    clv_window *window; /* over data; NULL: the transport uses none */
} clv_named_state;

/* Memory that a late rank may still use after a failure; a session has at most one. */
typedef struct clv_abandoned_exchange {
    clv_prepared_collective **collectives; /* [n_local_ranks] */
    void **staging;                        /* [n_local_ranks] */
    void *scratch;
    clv_named_state state;
} clv_abandoned_exchange;

struct clv_session {
    clv_mesh mesh;
    int n_ranks;                         /* of all processes */
    int first_local_rank, n_local_ranks; /* the ranks of this process */
    clv_session_options options;         /* zeros in a snapshot */
    clv_rank_threads *team;              /* NULL: a snapshot */
    const clv_device_backend *backend;
    const clv_device **devices; /* [n_local_ranks]; NULL: not open */
    const clv_transport *transport;
    int all_ranks_set; /* the group set with all ranks in one group */
    int n_states;
    int64_t states_capacity;
    clv_named_state *states;
    int n_loaded;
    clv_loaded_program **loaded;
    clv_rank_times *times;             /* [n_local_ranks] */
    clv_abandoned_exchange *abandoned; /* freed after the team has ended */
    struct clv_spmd_context *spmd;     /* spmd_internal.h; NULL: no function has run */
    clv_session_stats stats;
    struct clv_trace_recorder *tracer; /* trace_recorder.h; NULL: no trace is recorded */
    uint64_t run;                      /* id of the run: the same in all processes; 0: unknown */
    _Atomic int *in_use;               /* 1 while a call uses the session; a pointer, as calls that only read set it */
};

/* ---- session_status.c ---- */

/* Try-lock: CLV_EINVAL if another call uses the session. */
clv_status clv_session_try_lock(const clv_session *session, const char *call, clv_error *err);
void clv_session_unlock(const clv_session *session);

bool clv_session_has_failed(const clv_session *session);

/* ---- session_state.c ---- */

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err);

/* Creates the states that a program names and the session lacks, and reshards the others to the program's layouts.
 * Where state moves, loaded programs discard views and prepared collectives. */
clv_status clv_session_prepare_states(clv_session *session, const clv_program *program, clv_error *err);
void clv_session_free_states(clv_session *session);
/* Makes a state with memory for the largest shard on every local rank, or only on those that are first replicas. */
clv_status clv_session_allocate_state(clv_named_state *out, const clv_session *session, const char *name,
                                      const clv_type *type, const clv_layout *layout, bool first_replicas,
                                      clv_error *err);

/* Where the values of a rank's shard come from. */
typedef struct clv_state_values {
    clv_state_source *source; /* NULL: none */
    void *source_arg;
    const char *name;     /* by which the source and random numbers know the state */
    const clv_init *init; /* used if the source does not know the state; NULL: that is CLV_ENOTFOUND */
} clv_state_values;
/* Fills a rank's shard of a state, on the rank's thread. */
clv_status clv_session_fill_state(const clv_session *session, const clv_named_state *state,
                                  const clv_state_values *from, int rank, clv_error *err);

/* Registers memory of all ranks with the transport; NULL if it uses no windows. */
clv_status clv_session_register_memory(clv_window **out, const clv_session *session, void *const *memory,
                                       clv_error *err);
/* ---- load_program.c ---- */

/* Returns the loaded program, ready to run; loads it if it is not. */
clv_status clv_session_find_or_load(clv_loaded_program **out, clv_session *session, const clv_program *program,
                                    clv_error *err);
void clv_loaded_program_free(clv_loaded_program *loaded);
/* The group set in which ranks that differ only on these axes form a group, ordered by their coordinates, first axis
 * major. stages: bits of the coordinates on the first axis whose ranks are members, others are alone; 0: all. Not while
 * ranks run. */
clv_status clv_session_add_groups(int *set, const clv_session *session, const clv_subaxis *axes, int n_axes,
                                  uint32_t stages, clv_error *err);

/* ---- rank_exchange.c ---- */

/* Staging for a rank's collectives; free with free(). */
void *clv_staging_alloc(int64_t bytes);

/* A transfer between all ranks outside of programs, which all processes make. Windows as in clv_transfer. */
typedef struct clv_rank_exchange {
    const char *what; /* for messages: a constant */
    uint64_t tag;     /* of the tensor: processes that name different ones fail */
    clv_dtype dtype;
    const clv_shard *in, *out;                                /* [n_ranks] */
    void *const *in_data, *const *out_data;                   /* [n_local_ranks] */
    const clv_device *const *in_devices, *const *out_devices; /* [n_local_ranks] that own the data; NULL: the host */
    const clv_window *in_window, *out_window;
    void *scratch; /* optional memory that ranks use; freed by the exchange, or with the session */
} clv_rank_exchange;

/* After a failure, the memory that the exchange names must stay until the session's team has ended. */
clv_status clv_session_exchange(const clv_session *session, const clv_rank_exchange *x, clv_error *err);

/* Frees the memory of an exchange that failed, but its state. */
void clv_session_free_abandoned(clv_session *session);

/* Whether the caller's thread can read the memory of all ranks. If not, fetch what other ranks hold. */
bool clv_session_shares_memory(const clv_session *session);

/* Copies a box of a tensor to `out` in every process. All processes ask for the same box at the same time. devices:
 * that own tensor->data; NULL: the host. `tag`: of the tensor. */
clv_status clv_session_fetch(const clv_session *session, uint64_t tag, const clv_named_state *tensor,
                             const clv_device *const *devices, const clv_shard *box, void *out, clv_error *err);

/* CLV_EPEER, naming the tensor, unless the ranks of this process hold all of the box. */
clv_status clv_session_check_local(const clv_session *session, const char *name, const clv_type *type,
                                   const clv_layout *layout, const clv_shard *box, clv_error *err);

/* Copies a box from the ranks of this process, after clv_session_check_local. */
clv_status clv_session_copy_local(const clv_session *session, const clv_named_state *tensor,
                                  const clv_device *const *devices, const clv_shard *box, void *out, clv_error *err);

/* The shards of ranks [first, end); a clv_box_iterator (run_bindings.h). */
typedef struct clv_rank_shards {
    const clv_mesh *mesh;
    const clv_type *type;
    const clv_layout *layout;
    int first, end;
} clv_rank_shards;
bool clv_rank_shards_next(clv_shard *out, int *i, const void *arg);

/* Whether `rank` is the first of the ranks that hold the same shard. */
bool clv_rank_is_first_replica(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank);

/* ---- process_agreement.c ---- */

/* Ends a call that all processes make. If it failed in this process only, the others, which would wait for its ranks,
 * are notified and the session fails. Returns `status`. */
clv_status clv_session_finish_call(const clv_session *session, const char *call, clv_status status,
                                   const clv_error *why, clv_error *err);

/* A value that must be the same in all processes. */
enum { CLV_MUST_MATCH_MAX = 4 };
typedef struct clv_must_match {
    int64_t value;
    const char *what; /* ends a message that begins "another": "program than that of ..." */
} clv_must_match;

/* Compares n values, at most CLV_MUST_MATCH_MAX. CLV_EPEER in all processes, naming the ranks of those that differ from
 * the majority. `what`: for messages, a constant. */
clv_status clv_session_check_match(const clv_session *session, const char *call, const char *what,
                                   const clv_must_match *mine, int n, clv_error *err);
/* Compares the digest of a program and the session's seed. */
clv_status clv_session_check_same_program(const clv_session *session, uint64_t digest, clv_error *err);

/* ---- flight_dump.c ---- */

/* Writes the flight recorder dump after a failed call, whose failure is *why. */
void clv_flight_dump_on_failure(const clv_session *session, const clv_error *why);
/* Writes the flight recorder dump before the session is freed. */
void clv_flight_dump_on_end(const clv_session *session);
