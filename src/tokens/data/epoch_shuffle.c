/* epoch_shuffle.c - pseudorandom permutation of an epoch without a table: Feistel network with cycle walking. */
#include "tokens/data/epoch_shuffle.h"

#include "cleave/rng.h"

enum { ROUNDS = 8, LEAST_HALF = 4 /* fewer than 8 bits have too few permutations */ };

static clv_key key_of(uint64_t seed, int64_t epoch)
{
    clv_key key = clv_key_fold_in(clv_key_seed(seed), (uint32_t)(seed >> 32));
    key = clv_key_fold_in(key, (uint32_t)epoch);
    return clv_key_fold_in(key, (uint32_t)((uint64_t)epoch >> 32));
}

static uint64_t permute(clv_key key, int half, uint64_t x)
{
    uint32_t mask = (UINT32_C(1) << half) - 1, left = (uint32_t)(x >> half), right = (uint32_t)x & mask, bits[2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        clv_threefry(key, round, right, bits);
        uint32_t next = left ^ (bits[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

int64_t clv_epoch_shuffle_index(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    clv_key key = key_of(seed, epoch);
    int half = LEAST_HALF;
    while ((uint64_t)n > UINT64_C(1) << 2 * half)
        half++;
    uint64_t x = (uint64_t)i;
    do
        x = permute(key, half, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
