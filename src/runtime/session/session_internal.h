/* session_internal.h - struct clv_session and the functions that session, state, multi-process and SPMD files share. */
#ifndef CLEAVE_RUNTIME_SESSION_SESSION_INTERNAL_H
#define CLEAVE_RUNTIME_SESSION_SESSION_INTERNAL_H

#include "cleave/session.h"
#include "runtime/session/executor.h"
#include "runtime/session/rank_threads.h"

/* As clv_session_new, of a mesh whose ranks are in several processes: all make the same calls of sessions in the same
 * order. */
clv_status clv_session_new_with_links(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                      const struct clv_process_links *links, clv_error *err);

/* Named state: one buffer a rank, in one layout at a time. */
typedef struct clv_named_state {
    char *name;
    clv_type type;
    clv_layout layout;
    void **data;        /* [n_local_ranks] */
    clv_window *window; /* over data; NULL: the transport takes none */
} clv_named_state;

/* What a rank may yet be in when another has failed; there is one such failure in a session's life. */
typedef struct clv_abandoned_exchange {
    clv_plan **plans; /* [n_local_ranks] */
    void **staging;   /* [n_local_ranks] */
    void *scratch;
    clv_named_state state;
} clv_abandoned_exchange;

struct clv_session {
    clv_mesh mesh;
    int n_ranks;                         /* of all processes */
    int first_local_rank, n_local_ranks; /* those of this one: [first, first + here) */
    uint64_t seed;
    clv_state_source *source;
    void *source_arg;
    bool trace, find_nonfinite, check;
    const clv_cancel *cancel; /* NULL: none */
    int threads_per_rank;
    clv_rank_threads *team;
    const clv_device_backend *backend;
    const clv_device **devices; /* [n_local_ranks]; NULL: not open */
    const clv_transport *transport;
    int all_ranks_set;  /* the group set of all ranks */
    int64_t rank_bytes; /* allocated for each rank */
    int n_states;
    clv_named_state *states;
    int n_loaded;
    clv_loaded_program **loaded;
    clv_rank_times *times;             /* [n_local_ranks] */
    clv_abandoned_exchange *abandoned; /* freed when the team has ended */
    struct clv_spmd_context *spmd;     /* spmd_internal.h; NULL: no function was run */
    clv_session_stats stats;
    clv_flight *flight;                /* NULL: none */
    struct clv_trace_recorder *tracer; /* trace_recorder.h; NULL: nothing is recorded */
    uint64_t run;                      /* tells runs apart: the same in all processes; 0: not known */
    _Atomic int *in_use;               /* by a call; apart, as calls that only read take it, too */
};

/* ---- exclusive_use.c ---- */

/* One call at a time uses a session: CLV_EINVAL when another does. Whoever entered leaves. */
clv_status clv_session_acquire(const clv_session *session, const char *call, clv_error *err);
void clv_session_release(const clv_session *session);

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err);

/* Makes the state that a program names and the session lacks, and brings the rest to the program's layouts; programs
 * loaded before are to be mapped anew when state moved. */
clv_status clv_session_prepare_states(clv_session *session, const clv_program *program, clv_error *err);
void clv_session_free_states(clv_session *session);

/* ---- state_memory.c ---- */

/* Gives a state that has a type and a layout room for the largest shard on every rank. */
clv_status clv_session_allocate_state(clv_named_state *state, const clv_session *session, clv_error *err);
void clv_session_free_state(const clv_session *session, clv_named_state *state);
/* A window over memory of all ranks; NULL where the transport takes none. */
clv_status clv_session_register_memory(clv_window **out, const clv_session *session, void *const *memory,
                                       clv_error *err);
/* Staging for a rank's steps; free with free(). */
void *clv_staging_alloc(int64_t bytes);

/* ---- load_program.c ---- */

/* The program as it was loaded, or loads it; with its state brought, ready to run. */
clv_status clv_session_find_or_load(clv_loaded_program **out, clv_session *session, const clv_program *program,
                                    clv_error *err);
