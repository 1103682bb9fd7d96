/* run_bindings.h - caller's memory bound to a run's inputs and outputs, as whole tensors or boxes. */
#ifndef CLEAVE_RUNTIME_SESSION_RUN_BINDINGS_H
#define CLEAVE_RUNTIME_SESSION_RUN_BINDINGS_H

#include "cleave/session.h"

/* The box of all elements. */
clv_shard clv_box_of_type(const clv_type *type);

/* Whether lo <= hi, within the shape. */
bool clv_box_inside(const clv_shard *box, const clv_type *type);

/* Writes "[0:4, 2:3]". */
enum { CLV_BOX_TEXT = 200 };
void clv_box_print(char *out, size_t size, const clv_shard *box);

/* Whether boxes, which `next` gives one by one (i begins with 0; false: no more), do not hold all of `box`; *out: a
 * part that none of them holds. */
typedef bool clv_box_iterator(clv_shard *out, int *i, const void *arg);
clv_status clv_box_find_uncovered(bool *lacks, clv_shard *out, clv_box_iterator *next, const void *arg,
                                  const clv_shard *box, clv_error *err);

/* Memory of a tensor of a run: of one that is bound whole the one box, else each of its parts; what is const is not
 * written. i begins with 0; false: no more. */
typedef struct clv_bound_box {
    clv_shard box;
    void *data;
} clv_bound_box;
bool clv_run_next_input(clv_bound_box *out, int *i, const clv_run *run, const char *name, const clv_type *type);
bool clv_run_next_output(clv_bound_box *out, int *i, const clv_run *run, const char *name, const clv_type *type);

/* Names are given. */
clv_status clv_run_check_names(const clv_run *run, clv_error *err);

/* The run has the input, in boxes that are inside of it, have data unless they are empty, and hold the shards of ranks
 * [first, first + here). */
clv_status clv_run_check_input(const clv_run *run, const char *name, const clv_type *type, const clv_layout *layout,
                               const clv_mesh *mesh, int first, int here, clv_error *err);
/* An output's boxes are inside of it. */
clv_status clv_run_check_output(const clv_run *run, const char *name, const clv_type *type, clv_error *err);

#endif
