/* box.c - see box.h. */
#include "io/box.h"

clv_box_runs clv_box_start(const int64_t *shape, const clv_shard *box)
{
    clv_box_runs runs = {.outer = box->rank, .run_elems = 1};
    int64_t stride = 1;

    /* Dimensions taken whole join the run; so does the first cut one, from the innermost out. */
    bool joined = true;
    for (int d = box->rank - 1; d >= 0; d--) {
        runs.lo[d] = runs.at[d] = box->lo[d];
        runs.hi[d] = box->hi[d];
        runs.stride[d] = stride;
        runs.first += box->lo[d] * stride;
        runs.done |= box->lo[d] == box->hi[d];
        if (joined) {
            runs.run_elems *= box->hi[d] - box->lo[d];
            runs.outer = d;
            joined = box->lo[d] == 0 && box->hi[d] == shape[d];
        }
        stride *= shape[d];
    }
    return runs;
}

void clv_box_next(clv_box_runs *runs)
{
    for (int d = runs->outer - 1; d >= 0; d--) {
        runs->first += runs->stride[d];
        if (++runs->at[d] < runs->hi[d])
            return;
        runs->first -= (runs->hi[d] - runs->lo[d]) * runs->stride[d];
        runs->at[d] = runs->lo[d];
    }
    runs->done = true;
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

int64_t clv_box_elems(int rank, const int64_t *shape)
{
    int64_t elems = 1;

    for (int d = 0; d < rank; d++)
        elems *= shape[d];
    return elems;
}
