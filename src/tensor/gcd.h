/* gcd.h - greatest common divisor. */
#pragma once

#include <stdint.h>

/* Of any two numbers >= 0; gcd(0, b) = b. */
static inline int64_t clv_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
