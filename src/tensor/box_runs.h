/* box_runs.h - box runs: iterates the contiguous runs of a box of row-major tensors, or splits it into chunks. */
#pragma once

#include "cleave/layout.h"

/* An iterator over the runs of a box that lies in two buffers: elements that are contiguous in both. Adjacent
 * dimensions with matching strides in both are merged, so that there are as few runs as possible. */
typedef struct clv_box_runs {
    int64_t run_elems;       /* elements of each run */
    int64_t first, in_first; /* of the current run: index of its first element in the two buffers */
    bool done;
    int outer; /* dimensions outside of the runs, innermost first */
    int64_t size[CLV_MAX_RANK], stride[CLV_MAX_RANK], in_stride[CLV_MAX_RANK], at[CLV_MAX_RANK];
} clv_box_runs;

/* The runs of a box between buffers that hold the shards `out` and `in`, in which it lies. */
clv_box_runs clv_box_runs_between(const clv_shard *out, const clv_shard *in, const clv_shard *box);
/* The runs of a box within a tensor of this shape. `in_first` is the index in the box. */
clv_box_runs clv_box_runs_begin(const int64_t *shape, const clv_shard *box);

static inline void clv_box_runs_next(clv_box_runs *r)
{
    for (int i = 0; i < r->outer; i++) {
        r->first += r->stride[i];
        r->in_first += r->in_stride[i];
        if (++r->at[i] < r->size[i])
            return;
        r->first -= r->size[i] * r->stride[i];
        r->in_first -= r->size[i] * r->in_stride[i];
        r->at[i] = 0;
    }
    r->done = true;
}

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
int64_t clv_shape_elems(int rank, const int64_t *shape);
/* Returns the box of all elements. */
clv_shard clv_box_whole(int rank, const int64_t *shape);
