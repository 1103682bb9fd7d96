/* reshard_volume_even.c - reshard volume of even layouts: closed form where every dimension is split into equal
 * blocks.
 *
 * The sub-axes with which both layouts begin make common blocks: a rank has the same one under both. The rest of the
 * two lists divide a common block. If the rests begin with different axes (or parts), some rank has the first block
 * under one layout and the last under the other, so it holds nothing of what it needs. If only one list has a rest,
 * blocks nest.
 */
#include "tensor/reshard_volume.h"

/* The sub-axes of a dimension that are not yet removed: n of them, of subs[0] only the minor part `first`. */
typedef struct remaining_axes {
    const clv_subaxis *subs;
    clv_subaxis first;
    int n;
} remaining_axes;

static remaining_axes axes_of(const clv_layout *layout, int d)
{
    remaining_axes t = {.subs = layout->axes + layout->begin[d], .n = layout->begin[d + 1] - layout->begin[d]};
    if (t.n > 0)
        t.first = t.subs[0];
    return t;
}

/* Removes `size` blocks at the major end. */
static void pop_factor(remaining_axes *t, int32_t size)
{
    t->first.pre *= size;
    t->first.size /= size;
    if (t->first.size > 1)
        return;
    t->subs++;
    if (--t->n > 0)
        t->first = t->subs[0];
}

/* Whether one of two parts of an axis ends at or before the begin of the other, in factors. */
static bool nest(clv_subaxis a, clv_subaxis b)
{
    return b.pre % ((int64_t)a.pre * a.size) == 0 || a.pre % ((int64_t)b.pre * b.size) == 0;
}

/* Removes the common major part of both; false if sub-axes cross. */
static bool pop_common_factors(remaining_axes *a, remaining_axes *b)
{
    while (a->n > 0 && b->n > 0 && a->first.axis == b->first.axis) {
        int32_t size = a->first.size < b->first.size ? a->first.size : b->first.size;
        if (a->first.pre != b->first.pre)
            return nest(a->first, b->first);
        if (a->first.size % size != 0 || b->first.size % size != 0)
            return false;
        pop_factor(a, size);
        pop_factor(b, size);
    }
    return true;
}

/* Returns the elements of a block; 0: blocks differ in size, or are empty. */
static int64_t block_elems(const clv_layout *layout, int d, int64_t size)
{
    int64_t blocks = 1;
    for (int i = layout->begin[d]; i < layout->begin[d + 1]; i++)
        blocks *= layout->axes[i].size;
    return size / layout->alignment[d] % blocks == 0 ? size / blocks : 0;
}

int64_t clv_max_received_elems_even(const clv_layout *to, const clv_layout *from, const int64_t *shape)
{
    int64_t need = 1, have = 1;
    for (int d = 0; d < to->rank; d++) {
        int64_t needed = block_elems(to, d, shape[d]), available = block_elems(from, d, shape[d]);
        remaining_axes a = axes_of(to, d), b = axes_of(from, d);
        if (needed == 0 || available == 0 || !pop_common_factors(&a, &b))
            return -1;
        need *= needed;
        have *= a.n > 0 && b.n > 0 ? 0 : needed < available ? needed : available;
    }
    return need - have;
}
