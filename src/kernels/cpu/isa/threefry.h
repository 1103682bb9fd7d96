/* threefry.h - vectorizable threefry-2x32 random bits, equal to base/rng.c's. */
#pragma once

#include <stdint.h>

#include "kernels/cpu/isa/vector_math.h"

CLV_V_INLINE uint32_t threefry_rotate(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

#define CLV_THREEFRY_ROUNDS(a, b, c, d)                                                                                \
    x0 += x1, x1 = threefry_rotate(x1, a) ^ x0;                                                                        \
    x0 += x1, x1 = threefry_rotate(x1, b) ^ x0;                                                                        \
    x0 += x1, x1 = threefry_rotate(x1, c) ^ x0;                                                                        \
    x0 += x1, x1 = threefry_rotate(x1, d) ^ x0;

/* The 32 random bits of element (hi, lo): threefry-2x32 of it, both words xor-ed, as clv_random_bits gives them. */
CLV_V_INLINE uint32_t threefry_bits(uint32_t k0, uint32_t k1, uint32_t hi, uint32_t lo)
{
    uint32_t k2 = k0 ^ k1 ^ 0x1bd11bdau, x0 = hi + k0, x1 = lo + k1;
    CLV_THREEFRY_ROUNDS(13, 15, 26, 6)
    x0 += k1, x1 += k2 + 1;
    CLV_THREEFRY_ROUNDS(17, 29, 16, 24)
    x0 += k2, x1 += k0 + 2;
    CLV_THREEFRY_ROUNDS(13, 15, 26, 6)
    x0 += k0, x1 += k1 + 3;
    CLV_THREEFRY_ROUNDS(17, 29, 16, 24)
    x0 += k1, x1 += k2 + 4;
    CLV_THREEFRY_ROUNDS(13, 15, 26, 6)
    x0 += k2, x1 += k0 + 5;
    return x0 ^ x1;
}
