/* box_copy.c - copies, or reduces in rank order, a box between shards, run by run (box_reduce.c has the loops over a
 * run's elements).
 */
#include "tensor/box_copy.h"

#include <string.h>

#include "tensor/box_runs.h"

bool clv_shard_equal(const clv_shard *a, const clv_shard *b)
{
    size_t bytes = (size_t)a->rank * sizeof *a->lo;
    return memcmp(a->lo, b->lo, bytes) == 0 && memcmp(a->hi, b->hi, bytes) == 0;
}

/* Short runs are common (a column block of one or two elements); a fixed-size memcpy is one move. */
void clv_box_copy(void *out, const clv_shard *out_shard, const void *in, const clv_shard *in_shard,
                  const clv_shard *box, size_t elem_size)
{
    clv_box_runs r = clv_box_runs_between(out_shard, in_shard, box);
    size_t bytes = (size_t)r.run_elems * elem_size;
    int64_t size = (int64_t)elem_size;
#define COPY_ALL(n)                                                                                                    \
    for (; !r.done; clv_box_runs_next(&r))                                                                             \
    memcpy((char *)out + r.first * size, (const char *)in + r.in_first * size, n)
    if (bytes == 4)
        COPY_ALL(4);
    else if (bytes == 8)
        COPY_ALL(8);
    else
        COPY_ALL(bytes);
#undef COPY_ALL
}

void clv_box_reduce(void *out, const clv_shard *out_shard, const void *const *in, int n, const clv_shard *in_shard,
                    const clv_shard *box, clv_dtype dtype, clv_reduction reduction)
{
    int64_t size = (int64_t)clv_dtype_size(dtype);
    for (clv_box_runs r = clv_box_runs_between(out_shard, in_shard, box); !r.done; clv_box_runs_next(&r))
        clv_values_reduce((char *)out + r.first * size, in, n, r.in_first, r.run_elems, dtype, reduction);
}
