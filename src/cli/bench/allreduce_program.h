/* allreduce_program.h - makes the all-reduce benchmark program, shared by `cleave bench allreduce` and
 * bench/allreduce_mpi.c. */
#pragma once

#include <stdbool.h>

#include "cleave/session.h"

enum { CLV_ALLREDUCE_ROUNDS = 10 };

/* A chain of CLV_ALLREDUCE_ROUNDS all_reduces over [ranks, count] f32, one row a rank, each of ones times the last sum:
 * as in a model, ranks have just written what is summed. Before each one an all_reduce of one element synchronizes the
 * ranks, so that ranks which share a core do not wait for each other's ops. Outputs "sum" and "met". */
clv_status clv_allreduce_program(clv_program **out, int ranks, int64_t count, clv_error *err);

/* Seconds of each all_reduce since the session's stats were last taken, which it takes. False: the program has other
 * collectives. */
bool clv_allreduce_take_seconds(double took[CLV_ALLREDUCE_ROUNDS], clv_session *session, const clv_program *program);
