/* sum_program.h - the program whose sums `bench allreduce` times, and bench/allreduce_mpi.c. */
#ifndef CLEAVE_CLI_SUM_PROGRAM_H
#define CLEAVE_CLI_SUM_PROGRAM_H

#include "cleave/program.h"

enum { CLV_SUM_ROUNDS = 10 };

/* Sums the rows of a table of ones, [ranks, count] f32, of which each rank holds one, CLV_SUM_ROUNDS times over, each
 * time times the last sum: each step is met by ranks that have just written what it sums, as in a model. Output "sum".
 */
clv_status clv_sum_program(clv_program **out, int ranks, int64_t count, clv_error *err);

#endif
