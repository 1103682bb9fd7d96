/* epoch_shuffle.h - index of the i-th sequence of a shuffled epoch, computed without a table. */
#pragma once

#include <stdint.h>

/* Item at position i of a shuffled epoch: a permutation of 0 to n - 1 by (seed, epoch, n) alone. 1 <= n <= 2^62. */
int64_t clv_epoch_shuffle_index(uint64_t seed, int64_t epoch, int64_t n, int64_t i);
