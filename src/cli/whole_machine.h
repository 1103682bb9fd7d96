/* whole_machine.h - what a command takes of the machine where -tp, --mesh and -t are not given: all of it. */
#ifndef CLEAVE_CLI_WHOLE_MACHINE_H
#define CLEAVE_CLI_WHOLE_MACHINE_H

#include "cli/mesh_option.h"

/* ranks x threads cores; 0 x 0: nothing was chosen. */
typedef struct clv_whole_machine {
    int64_t ranks, threads;
    bool sp;
} clv_whole_machine;

/* Whether all of it is taken: nothing was given (option->tp 0, option->text NULL, threads 0), and this process may use
 * more than one core (affinity, the cgroup's quota, and no more than OMP_NUM_THREADS). Several processes of a launcher
 * share a machine as the launcher says, so nothing is chosen there. */
bool clv_whole_machine_is_taken(const clv_mesh_option *option, int64_t threads);

/* As many ranks as divide both, so that all have the same to do, each with threads on its share of the cores; at most
 * 8, as more were not measured. Ranks, for they work side by side from one collective to the next, where threads meet
 * at each op: on two cores ranks are as fast or faster in nearly every row of docs/performance.md. sp: not chosen. */
clv_whole_machine clv_whole_machine_split(int64_t cores, int64_t kv_heads);

/* Fills what was not given. Where the machine is taken, it is split so, and sequences among the ranks, too, as --sp
 * does, where they are whole: between products each rank then has its part of the tokens to do, not all of them. With
 * --rules that may want other axes than -tp's it is split among threads alone. Else a rank has one thread, and the mesh
 * is model=1. */
clv_whole_machine clv_whole_machine_fill(clv_mesh_option *option, int64_t *threads, int64_t kv_heads);

/* Says on stderr what was chosen, if anything was. */
void clv_whole_machine_note(clv_whole_machine chosen, const char *command);

#endif
