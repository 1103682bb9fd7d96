/* session.h - the session's own data, shared by session.c, load.c and state.c. */
#ifndef CLEAVE_RUNTIME_SESSION_H
#define CLEAVE_RUNTIME_SESSION_H

#include "cleave/session.h"
#include "runtime/executor.h"
#include "runtime/team.h"

/* Named state: one buffer a rank, in one layout at a time. */
typedef struct clv_named_state {
    char *name;
    clv_type type;
    clv_layout layout;
    void **data;        /* [n_ranks] */
    clv_window *window; /* over data; NULL: the transport takes none */
} clv_named_state;

struct clv_session {
    clv_mesh mesh;
    int n_ranks;
    uint64_t seed;
    clv_state_source *source;
    void *source_arg;
    bool trace, find_nonfinite, check;
    clv_team *team;
    const clv_transport *transport;
    int everyone;       /* the group set of all ranks */
    int64_t rank_bytes; /* allocated for each rank */
    int n_states;
    clv_named_state *states;
    int n_loaded;
    clv_loaded **loaded;
    clv_rank_times *times; /* [n_ranks] */
    clv_session_stats stats;
};

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err);

/* Makes the state that a program names and the session lacks, and brings the rest to the program's layouts; programs
 * loaded before are to be mapped anew when state moved. */
clv_status clv_session_bring_states(clv_session *session, const clv_program *program, clv_error *err);
void clv_session_free_states(clv_session *session);

/* ---- load.c ---- */

/* The program as it was loaded, or loads it; with its state brought, ready to run. */
clv_status clv_session_find_loaded(clv_loaded **out, clv_session *session, const clv_program *program, clv_error *err);
/* Forgets where state was. */
void clv_loaded_unmap(clv_loaded *loaded);
void clv_loaded_free(clv_loaded *loaded);
/* A window over memory of all ranks; NULL where the transport takes none. */
clv_status clv_session_add_window(clv_window **out, const clv_session *session, void *const *memory, clv_error *err);
void clv_session_free_window(const clv_session *session, clv_window *window);

/* Whether `rank` is the first of the ranks that hold the same shard. */
bool clv_session_first_holder(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank);

#endif
