/* shuffle.h - an order of any number of items without a table. */
#ifndef CLEAVE_TOKENS_SHUFFLE_H
#define CLEAVE_TOKENS_SHUFFLE_H

#include <stdint.h>

/* Which item comes as number i in the order of an epoch: for i of 0 to n - 1 a permutation of these that depends on
 * (seed, epoch, n) alone. 1 <= n <= 2^62. */
int64_t clv_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

#endif
