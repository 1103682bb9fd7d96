/* reshard_volume_even.c - reshard volume of even layouts: closed form where every dimension is split into equal
 * blocks.
 *
 * Cuts that both layouts begin with make common blocks: a rank is in one of them under both. What is left of the two
 * lists divides a common block. If that begins with different axes (or parts of them), some rank is first by the one
 * and last by the other, and has nothing of what it needs. If only one list is left, the blocks nest.
 */
#include "tensor/reshard_volume.h"

#include <stdbool.h>

/* The cuts of a dimension that are not yet taken off: subs[0], of which the first is a part, and n in all. */
typedef struct remaining_axes {
    const clv_subaxis *subs;
    clv_subaxis first;
    int n;
} remaining_axes;

static remaining_axes tail_of(const clv_layout *layout, int d)
{
    remaining_axes t = {.subs = layout->axes + layout->begin[d], .n = layout->begin[d + 1] - layout->begin[d]};
    if (t.n > 0)
        t.first = t.subs[0];
    return t;
}

/* Takes so many blocks off the major end. */
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

/* Whether of two parts of one axis the one ends where or before the other begins, or both begin together. */
static bool nest(clv_subaxis a, clv_subaxis b)
{
    return b.pre % ((int64_t)a.pre * a.size) == 0 || a.pre % ((int64_t)b.pre * b.size) == 0;
}

/* Takes off what the two have in common; false where an axis is divided so that parts cross. */
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

/* Elements of a block; 0: blocks differ (or there are none). */
static int64_t equal_blocks(const clv_layout *layout, int d, int64_t size)
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
        int64_t needed = equal_blocks(to, d, shape[d]), held = equal_blocks(from, d, shape[d]);
        remaining_axes a = tail_of(to, d), b = tail_of(from, d);
        if (needed == 0 || held == 0 || !pop_common_factors(&a, &b))
            return -1;
        need *= needed;
        have *= a.n > 0 && b.n > 0 ? 0 : needed < held ? needed : held;
    }
    return need - have;
}
