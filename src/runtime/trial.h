/* trial.h - an op called by itself, on host memory of its own with guards around each tensor. */
#ifndef CLEAVE_RUNTIME_TRIAL_H
#define CLEAVE_RUNTIME_TRIAL_H

#include "graph/graph.h"

/* A call of an op. The views of absent operands have no data. */
typedef struct clv_trial {
    const clv_op *op;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    int over[CLV_MAX_OUT]; /* 1 + the operand whose memory the result has taken over; 0: its own */
} clv_trial;

/* The view of a whole tensor, without data. */
clv_view clv_trial_view(const clv_type *type);

/* Gives the view memory that nothing was written to: filled with the guards' pattern (runtime/guard.h), as is what lies
 * before it, and behind it, where there is room for what a kernel may write that takes the whole tensor for its part.
 * `copied`: the whole tensor, of which the view gets its part; NULL: nothing. */
clv_status clv_trial_take(clv_view *view, const void *copied, clv_error *err);
void clv_trial_release(clv_view *view);
/* All views of a part of a call, operands with their elements of the whole, which has them. On failure what there is of
 * it is still the caller's to release. */
clv_status clv_trial_take_all(clv_trial *part, const clv_trial *whole, clv_error *err);
void clv_trial_release_all(clv_trial *trial);

/* Runs the kernel, on views with memory by clv_trial_take. `how` says in messages what is tried. CLV_ECHECK when it
 * wrote where it should not have, or left an element of a result unwritten that had nothing in it before. */
clv_status clv_trial_run(const clv_trial *trial, const char *how, clv_error *err);

/* Runs it where all of that memory but the operands' elements, and its workspace, holds other bytes, by so many
 * threads. Looks at nothing. */
clv_status clv_trial_run_littered(const clv_trial *trial, int threads, const char *how, clv_error *err);

/* The bytes of workspace that the op asks for when it is given such views. */
size_t clv_trial_workspace(const clv_trial *trial);

/* The flat index in the whole tensor of element i of the view. */
int64_t clv_trial_global(const clv_view *view, int64_t i);

enum { CLV_TRIAL_INDEX = 24 * CLV_MAX_RANK };
/* "[4,2]", of an element of the whole tensor by its flat index. Returns `out`. */
const char *clv_trial_index(char out[CLV_TRIAL_INDEX], const clv_view *view, int64_t i);

#endif
