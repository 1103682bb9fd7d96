/* allreduce_program.h - the all-reduce benchmark program, shared by `cleave bench allreduce` and
 * bench/allreduce_mpi.c.
 */
#ifndef CLEAVE_CLI_BENCH_ALLREDUCE_PROGRAM_H
#define CLEAVE_CLI_BENCH_ALLREDUCE_PROGRAM_H

#include <stdbool.h>

#include "cleave/session.h"

enum { CLV_ALLREDUCE_ROUNDS = 10 };

/* Sums the rows of a table of ones, [ranks, count] f32, of which each rank holds one, CLV_ALLREDUCE_ROUNDS times over
 * by an all_reduce, each time times the last sum: each is met by ranks that have just written what it sums, as in a
 * model. Right before each the ranks meet, in an all_reduce of one element: else those that share a core would wait
 * there for each other's ops. Outputs "sum" and "met". */
clv_status clv_allreduce_program(clv_program **out, int ranks, int64_t count, clv_error *err);

/* Of the session's runs since its stats were taken last, which takes them: seconds of each sum. false: the program's
 * steps are not those sums. */
bool clv_allreduce_seconds(double took[CLV_ALLREDUCE_ROUNDS], clv_session *session, const clv_program *program);

#endif
