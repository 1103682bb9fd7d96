/* box_runs.c - box runs: iterates the contiguous runs of a sub-box of a row-major tensor, or splits a box into
 * chunks.
 */
#include "tensor/box_runs.h"

clv_box_runs clv_box_runs_between(const clv_shard *out, const clv_shard *in, const clv_shard *box)
{
    clv_box_runs r = {.run_elems = 1, .done = clv_shard_elems(box) == 0};
    int64_t stride = 1, in_stride = 1;
    bool merging = true; /* the dimensions so far are one run */
    for (int d = box->rank - 1; d >= 0; d--) {
        int64_t size = box->hi[d] - box->lo[d];
        r.first += (box->lo[d] - out->lo[d]) * stride;
        r.in_first += (box->lo[d] - in->lo[d]) * in_stride;
        int last = r.outer - 1;
        if (merging && stride == r.run_elems && in_stride == r.run_elems)
            r.run_elems *= size;
        else if (size != 1) {
            merging = false;
            if (last >= 0 && stride == r.size[last] * r.stride[last] && in_stride == r.size[last] * r.in_stride[last])
                r.size[last] *= size;
            else {
                r.size[r.outer] = size;
                r.stride[r.outer] = stride;
                r.in_stride[r.outer++] = in_stride;
            }
        }
        stride *= out->hi[d] - out->lo[d];
        in_stride *= in->hi[d] - in->lo[d];
    }
    return r;
}

clv_box_runs clv_box_runs_begin(const int64_t *shape, const clv_shard *box)
{
    clv_shard whole = clv_box_whole(box->rank, shape);
    return clv_box_runs_between(&whole, box, box);
}

bool clv_box_next_in_range(clv_shard *box, int64_t *first, int64_t last, int rank, const int64_t *shape)
{
    int64_t at[CLV_MAX_RANK] = {0}, rest = *first, range = last - *first, elems = 1;
    int d = rank;

    if (range <= 0)
        return false;
    for (int i = rank - 1; i >= 0; i--) { /* the range is not empty, so no dimension is 0 */
        at[i] = rest % shape[i];          /* NOLINT(clang-analyzer-core.DivideZero) */
        rest /= shape[i];
    }
    /* Dimensions are whole from the innermost out while the range begins at their start and holds all of them. */
    while (d > 0 && at[d - 1] == 0 && elems * shape[d - 1] <= range)
        elems *= shape[--d];
    box->rank = rank;
    for (int i = 0; i < rank; i++) {
        box->lo[i] = i < d ? at[i] : 0;
        box->hi[i] = i < d ? at[i] + 1 : shape[i];
    }
    if (d > 0) { /* then as many as fit of the dimension before */
        int64_t n = range / elems, most = shape[d - 1] - at[d - 1];
        n = n < most ? n : most;
        box->hi[d - 1] = at[d - 1] + n;
        elems *= n;
    }
    *first += elems;
    return true;
}

bool clv_box_next_chunk(clv_shard *chunk, int64_t *done, const clv_shard *box, int64_t most)
{
    int64_t extent[CLV_MAX_RANK] = {0}, total = clv_shard_elems(box);

    for (int d = 0; d < box->rank; d++)
        extent[d] = box->hi[d] - box->lo[d];
    if (!clv_box_next_in_range(chunk, done, total - *done < most ? total : *done + most, box->rank, extent))
        return false;
    for (int d = 0; d < box->rank; d++) {
        chunk->lo[d] += box->lo[d];
        chunk->hi[d] += box->lo[d];
    }
    return true;
}

bool clv_box_within(const clv_shard *box, int rank, const int64_t *shape)
{
    bool within = box->rank == rank;

    for (int d = 0; within && d < rank; d++)
        within = box->lo[d] >= 0 && box->lo[d] <= box->hi[d] && box->hi[d] <= shape[d];
    return within;
}

clv_shard clv_box_whole(int rank, const int64_t *shape)
{
    clv_shard box = {.rank = rank};

    for (int d = 0; d < rank; d++)
        box.hi[d] = shape[d];
    return box;
}

int64_t clv_shape_elems(int rank, const int64_t *shape)
{
    int64_t elems = 1;

    for (int d = 0; d < rank; d++)
        elems *= shape[d];
    return elems;
}
