/* forked_ranks.h - sessions whose ranks are in several processes: made by fork and connected by sockets, or those of an
 * MPI job if a launcher started the test (mpi_test_job.h).
 */
#pragma once

#include "comm/comm.h"
#include "runtime/session/session_internal.h"

enum { MOST_PROCESSES = 6, PATIENCE = 60 /* seconds of a process */ };

/* Run in each process; a child, so it must report failures itself (check). */
typedef void child_fn(const clv_process_links *links, void *arg);

/* Prints what failed and ends the process unless ok. */
void check(bool ok, const clv_process_links *links, const char *what, const clv_error *err);

/* Runs fn in each process. first[p]: the first rank of process p; first[processes]: the number of ranks. All processes
 * must succeed, except `lost`; -1: none. */
void in_processes(const int *first, int processes, child_fn *fn, void *arg, int lost);

/* Ways to spread six ranks over processes; the first has one process. */
enum { SPLITS = 5 };
extern const int splits[SPLITS][MOST_PROCESSES + 1], counts[SPLITS];

/* Whether a rank is of this process. */
bool is_here(const clv_process_links *links, int rank);

const char *transport_of(const clv_process_links *links);

/* Ends the process if it fails; links NULL: all ranks are threads of this process. */
clv_session *new_session(const clv_mesh *mesh, const clv_process_links *links, int64_t timeout_ms, int checked);

/* Monotonic clock. */
double seconds_now(void);
