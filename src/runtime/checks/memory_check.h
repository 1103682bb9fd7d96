/* memory_check.h - memory sanitizer of programs: guard bytes, poison and checksums of every buffer.
 *
 * A checked region is laid out by the same plan with guard bytes behind every buffer and workspace, and before the
 * first. All of it that holds no value is poison (guard_bytes.h), always. So every byte is either part of a value,
 * whose sum is known, or poison; what an instruction may change is what it writes. Small values are summed again after
 * every instruction, so that the one at fault is named, and so is all of a small region; larger values when they are
 * read, when they die, at the end, and with all of a larger region whenever as much has been read and written since:
 * then the ops since the last time are named. An op whose result takes over an operand, or is of bytes, runs once more
 * with results in memory of their own (out_of_place_check.h).
 */
#ifndef CLEAVE_RUNTIME_CHECKS_MEMORY_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_MEMORY_CHECK_H

#include "runtime/session/executor.h"

typedef struct clv_memory_check clv_memory_check;

/* For a program, which is verified first (clv_program_verify), and the ranks of this process. Free with
 * clv_memory_check_free.
 */
clv_status clv_memory_check_new(clv_memory_check **out, const clv_program *program, int here, clv_error *err);
void clv_memory_check_free(clv_memory_check *check);

/* How the checked region is laid out: its bytes, and what to add to a region's address to find a buffer or workspace.
 */
int64_t clv_memory_check_region_bytes(const clv_memory_check *check);
int64_t clv_memory_check_buffer_offset(const clv_memory_check *check, int b);
int64_t clv_memory_check_workspace_offset(const clv_memory_check *check, int instruction);

/* The rest is called by each rank for itself, in this order; CLV_ECHECK names op, rank and buffer.
 * Before inputs are bound: nobody touched the region between runs. What the last run left in it is poisoned. */
clv_status clv_memory_check_between_runs(const clv_loaded_program *loaded, int rank, clv_error *err);
/* Inputs and state are as the first instruction is to find them. */
clv_status clv_memory_check_begin_run(const clv_loaded_program *loaded, int rank, clv_error *err);
/* Before an instruction: what it wants was planned, what it reads is what was written, what it takes is free. */
clv_status clv_memory_check_before(const clv_loaded_program *loaded, int rank, int instruction, clv_error *err);
/* After it: it wrote all of its results and nothing else. What nobody reads any more is poisoned. Of a step that flies
 * (runs beside others) the result is being written from then on, and nobody else may write its operand. */
clv_status clv_memory_check_after(const clv_loaded_program *loaded, int rank, int instruction, clv_error *err);
/* A step that flew has ended; behind: the instruction that ran last. */
clv_status clv_memory_check_completed(const clv_loaded_program *loaded, int rank, int step, int behind, clv_error *err);
/* After the last: outputs and state are what was written. State is the caller's until the next run. */
clv_status clv_memory_check_end_run(const clv_loaded_program *loaded, int rank, clv_error *err);

#endif
