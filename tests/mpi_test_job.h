/* mpi_test_job.h - the job of the MPI launcher under which a test program runs, where CLV_TEST_TRANSPORT says "mpi":
 * all processes run the same tests, with worlds and sessions that are spread over them (ctest -L mpi). */
#ifndef CLEAVE_TESTS_LAUNCHED_H
#define CLEAVE_TESTS_LAUNCHED_H

#include "cleave/job.h"
#include "comm/comm.h"

/* Joined at the first call, left when the program ends; NULL: no launcher is asked for. */
clv_job *launched_job(void);
/* A test has left it itself: nothing of it is used any more. */
void launched_left(void);
/* Blocks of ranks, one a process, as clv_session_new has them. Static; NULL: no job, or fewer ranks than processes. */
const clv_process_links *launched_links(int ranks);

#endif
