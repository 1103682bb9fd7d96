/* residues.h - divisors, and multiples modulo a number; of numbers below 2^31 where nothing else is said. */
#ifndef CLEAVE_TENSOR_RESIDUES_H
#define CLEAVE_TENSOR_RESIDUES_H

#include <stdbool.h>
#include <stdint.h>

/* Of any two numbers >= 0; gcd(0, b) = b. */
int64_t clv_gcd(int64_t a, int64_t b);

/* Whether some i in [0, k) has a large block of a granules over k blocks and a small one of b: block i is large when
 * i*a mod k >= k - a mod k. In the time of a gcd. a, b >= 0 may be large. */
bool clv_large_meets_small(int64_t a, int64_t b, int64_t k);

#endif
