/* kernel.h - which kernel runs the op of an instruction: the device's, or, where it lists none, the host's on copies.
 */
#ifndef CLEAVE_RUNTIME_KERNEL_H
#define CLEAVE_RUNTIME_KERNEL_H

#include "runtime/executor.h"

/* Chooses the kernels of a program whose views are made, and notes how much host memory those on copies want on a rank.
 */
clv_status clv_kernels_choose(clv_loaded *loaded, clv_error *err);
void clv_kernels_free(clv_loaded *loaded);

/* Runs a call, of the shapes that the instruction has, on the device; a failure names rank and instruction. */
clv_status clv_kernel_run(const clv_loaded *loaded, int rank, int instruction, const clv_call *call, clv_error *err);

/* Copies operands to the host, runs the op there, copies results back, and counts that. */
clv_status clv_kernel_run_on_host(const clv_loaded *loaded, int rank, int instruction, const clv_call *call,
                                  clv_rank_times *times, clv_error *err);

#endif
