/* random_layout.h - random meshes and layouts of all kinds: parts of axes, alignments, dimensions of no elements. */
#pragma once

#include "cleave/layout.h"

/* What follows depends on the seed alone. */
void any_seed(uint64_t seed);

/* [0, n). */
int64_t any_pick(int64_t n);

clv_mesh any_mesh(int64_t max_ranks);

/* 0 to `most`, and a little beyond where it is rounded up to a number with many divisors. */
int64_t any_size(int64_t most);

int64_t any_divisor(int64_t n);

/* Parts of axes as the most minor of any dimension. `nested`: the size of each axis' first part where it is cut; NULL:
 * any parts, so that those of two layouts may cross. */
clv_layout any_layout(const clv_mesh *mesh, int rank, const int64_t *shape, const int64_t *nested);
