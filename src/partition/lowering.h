/* lowering.h - what the parts of the second pass share: the program as it grows. */
#ifndef CLEAVE_PARTITION_LOWERING_H
#define CLEAVE_PARTITION_LOWERING_H

#include "partition/assignment.h"
#include "program/program.h"

typedef struct clv_lowering {
    clv_program *program;
    const clv_assignment *table;
    int *first;       /* [n_rows + 1] the first instruction of each row */
    const char *name; /* in hand: rows that are about the same follow one another. The table's, ... */
    const char *kept; /* ... and the program's copy */
} clv_lowering;

/* *out: the new buffer; NULL: nobody asks. */
clv_status clv_lowering_add_buffer(int *out, clv_program *program, const clv_buffer *buffer, clv_error *err);
clv_status clv_lowering_add_instruction(clv_program *program, const clv_instruction *instruction, clv_error *err);

/* ---- lower_carried.c: steps that carry their tensors rounded ---- */

/* The instructions of such a row, of which `step` would be the only one were it carried as it is. */
clv_status clv_lower_carried(clv_lowering *l, const clv_row *row, const clv_instruction *step, clv_error *err);
/* What is told of the row's instruction i, an op, but for its seconds. */
clv_status clv_lower_tell_carried(clv_assigned *out, const clv_lowering *l, const clv_row *row, int i, clv_error *err);

#endif
