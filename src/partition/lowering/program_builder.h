/* program_builder.h - state and helpers of lowering: appends buffers and instructions to a program. */
#pragma once

#include "partition/sharding_table.h"
#include "program/program.h"

typedef struct clv_program_builder {
    clv_program *program;
    const clv_sharding_table *table;
    int *first;            /* [n_rows + 1] the first instruction of each row */
    int *fused_with;       /* [n_rows] of an addition: the row of the op that accumulates into it; of that op's row: the
                              addition's; -1: none */
    const char *name;      /* the last name that was copied, as consecutive rows often share one: the table's ... */
    const char *name_copy; /* ... and the program's */
} clv_program_builder;

/* Adds a temporary buffer of this type and layout, for a converted form of buffer `like`. */
clv_status clv_program_builder_add_buffer_like(int *out, clv_program *program, int like, const clv_type *type,
                                               const clv_layout *layout, clv_error *err);
/* Adds an op of one operand and one result that converts a compressed collective's tensor; attrs are copied. */
clv_status clv_program_builder_add_conversion(clv_program_builder *l, const clv_sharding_row *row,
                                              const clv_op_def *def, const void *attrs, int from, int to,
                                              clv_error *err);

/* ---- lower_8bit_collectives.c ---- */

/* Adds the instructions of a row whose wire dtype is 8-bit; `like`: the step, for names and causes. *done: false if it
 * cannot be packed, and nothing was added. */
clv_status clv_lower_8bit_collective(bool *done, clv_program_builder *l, const clv_sharding_row *row,
                                     const clv_instruction *like, clv_error *err);

/* ---- lower_compressed_collectives.c ---- */

/* Adds the instructions of a row with a wire dtype; `step`: its instruction without one. */
clv_status clv_lower_compressed_collective(clv_program_builder *l, const clv_sharding_row *row,
                                           const clv_instruction *step, clv_error *err);

/* ---- fuse_accumulation.c ---- */

/* Fills fused_with. */
clv_status clv_fuse_accumulation_find(clv_program_builder *l, clv_error *err);
/* *out: the one row that replaces those of an addition, s, and of the op that accumulates into it. */
clv_status clv_fuse_accumulation_join(clv_sharding_row *out, const clv_program_builder *l, int s, clv_error *err);
