/* apart.h - an op of a checked run, run once before its turn with its results in memory of their own.
 *
 * In the place that the program gives a result, what the op leaves unwritten cannot always be told: the memory that a
 * result takes over from an operand holds values, and of a byte any content may be a value. Beside it both show.
 */
#ifndef CLEAVE_RUNTIME_APART_H
#define CLEAVE_RUNTIME_APART_H

#include "program/program.h"

/* Whether an instruction is to run apart: a result of its op shares memory with an operand, or is of bytes. */
bool clv_apart_takes(const clv_program *program, const clv_instruction *instruction);

/* The memory that the results of any such instruction want on a rank, with guard bytes around each; 0: there is none.
 */
int64_t clv_apart_bytes(const clv_program *program);

/* Points the views of results into that memory (aligned as buffers are); and fills it with what is no result. */
void clv_apart_lay_out(clv_view *out, int n_out, char *memory);
void clv_apart_fill(const clv_view *out, int n_out);

/* The first element of a result, run apart, that was not written; -1: none. */
int64_t clv_apart_first_unwritten(const clv_view *out);

/* The first element that differs, bit for bit; -1: none. */
int64_t clv_apart_first_other(const clv_view *out, const clv_view *apart);

#endif
