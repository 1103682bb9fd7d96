/* reshard_step.h - one collective (or slice, or mask) of a reshard: kind, axes, layouts before and after, bytes. */
#ifndef CLEAVE_PROGRAM_RESHARD_STEP_H
#define CLEAVE_PROGRAM_RESHARD_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/layout.h"

/* X(code, name, reduces, moves): reduces: combines values; moves: ranks talk. */
#define CLV_STEP_TABLE(X)                                                                                              \
    X(CLV_STEP_SLICE, "slice", 0, 0)                                                                                   \
    X(CLV_STEP_MASK, "mask", 0, 0)                                                                                     \
    X(CLV_STEP_ALL_GATHER, "all_gather", 0, 1)                                                                         \
    X(CLV_STEP_ALL_TO_ALL, "all_to_all", 0, 1)                                                                         \
    X(CLV_STEP_REDUCE_SCATTER, "reduce_scatter", 1, 1)                                                                 \
    X(CLV_STEP_ALL_REDUCE, "all_reduce", 1, 1)                                                                         \
    X(CLV_STEP_PERMUTE, "permute", 0, 1)                                                                               \
    X(CLV_STEP_EXCHANGE, "exchange", 0, 1)

typedef enum clv_step_kind {
#define CLV_STEP_ENUM(code, name, reduces, moves) code,
    CLV_STEP_TABLE(CLV_STEP_ENUM)
#undef CLV_STEP_ENUM
        CLV_STEP_COUNT
} clv_step_kind;

/* mask: replicated -> partial: coordinate 0 keeps the values, others hold zeros (sum) or -inf (max). Every step that
 * neither reduces nor masks is "each rank copies what it lacks from a rank of its group that has it". */
typedef struct clv_reshard_step {
    clv_step_kind kind;
    clv_layout from, to;
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /* the (sub-)axes whose groups talk; mask: those it becomes partial over */
    double bytes;                      /* max over ranks of the bytes received (docs/reshard.md); a double
                                          as that of an all_reduce over an uneven shape is no whole number */
} clv_reshard_step;

const char *clv_step_name(clv_step_kind kind);
bool clv_step_reduces(clv_step_kind kind);
bool clv_step_moves(clv_step_kind kind);

#endif
