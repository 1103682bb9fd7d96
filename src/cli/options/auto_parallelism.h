/* auto_parallelism.h - chooses ranks and threads when none of -tp, --mesh, --threads is given: all cores of the
 * machine. */
#pragma once

#include "cli/options/mesh_options.h"

/* The choice: ranks x threads cores; zeros: none was made. */
typedef struct clv_auto_parallelism {
    int64_t ranks, threads;
    bool sp;
} clv_auto_parallelism;

/* Whether ranks and threads are chosen automatically: none was given (option->tp 0, option->text NULL, threads 0), and
 * this process may use several cores (affinity, cgroup quota, OMP_NUM_THREADS). Never under a launcher with several
 * processes, which divides the machine itself. */
bool clv_auto_parallelism_applies(const clv_mesh_option *option, int64_t threads);

/* The most ranks, up to 8, that divide both numbers, so that all have equal work, each with its share of the cores as
 * threads. Ranks are preferred to threads: they synchronize at collectives, threads at every op; on two cores ranks are
 * as fast or faster in nearly every row of docs/performance.md. sp: not set. */
clv_auto_parallelism clv_auto_parallelism_choose(int64_t cores, int64_t kv_heads);

/* Sets option->tp and *threads where they were not given: the automatic choice if it applies, with sequence parallelism
 * (--sp) unless the command generates tokens; with --rules for other axes than -tp's, threads alone. Else 1 and 1. */
clv_auto_parallelism clv_auto_parallelism_fill(clv_mesh_option *option, int64_t *threads, int64_t kv_heads);

/* Prints the choice on stderr, if one was made. */
void clv_auto_parallelism_print(clv_auto_parallelism chosen, const char *command);
