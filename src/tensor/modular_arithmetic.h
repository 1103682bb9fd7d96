/* modular_arithmetic.h - modular arithmetic: gcd, inverses, and whether uneven blocks of two splits meet on a rank. */
#ifndef CLEAVE_TENSOR_MODULAR_ARITHMETIC_H
#define CLEAVE_TENSOR_MODULAR_ARITHMETIC_H

#include <stdbool.h>
#include <stdint.h>

/* Of any two numbers >= 0; gcd(0, b) = b. */
int64_t clv_gcd(int64_t a, int64_t b);

/* Whether some i in [0, k) has a large block of a units over k blocks and a small one of b: block i is large when
 * i*a mod k >= k - a mod k. In the time of a gcd. a, b >= 0 may be large. */
bool clv_uneven_blocks_meet(int64_t a, int64_t b, int64_t k);

#endif
