/* program_builder.h - state and helpers of lowering: appends buffers and instructions to a program. */
#ifndef CLEAVE_PARTITION_LOWERING_PROGRAM_BUILDER_H
#define CLEAVE_PARTITION_LOWERING_PROGRAM_BUILDER_H

#include "partition/sharding_table.h"
#include "program/program.h"

typedef struct clv_program_builder {
    clv_program *program;
    const clv_sharding_table *table;
    int *first;       /* [n_rows + 1] the first instruction of each row */
    int *fused_with;  /* [n_rows] of a sum: the row of the op that adds its result in place; of that: the sum's; -1 */
    const char *name; /* in hand: rows that are about the same follow one another. The table's, ... */
    const char *name_copy; /* ... and the program's copy */
} clv_program_builder;

/* *out: the new buffer; NULL: nobody asks. */
clv_status clv_program_builder_add_buffer(int *out, clv_program *program, const clv_buffer *buffer, clv_error *err);
clv_status clv_program_builder_add_instruction(clv_program *program, const clv_instruction *instruction,
                                               clv_error *err);

/* A buffer for what becomes, or came, of buffer `like`. */
clv_status clv_program_builder_add_buffer_like(int *out, clv_program *program, int like, const clv_type *type,
                                               const clv_layout *layout, clv_error *err);
/* An op of one operand and one result that a step needs, which carries its tensor rounded; attrs are copied. */
clv_status clv_program_builder_add_conversion(clv_program_builder *l, const clv_sharding_row *row,
                                              const clv_op_def *def, const void *attrs, int from, int to,
                                              clv_error *err);

/* ---- lower_8bit_collectives.c ---- */

/* The instructions of a row that is carried in 8 bits; *done: false where it cannot be, and nothing was added. `like`
 * is the step for people. */
clv_status clv_lower_8bit_collective(bool *done, clv_program_builder *l, const clv_sharding_row *row,
                                     const clv_instruction *like, clv_error *err);

/* ---- lower_compressed_collectives.c: steps that carry their tensors rounded ---- */

/* The instructions of such a row, of which `step` would be the only one were it carried as it is. */
clv_status clv_lower_compressed_collective(clv_program_builder *l, const clv_sharding_row *row,
                                           const clv_instruction *step, clv_error *err);
/* What is told of the row's instruction i but for its seconds. */
clv_status clv_lower_describe_compressed(clv_partition_decision *out, const clv_program_builder *l,
                                         const clv_sharding_row *row, int i, clv_error *err);

/* ---- fuse_accumulation.c: ops that add their results to others ---- */

/* Fills joins. */
clv_status clv_fuse_accumulation_find(clv_program_builder *l, clv_error *err);
/* *out: the row that stands for that of a sum, s, and for that of the op which joins it. */
clv_status clv_fuse_accumulation_join(clv_sharding_row *out, const clv_program_builder *l, int s, clv_error *err);

#endif
