/* missing_count_trie.h - memo of how many elements the neediest rank lacks, keyed by how a tensor is cut.
 *
 * A tree of one level an subaxis. How an subaxis cuts the tensor is a number below `width`; assignments that differ in
 * other tensors alone share a count.
 */
#ifndef CLEAVE_PARTITION_SHARDING_MISSING_COUNT_TRIE_H
#define CLEAVE_PARTITION_SHARDING_MISSING_COUNT_TRIE_H

#include <stddef.h>
#include <stdint.h>

typedef struct clv_missing_counts {
    int width;
    size_t n, capacity; /* nodes */
    int64_t *slot;      /* `width` a node: the next subaxis's node, or the count and 1; 0: none yet */
} clv_missing_counts;

/* One root a layout: nodes 0 .. n_roots - 1. Nothing is allocated before the first count. */
void clv_missing_counts_init(clv_missing_counts *out, int width, int n_roots);
void clv_missing_counts_free(clv_missing_counts *counts);

/* The slot below a root that cut[0 .. n) lead to, n > 0; NULL: out of memory, nothing is remembered. Valid until the
 * next call. */
int64_t *clv_missing_counts_at(clv_missing_counts *counts, int root, const uint8_t *cut, int n);

#endif
