/* run_bindings.h - caller's memory bound to a run's inputs and outputs, as whole tensors or boxes. */
#pragma once

#include "cleave/session.h"
#include "program/program.h"

clv_shard clv_box_of_type(const clv_type *type);

/* Writes "[0:4, 2:3]". */
enum { CLV_BOX_TEXT = 200 };
void clv_box_print(char *out, size_t size, const clv_shard *box);

/* Whether the boxes of an iterator do not cover `box`; *out: a part of it outside all of them. The iterator gives the
 * box number *i, from 0 on, and increments *i; false past the end. */
typedef bool clv_box_iterator(clv_shard *out, int *i, const void *arg);
bool clv_box_find_uncovered(clv_shard *out, clv_box_iterator *next, const void *arg, const clv_shard *box);

typedef enum clv_binding_kind { CLV_BOUND_INPUTS, CLV_BOUND_OUTPUTS } clv_binding_kind;

/* Memory bound to a box of a tensor; an input's is not written. */
typedef struct clv_bound_box {
    clv_shard box;
    void *data;
} clv_bound_box;
/* The boxes bound to a tensor of a run, one by one: i begins with 0; false past the end. A tensor that is bound whole
 * has one box. */
bool clv_run_next_box(clv_bound_box *out, int *i, const clv_run *run, clv_binding_kind kind, const char *name,
                      const clv_type *type);

/* Every binding has a name. */
clv_status clv_run_check_names(const clv_run *run, clv_error *err);

/* The bindings fit the program: its inputs and outputs have these names; boxes are inside their tensors and have data;
 * the boxes of each input cover the shards of ranks [first_rank, first_rank + n_ranks). */
clv_status clv_run_check_bindings(const clv_run *run, const clv_program *program, int first_rank, int n_ranks,
                                  clv_error *err);
