/* zigzag.h - zig-zag order of a sequence, in which causal attention is equal work on all ranks that share it.
 *
 * n rows are cut for P ranks as by any layout. A rank with rows [lo, hi) has the positions [lo/2, hi/2), in order, and
 * then as many from the other end, [n - ceil(hi/2), n - ceil(lo/2)). So of 2P granules rank r has the r-th and the last
 * but r (as in Megatron-LM and Llama 3), and any n goes over any number of ranks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The rows of the rank that has row `row`, and how many of them are of the first granule. */
typedef struct clv_zigzag_block {
    int64_t lo, hi, head;
} clv_zigzag_block;

static inline clv_zigzag_block clv_zigzag_block_of(int64_t n, int64_t ranks, int64_t row)
{
    const int64_t rank = ((row + 1) * ranks - 1) / n, lo = rank * n / ranks, hi = (rank + 1) * n / ranks;
    return (clv_zigzag_block){lo, hi, hi / 2 - lo / 2};
}

/* The position of a row. */
static inline int64_t clv_zigzag_position(int64_t n, int64_t ranks, int64_t row)
{
    const clv_zigzag_block x = clv_zigzag_block_of(n, ranks, row);
    const int64_t at = row - x.lo;
    return at < x.head ? x.lo / 2 + at : n - (x.hi + 1) / 2 + at - x.head;
}

/* The row of a position. */
static inline int64_t clv_zigzag_row(int64_t n, int64_t ranks, int64_t position)
{
    const int64_t from_end = n - 1 - position;
    const bool first = position < n / 2;
    const clv_zigzag_block x = clv_zigzag_block_of(n, ranks, first ? 2 * position + 1 : 2 * from_end);
    return first ? x.lo + position - x.lo / 2 : x.lo + x.head + position - (n - (x.hi + 1) / 2);
}

/* How many of the next `most` rows, this one included, lie side by side in the order of their positions. */
static inline int64_t clv_zigzag_run(int64_t n, int64_t ranks, int64_t row, int64_t most)
{
    const clv_zigzag_block x = clv_zigzag_block_of(n, ranks, row);
    const int64_t run = (row - x.lo < x.head ? x.lo + x.head : x.hi) - row;
    return run < most ? run : most;
}