void clv_loaded_program_free(clv_loaded_program *loaded);
/* The group set in which ranks that differ only on these axes form a group, ordered by their coordinates, first axis
 * major. Not while ranks run. */
clv_status clv_session_add_groups(int *set, const clv_session *session, const clv_subaxis *axes, int n_axes,
                                  clv_error *err);

/* ---- rank_exchange.c ---- */

/* A step of all ranks, none of which has failed, outside of programs: all processes make the same. Windows as in
 * clv_transfer. */
typedef struct clv_rank_exchange {
    const char *what; /* for messages: a constant */
    uint64_t tag;     /* of the tensor: processes that do not name the same one fail */
    clv_dtype dtype;
    const clv_shard *in, *out;              /* [n_ranks] */
    void *const *in_data, *const *out_data; /* [n_local_ranks] */
    const clv_device *const *in_devices,
        *const *out_devices; /* [n_local_ranks] in whose memory they are; NULL: the host's */
    const clv_window *in_window, *out_window;
    void *scratch; /* that ranks may need; freed here, or with the session */
} clv_rank_exchange;

/* Once the world has failed, what the exchange names is to stay until the session's team has ended. */
clv_status clv_session_exchange(const clv_session *session, const clv_rank_exchange *x, clv_error *err);

void clv_session_free_abandoned(clv_session *session);

bool clv_session_failed(const clv_session *session);

/* Whether the caller's thread reaches the memory of all ranks; if not, what others hold is fetched. */
bool clv_session_shares_memory(const clv_session *session);

/* Brings the elements of a box of a tensor, of which data[i] is the shard of rank first + i, to `out` through the first
 * rank of this process; and of every other, which asks for the same box at the same time. devices[i]: in whose memory
 * data[i] is; NULL: the host's. `tag`: of the tensor. */
clv_status clv_session_fetch(const clv_session *session, uint64_t tag, const clv_type *type, const clv_layout *layout,
                             const clv_device *const *devices, void *const *data, const clv_shard *box, void *out,
                             clv_error *err);

/* CLV_EPEER, naming the tensor, unless the ranks of this process hold all of a box of it. */
clv_status clv_session_check_local(const clv_session *session, const char *name, const clv_type *type,
                                   const clv_layout *layout, const clv_shard *box, clv_error *err);

/* clv_session_fetch from the ranks of this process alone, which clv_session_check_local must allow. */
clv_status clv_session_copy_local(const clv_session *session, const char *name, const clv_type *type,
                                  const clv_layout *layout, const clv_device *const *devices, void *const *data,
                                  const clv_shard *box, void *out, clv_error *err);

/* ---- process_agreement.c ---- */

/* What a call of all processes gives back: where this one failed by itself, the others are told, whose ranks would wait
 * for these else, and the session has failed. */
clv_status clv_session_finish_call(const clv_session *session, const char *call, clv_status status,
                                   const clv_error *why, clv_error *err);

/* What each rank's process says, for all to know: n words of mine; all: [n_ranks][n]. `what` as in clv_rank_exchange.
 * */
clv_status clv_session_allgather_unlocked(const clv_session *session, const char *what, const int64_t *mine, int n,
                                          int64_t *all, clv_error *err);

/* A word that all processes are to say alike, and what it is of which some say another: "program than that of ...". */
typedef struct clv_must_match {
    int64_t word;
    const char *is;
} clv_must_match;

/* CLV_EPEER in all processes, naming the ranks of those that say otherwise; of n words, at most 4. `what` as in
 * clv_rank_exchange. */
clv_status clv_session_check_match(const clv_session *session, const char *call, const char *what,
                                   const clv_must_match *mine, int n, clv_error *err);
/* The same of a program and the seed. */
clv_status clv_session_check_same_program(const clv_session *session, uint64_t digest, clv_error *err);

/* Whether `rank` is the first of the ranks that hold the same shard. */
bool clv_rank_is_first_replica(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank);

#endif
