/* forked_ranks.h - sessions whose ranks are in several processes, made by fork and joined by sockets; or those
 * of an MPI job, when a launcher started the test (mpi_test_job.h). */
#ifndef CLEAVE_TESTS_PROCESSES_H
#define CLEAVE_TESTS_PROCESSES_H

#include "comm/comm.h"
#include "runtime/session/session_internal.h"

enum { MOST_PROCESSES = 6, PATIENCE = 60 /* seconds of a process */ };

/* What each process runs; in a child, so it says itself what is wrong and does not return to the tests. */
typedef void child_fn(const clv_process_links *links, void *arg);

/* Ends the process where something is not so. */
void check(bool ok, const clv_process_links *links, const char *what, const clv_error *err);

/* first[p]: the first rank of process p; first[processes]: their number. All must end well, but for `lost`, which ends
 * by itself; -1: none. */
void in_processes(const int *first, int processes, child_fn *fn, void *arg, int lost);

/* Six ranks, in ways; the first is one process. */
enum { SPLITS = 5 };
extern const int splits[SPLITS][MOST_PROCESSES + 1], counts[SPLITS];

/* Whether a rank is of this process. */
bool is_here(const clv_process_links *links, int rank);

const char *transport_of(const clv_process_links *links);

/* Ends the process where it fails; links NULL: all ranks are here, by threads. */
clv_session *new_session(const clv_mesh *mesh, const clv_process_links *links, int64_t timeout_ms, int checked);

/* Of a clock that only goes on. */
double seconds_now(void);

#endif
