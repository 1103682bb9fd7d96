/* check.h - whether the instructions of a program keep to their own memory, looked at while it runs.
 *
 * A checked region is laid out by the same plan with guard bytes behind every buffer and workspace, and before the
 * first. All of it that holds no value is poison (guard.h), always. So every byte is either part of a value, whose sum
 * is known, or poison; what an instruction may change is what it writes. Small values are summed again after every
 * instruction, so that the one at fault is named, and so is all of a small region; larger values when they are read,
 * when they die, at the end, and with all of a larger region whenever as much has been read and written since: then the
 * ops since the last time are named. An op whose result takes over an operand, or is of bytes, runs once more with
 * results in memory of their own (apart.h).
 */
#ifndef CLEAVE_RUNTIME_CHECK_H
#define CLEAVE_RUNTIME_CHECK_H

#include "runtime/executor.h"

typedef struct clv_check clv_check;

/* For a program, which is verified first (clv_program_check), and the ranks of this process. Free with clv_check_free.
 */
clv_status clv_check_new(clv_check **out, const clv_program *program, int here, clv_error *err);
void clv_check_free(clv_check *check);

/* How the checked region is laid out: its bytes, and what to add to a region's address to find a buffer or workspace.
 */
int64_t clv_check_region_bytes(const clv_check *check);
int64_t clv_check_buffer_offset(const clv_check *check, int b);
int64_t clv_check_workspace_offset(const clv_check *check, int instruction);

/* The rest is called by each rank for itself, in this order; CLV_ECHECK names op, rank and buffer.
 * Before inputs are bound: nobody touched the region between runs. What the last run left in it is poisoned. */
clv_status clv_check_idle(const clv_loaded *loaded, int rank, clv_error *err);
/* Inputs and state are as the first instruction is to find them. */
clv_status clv_check_begin(const clv_loaded *loaded, int rank, clv_error *err);
/* Before an instruction: what it wants was planned, what it reads is what was written, what it takes is free. */
clv_status clv_check_before(const clv_loaded *loaded, int rank, int instruction, clv_error *err);
/* After it: it wrote all of its results and nothing else. What nobody reads any more is poisoned. Of a step that flies
 * (runs beside others) the result is being written from then on, and nobody else may write its operand. */
clv_status clv_check_after(const clv_loaded *loaded, int rank, int instruction, clv_error *err);
/* A step that flew has ended; behind: the instruction that ran last. */
clv_status clv_check_landed(const clv_loaded *loaded, int rank, int step, int behind, clv_error *err);
/* After the last: outputs and state are what was written. State is the caller's until the next run. */
clv_status clv_check_end(const clv_loaded *loaded, int rank, clv_error *err);

#endif
