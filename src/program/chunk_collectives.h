/* chunk_collectives.h - splits collectives and adjacent matmuls into row chunks that overlap (decomposed matmul).
 *
 * A part is some rows: of the outermost dimension that ranks hold more than one index of, if all hold as many. So the
 * parts of a buffer lie one behind the other in it, each is contiguous, and an op that treats its rows alike
 * (clv_op_traits.by_rows) makes the same of each as of the whole, bit for bit; products, where the library that
 * multiplies rounds a row alike among any 17 or more (kernels/cpu/gemm/gemm.h), else up to the last bits. What else
 * reads or writes the buffer sees it whole.
 *
 * A step along that very dimension (a split sequence of a batch of one is gathered, or summed) has n times as many rows
 * on one side: as n blocks, each of which is cut as the rows on the other side are. A part of it is a strip of each
 * block; an op takes a strip at a time, and a step all strips of a part.
 */
#ifndef CLEAVE_PROGRAM_CHUNK_COLLECTIVES_H
#define CLEAVE_PROGRAM_CHUNK_COLLECTIVES_H

#include "program/program.h"

/* *out becomes the program with those steps cut of which it is worth its while on the machine (NULL: the default one);
 * *cut says whether there is any. exposed: [n_instructions] seconds for which ranks would do nothing but wait for it:
 * others are left whole. It shares the program's arena, and what it leaves as it was. Before memory is planned. */
clv_status clv_program_chunk_collectives(clv_program *out, bool *cut, const clv_program *program, const double *exposed,
                                         const clv_machine *machine, clv_error *err);

#endif
