/* counts.h - what a search has counted: for each way to cut a tensor, the elements that are missing from a layout.
 *
 * A tree of one level an atom. How an atom cuts the tensor is a number below `width`; assignments that differ in other
 * tensors alone share a count.
 */
#ifndef CLEAVE_PARTITION_COUNTS_H
#define CLEAVE_PARTITION_COUNTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct clv_counts {
    int width;
    size_t n, capacity; /* nodes */
    int64_t *slot;      /* `width` a node: the next atom's node, or the count and 1; 0: none yet */
} clv_counts;

/* One root a layout: nodes 0 .. n_roots - 1. Nothing is allocated before the first count. */
void clv_counts_make(clv_counts *out, int width, int n_roots);
void clv_counts_free(clv_counts *counts);

/* The slot below a root that cut[0 .. n) lead to, n > 0; NULL: out of memory, nothing is remembered. Valid until the
 * next call. */
int64_t *clv_counts_at(clv_counts *counts, int root, const uint8_t *cut, int n);

#endif
