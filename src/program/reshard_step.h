/* reshard_step.h - one collective (or slice, or mask) of a reshard: kind, axes, layouts before and after, bytes. */
#pragma once

#include "cleave/layout.h"

/* X(code, name, reduces, moves): reduces: combines values; moves: ranks communicate. */
#define CLV_STEP_TABLE(X)                                                                                              \
    X(CLV_STEP_SLICE, "slice", 0, 0)                                                                                   \
    X(CLV_STEP_MASK, "mask", 0, 0)                                                                                     \
    X(CLV_STEP_ALL_GATHER, "all_gather", 0, 1)                                                                         \
    X(CLV_STEP_ALL_TO_ALL, "all_to_all", 0, 1)                                                                         \
    X(CLV_STEP_REDUCE_SCATTER, "reduce_scatter", 1, 1)                                                                 \
    X(CLV_STEP_ALL_REDUCE, "all_reduce", 1, 1)                                                                         \
    X(CLV_STEP_PERMUTE, "permute", 0, 1)                                                                               \
    X(CLV_STEP_EXCHANGE, "exchange", 0, 1)                                                                             \
    X(CLV_STEP_SEND, "send", 0, 1)                                                                                     \
    X(CLV_STEP_DISPATCH, "dispatch_rows", 0, 1)                                                                        \
    X(CLV_STEP_COMBINE, "combine_rows", 1, 1)

typedef enum clv_step_kind {
#define CLV_STEP_ENUM(code, name, reduces, moves) code,
    CLV_STEP_TABLE(CLV_STEP_ENUM)
#undef CLV_STEP_ENUM
        CLV_STEP_COUNT
} clv_step_kind;

/* A step of a reshard. mask: replicated -> partial; coordinate 0 keeps the values, others get zeros (sum) or -inf
 * (max). In steps that neither reduce nor mask each rank copies the elements that it lacks from ranks of its group.
 * send: to the ranks of other pipeline stages; the layouts are the same but for their stages.
 * dispatch_rows: rows [..., M] go to the ranks of the experts that they chose, where they are packed, [1, room, M] on a
 * rank. combine_rows: these come back, and those of a row are summed. What moves is known when it runs
 * (dispatch_expert_rows.c). */
typedef struct clv_reshard_step {
    clv_step_kind kind;
    clv_layout from, to;
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /* axes of the groups; of a mask: those that it becomes partial over */
    double bytes;                      /* bytes received, max over ranks (docs/reshard.md); of an all_reduce over an
                                          uneven shape not an integer; of rows of experts if choices are even */
    int permuted_dim;                  /* of a permute that a program states, which has `sources`: the dimension of
                                          which each rank has one element */
    const int *sources;                /* of each of its elements the one that it gets; -1: zeros; NULL: a reshard */
} clv_reshard_step;

/* Bits of the stages that hold a tensor; all bits for a tensor that every stage holds. */
static inline uint32_t clv_layout_stage_bits(const clv_layout *layout)
{
    return layout->stage_axis > 0 ? layout->stages : UINT32_MAX;
}

const char *clv_step_name(clv_step_kind kind);
bool clv_step_reduces(clv_step_kind kind);
bool clv_step_moves(clv_step_kind kind);
