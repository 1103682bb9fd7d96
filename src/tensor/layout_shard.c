/* layout_shard.c - shards: the index range of each rank under a layout, its size, intersections, and the largest
 * shard.
 */
#include "cleave/layout.h"

#include <stdio.h>

static bool is_rank(int rank)
{
    return rank >= 0 && rank <= CLV_MAX_RANK;
}

/* floor(i*n/k) without overflow. */
static int64_t block_start(int64_t n, int64_t blocks, int64_t i)
{
    int64_t rest = n % blocks;
    return i * (n / blocks) + (rest != 0 ? i * rest / blocks : 0);
}

void clv_block_range(int64_t size, int64_t alignment, int64_t blocks, int64_t block, int64_t *lo, int64_t *hi)
{
    if (!lo || !hi)
        return;
    *lo = *hi = 0;
    if (size < 0 || alignment < 1 || blocks < 1 || block < 0 || block >= blocks)
        return;
    int64_t n = size / alignment;
    *lo = block_start(n, blocks, block) * alignment;
    *hi = block_start(n, blocks, block + 1) * alignment;
}

clv_shard clv_layout_shard(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int64_t rank)
{
    if (!layout || !mesh || !is_rank(layout->rank) || (!shape && layout->rank > 0))
        return (clv_shard){0};
    clv_shard shard = {.rank = layout->rank};
    if (!clv_layout_has_rank(layout, mesh, rank))
        return shard;
    for (int d = 0; d < layout->rank; d++)
        clv_block_range(shape[d], layout->alignment[d], clv_layout_block_count(layout, d),
                        clv_layout_block_index(layout, mesh, d, rank), &shard.lo[d], &shard.hi[d]);
    return shard;
}

int64_t clv_shard_elems(const clv_shard *shard)
{
    if (!shard || !is_rank(shard->rank))
        return 0;
    int64_t elems = 1;
    for (int d = 0; d < shard->rank; d++)
        elems *= shard->hi[d] - shard->lo[d];
    return elems;
}

int64_t clv_layout_max_elems(const clv_layout *layout, const int64_t *shape)
{
    if (!layout || !is_rank(layout->rank) || (!shape && layout->rank > 0))
        return 0;
    /* Dimensions are cut by disjoint sub-axes, so some rank holds the largest block of each. */
    int64_t elems = 1;
    for (int d = 0; d < layout->rank; d++) {
        int64_t blocks = clv_layout_block_count(layout, d);
        if (layout->alignment[d] < 1 || blocks < 1)
            return 0;
        int64_t n = shape[d] / layout->alignment[d];
        elems *= (n / blocks + (n % blocks != 0)) * layout->alignment[d];
    }
    return elems;
}

clv_shard clv_shard_intersect(const clv_shard *a, const clv_shard *b)
{
    if (!a || !b || !is_rank(a->rank) || a->rank != b->rank)
        return (clv_shard){0};
    clv_shard both = {.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        both.lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        both.hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (both.hi[d] < both.lo[d])
            both.hi[d] = both.lo[d];
    }
    return both;
}

void clv_index_print(char *out, size_t size, int rank, const int64_t *shape, int64_t at)
{
    if (!out || size == 0)
        return;
    int64_t stride = 1;
    size_t used = 0;
    out[0] = '\0';
    if (!shape && rank > 0)
        return;
    for (int d = 1; d < rank; d++)
        stride *= shape[d] > 0 ? shape[d] : 1;
    for (int d = 0; d < rank && used < size; d++) {
        used += (size_t)snprintf(out + used, size - used, "%s%lld%s", d ? "," : "[", (long long)(at / stride),
                                 d == rank - 1 ? "]" : "");
        at %= stride;
        stride /= d + 1 < rank && shape[d + 1] > 0 ? shape[d + 1] : 1;
    }
}
