/* op_harness.h - runs one op kernel by itself between guard bytes, for the op checks. */
#ifndef CLEAVE_RUNTIME_CHECKS_OP_HARNESS_H
#define CLEAVE_RUNTIME_CHECKS_OP_HARNESS_H

#include "graph/graph.h"

/* A call of an op. The views of absent operands have no data. */
typedef struct clv_op_harness {
    const clv_op *op;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    int over[CLV_MAX_OUT]; /* 1 + the operand whose memory the result has taken over; 0: its own */
} clv_op_harness;

/* The view of a whole tensor, without data. */
clv_view clv_op_harness_view(const clv_type *type);

/* Gives the view memory that nothing was written to: filled with the guards' pattern (runtime/checks/guard_bytes.h), as
 * is what lies before it, and behind it, where there is room for what a kernel may write that takes the whole tensor
 * for its part. `copied`: the whole tensor, of which the view gets its part; NULL: nothing. */
clv_status clv_op_harness_alloc(clv_view *view, const void *copied, clv_error *err);
void clv_op_harness_free(clv_view *view);
/* All views of a part of a call, operands with their elements of the whole, which has them. On failure what there is of
 * it is still the caller's to release. */
clv_status clv_op_harness_alloc_all(clv_op_harness *part, const clv_op_harness *whole, clv_error *err);
void clv_op_harness_free_all(clv_op_harness *trial);

/* Runs the kernel, on views with memory by clv_op_harness_alloc. `how` says in messages what is tried. CLV_ECHECK when
 * it wrote where it should not have, or left an element of a result unwritten that had nothing in it before. */
clv_status clv_op_harness_run(const clv_op_harness *trial, const char *how, clv_error *err);

/* Runs it where all of that memory but the operands' elements, and its workspace, holds other bytes, by so many
 * threads. Looks at nothing. */
clv_status clv_op_harness_run_poisoned(const clv_op_harness *trial, int threads, const char *how, clv_error *err);

/* The bytes of workspace that the op asks for when it is given such views. */
size_t clv_op_harness_workspace_bytes(const clv_op_harness *trial);

/* The flat index in the whole tensor of element i of the view. */
int64_t clv_op_harness_global_index(const clv_view *view, int64_t i);

enum { CLV_OP_HARNESS_INDEX_TEXT = 24 * CLV_MAX_RANK };
/* "[4,2]", of an element of the whole tensor by its flat index. Returns `out`. */
const char *clv_op_harness_print_index(char out[CLV_OP_HARNESS_INDEX_TEXT], const clv_view *view, int64_t i);

#endif
