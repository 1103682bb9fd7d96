/* box_runs.h - box runs: iterates the contiguous runs of a sub-box of a row-major tensor, or splits a box into
 * chunks.
 */
#pragma once

#include "cleave/layout.h"

/* An iterator over the contiguous runs of a box. */
typedef struct clv_box_runs {
    int outer; /* number of outer dimensions; the others are within a run */
    int64_t lo[CLV_MAX_RANK], hi[CLV_MAX_RANK], at[CLV_MAX_RANK], stride[CLV_MAX_RANK];
    int64_t run_elems; /* elements of each run */
    int64_t first;     /* flat index in the tensor of the first element of the current run */
    bool done;
} clv_box_runs;

/* The box must be within the shape. */
clv_box_runs clv_box_runs_begin(const int64_t *shape, const clv_shard *box);
void clv_box_runs_next(clv_box_runs *runs);

/* Returns the next chunk of `box`, with at most `most` >= 1 elements, in row-major order: the elements of all chunks,
 * one after the other, are those of the box. *done, at first 0, counts the elements of the chunks so far. False after
 * the last. */
bool clv_box_next_chunk(clv_shard *chunk, int64_t *done, const clv_shard *box, int64_t most);
/* Returns the first box, as large as possible, of the elements with flat indices [first, last) of a tensor of this
 * shape, and advances *first behind it. False when none is left. */
bool clv_box_next_in_range(clv_shard *box, int64_t *first, int64_t last, int rank, const int64_t *shape);

/* Returns whether 0 <= lo <= hi <= shape in each of `rank` dimensions of the box. */
bool clv_box_within(const clv_shard *box, int rank, const int64_t *shape);
/* Returns the elements of a shape, whose product must not overflow. */
int64_t clv_box_elems(int rank, const int64_t *shape);
/* Returns the box of all elements. */
clv_shard clv_box_whole(int rank, const int64_t *shape);
