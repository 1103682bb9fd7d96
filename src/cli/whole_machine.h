/* whole_machine.h - what a command takes of the machine where -tp, --mesh and -t are not given: all of it. */
#ifndef CLEAVE_CLI_WHOLE_MACHINE_H
#define CLEAVE_CLI_WHOLE_MACHINE_H

#include "cli/mesh_option.h"

/* Fills what was not given: option->tp 0, option->text NULL, *threads 0. With none of them one rank gets a thread on
 * each core that this process may use (affinity, the cgroup's quota, and no more than OMP_NUM_THREADS), else a rank has
 * one thread, and the mesh is model=1. Several processes of a launcher share a machine as the launcher says, so nothing
 * is chosen there. Threads, not ranks: on two quiet cores the two differ by 5 % or less; where others disturb the cores
 * threads lose less, for ranks wait at every collective; and any number of them fits every model.
 * @return how many cores were chosen, 0 where nothing was */
int64_t clv_whole_machine(clv_mesh_option *option, int64_t *threads);

/* Says on stderr what was chosen, if more than one core was. */
void clv_whole_machine_note(int64_t chosen, const char *command);

#endif
