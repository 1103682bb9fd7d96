/* auto_parallelism.h - default ranks and threads when none of -tp, --mesh, --threads is given: all cores of the
 * machine.
 */
#ifndef CLEAVE_CLI_OPTIONS_AUTO_PARALLELISM_H
#define CLEAVE_CLI_OPTIONS_AUTO_PARALLELISM_H

#include "cli/options/mesh_options.h"

/* ranks x threads cores; 0 x 0: nothing was chosen. */
typedef struct clv_auto_parallelism {
    int64_t ranks, threads;
    bool sp;
} clv_auto_parallelism;

/* Whether all of it is taken: nothing was given (option->tp 0, option->text NULL, threads 0), and this process may use
 * more than one core (affinity, the cgroup's quota, and no more than OMP_NUM_THREADS). Several processes of a launcher
 * share a machine as the launcher says, so nothing is chosen there. */
bool clv_auto_parallelism_applies(const clv_mesh_option *option, int64_t threads);

/* As many ranks as divide both, so that all have the same to do, each with threads on its share of the cores; at most
 * 8, as more were not measured. Ranks, for they work side by side from one collective to the next, where threads meet
 * at each op: on two cores ranks are as fast or faster in nearly every row of docs/performance.md. sp: not chosen. */
clv_auto_parallelism clv_auto_parallelism_choose(int64_t cores, int64_t kv_heads);

/* Fills what was not given. Where the machine is taken, it is split so, and sequences among the ranks, too, as --sp
 * does, where they are whole: between products each rank then has its part of the tokens to do, not all of them. With
 * --rules that may want other axes than -tp's it is split among threads alone. Else a rank has one thread, and the mesh
 * is model=1. */
clv_auto_parallelism clv_auto_parallelism_fill(clv_mesh_option *option, int64_t *threads, int64_t kv_heads);

/* Says on stderr what was chosen, if anything was. */
void clv_auto_parallelism_print(clv_auto_parallelism chosen, const char *command);

#endif
