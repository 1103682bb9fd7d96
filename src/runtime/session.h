/* session.h - the session's own data, shared by session.c and state.c. */
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
    void **data; /* [n_ranks] */
} clv_named_state;

struct clv_session {
    clv_mesh mesh;
    int n_ranks;
    uint64_t seed;
    clv_state_source *source;
    void *source_arg;
    bool trace, find_nonfinite, check;
    clv_team *team;
    int64_t rank_bytes; /* allocated for each rank */
    int n_group_sets;   /* distinct, of the programs loaded */
    int n_states;
    clv_named_state *states;
    int n_loaded;
    clv_loaded **loaded;
    clv_rank_times *times; /* [n_ranks] */
    clv_session_stats stats;
};

clv_status clv_session_find_state(clv_named_state **out, const clv_session *session, const char *name, clv_error *err);

/* Makes the state that a program names and the session lacks, and brings the rest to the program's layouts; programs
 * loaded before are mapped anew when state moved. */
clv_status clv_session_bring_states(clv_session *session, const clv_program *program, clv_error *err);
void clv_session_free_states(clv_session *session);

/* Points every view of a loaded program at its memory. */
clv_status clv_session_map(clv_session *session, clv_loaded *loaded, clv_error *err);

/* Whether `rank` is the first of the ranks that hold the same shard. */
bool clv_session_first_holder(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int rank);

#endif
