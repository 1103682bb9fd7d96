/* box_runs.h - box runs: iterates the contiguous runs of a sub-box of a row-major tensor, or splits a box into
 * chunks.
 */
#ifndef CLEAVE_TENSOR_BOX_RUNS_H
#define CLEAVE_TENSOR_BOX_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/layout.h"

/* Walks a box run by run: all runs have run_elems elements. `first` is the flat index in the tensor of the current
 * run's first element. */
typedef struct clv_box_runs {
    int outer; /* dimensions that the walk steps over; the ones after it are within a run */
    int64_t lo[CLV_MAX_RANK], hi[CLV_MAX_RANK], at[CLV_MAX_RANK], stride[CLV_MAX_RANK];
    int64_t run_elems;
    int64_t first;
    bool done;
} clv_box_runs;

/* The box must be within the shape. */
clv_box_runs clv_box_runs_begin(const int64_t *shape, const clv_shard *box);
void clv_box_runs_next(clv_box_runs *runs);

/* The first piece of `box` with at most `most` >= 1 elements, and each time the one behind it, in row-major order: the
 * elements of the pieces, one after the other, are the box's. *done = 0 at first, then how many elements came before;
 * false after the last. */
bool clv_box_next_chunk(clv_shard *piece, int64_t *done, const clv_shard *box, int64_t most);
/* The same with the elements [first, last) of a tensor of this shape, flat, as boxes of it: the first of them in *box;
 * *first moves behind it. False when there is none left. */
bool clv_box_next_in_range(clv_shard *box, int64_t *first, int64_t last, int rank, const int64_t *shape);

/* Whether box is [lo, hi) with 0 <= lo <= hi <= shape in each of `rank` dimensions. */
bool clv_box_within(const clv_shard *box, int rank, const int64_t *shape);
/* Elements of a shape whose product is known not to overflow. */
int64_t clv_box_elems(int rank, const int64_t *shape);
clv_shard clv_box_whole(int rank, const int64_t *shape);

#endif
