/* mpi_test_job.h - the MPI job of a test program that a launcher started with CLV_TEST_TRANSPORT=mpi: all processes run
 * the same tests, with worlds and sessions that are spread over them (ctest -L mpi).
 */
#pragma once

#include "cleave/job.h"
#include "comm/comm.h"

/* Joins at the first call, and leaves when the program ends; NULL: the test was not started by a launcher. */
clv_job *launched_job(void);
/* Called by a test that has left the job itself. */
void launched_left(void);
/* Blocks of ranks per process, as in clv_session_new; static. NULL: no job, or fewer ranks than processes. */
const clv_process_links *launched_links(int ranks);
