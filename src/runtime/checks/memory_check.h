/* memory_check.h - memory sanitizer of programs: guard bytes, poison and checksums of every buffer.
 *
 * A checked region has the program's layout with guard bytes after every buffer and workspace, and before the first.
 * Memory in it that holds no value is always poison (guard_bytes.h). So every byte is either part of a value, whose
 * checksum is known, or poison, and an instruction may change only what it writes. Small values, and all of a small
 * region, are checked after every instruction, which names the culprit. Larger values are checked when they are read,
 * when they die, at the end, and together with the whole region each time as many bytes as it has were read and
 * written; then all ops since the last time are named. An op whose result takes over an operand's memory, or has 1-byte
 * elements, also runs out of place, and the results are compared.
 */
#pragma once

#include "runtime/session/executor.h"

typedef struct clv_memory_check clv_memory_check;

/* Verifies the program first (clv_program_verify). Free with clv_memory_check_free. */
clv_status clv_memory_check_new(clv_memory_check **out, const clv_program *program, int n_local_ranks, clv_error *err);
void clv_memory_check_free(clv_memory_check *check);

/* Layout of the checked region, with guard bytes. */
const clv_region_plan *clv_memory_check_plan(const clv_memory_check *check);

/* Each rank calls the following for itself, in this order; CLV_ECHECK names op, rank and buffer.
 * Before inputs are bound: the region was not changed between runs. Poisons what the last run left in it. */
clv_status clv_memory_check_between_runs(const clv_loaded_program *loaded, int rank, clv_error *err);
/* After inputs are bound: takes the checksums of inputs and state. */
clv_status clv_memory_check_begin_run(const clv_loaded_program *loaded, int rank, clv_error *err);
/* Before an instruction: it needs no more than was planned, its operands are intact, the memory of its results is free.
 * */
clv_status clv_memory_check_before(const clv_loaded_program *loaded, int rank, int instruction, clv_error *err);
/* After it: it wrote all of its results and nothing else. Poisons what no later instruction reads. For an overlapped
 * collective: from now on its result is being written, and nothing else may write its operand. */
clv_status clv_memory_check_after(const clv_loaded_program *loaded, int rank, int instruction, clv_error *err);
/* An instruction of other pipeline stages is passed over: poisons what no later one reads. */
void clv_memory_check_skipped(const clv_loaded_program *loaded, int rank, int instruction);
/* After an overlapped collective has completed; last_run: the last instruction that ran. */
clv_status clv_memory_check_after_overlapped(const clv_loaded_program *loaded, int rank, int step, int last_run,
                                             clv_error *err);
/* After the last: outputs and state are intact. State is the caller's until the next run. */
clv_status clv_memory_check_end_run(const clv_loaded_program *loaded, int rank, clv_error *err);
