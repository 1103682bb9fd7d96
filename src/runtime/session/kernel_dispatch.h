/* kernel_dispatch.h - per instruction: the device's kernel, or the host's on copies as fallback. */
#ifndef CLEAVE_RUNTIME_SESSION_KERNEL_DISPATCH_H
#define CLEAVE_RUNTIME_SESSION_KERNEL_DISPATCH_H

#include "runtime/session/executor.h"

/* Chooses the kernels of a program whose views are made, and notes how much host memory those on copies want on a rank.
 */
clv_status clv_kernels_select(clv_loaded_program *loaded, clv_error *err);
void clv_kernels_free(clv_loaded_program *loaded);

/* Runs a call, of the shapes that the instruction has, on the device; a failure names rank and instruction. */
clv_status clv_kernel_run(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                          clv_error *err);

/* Copies operands to the host, runs the op there, copies results back, and counts that. */
clv_status clv_kernel_run_on_host(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                                  clv_rank_times *times, clv_error *err);

#endif
