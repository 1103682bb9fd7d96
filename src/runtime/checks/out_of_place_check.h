/* out_of_place_check.h - runs an op whose result aliases an operand on separate memory, too.
 *
 * In the place that the program gives a result, what the op leaves unwritten cannot always be told: the memory that a
 * result takes over from an operand holds values, and of a byte any content may be a value. Beside it both show.
 */
#ifndef CLEAVE_RUNTIME_CHECKS_OUT_OF_PLACE_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_OUT_OF_PLACE_CHECK_H

#include "program/program.h"

/* Whether an instruction is to run apart: a result of its op shares memory with an operand, or is of bytes. */
bool clv_out_of_place_needed(const clv_program *program, const clv_instruction *instruction);

/* The memory that the results of any such instruction want on a rank, with guard bytes around each; 0: there is none.
 */
int64_t clv_out_of_place_bytes(const clv_program *program);

/* Points the views of results into that memory (aligned as buffers are); and fills it with what is no result. */
void clv_out_of_place_lay_out(clv_view *out, int n_out, char *memory);
void clv_out_of_place_poison(const clv_view *out, int n_out);

/* The first element of a result, run apart, that was not written; -1: none. */
int64_t clv_out_of_place_first_unwritten(const clv_view *out);

/* The first element that differs, bit for bit; -1: none. */
int64_t clv_out_of_place_first_difference(const clv_view *out, const clv_view *apart);

#endif
