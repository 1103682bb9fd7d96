/* modular_arithmetic.c - modular arithmetic: gcd, inverses, and whether uneven blocks of two splits meet on a rank. */
#include "tensor/modular_arithmetic.h"

int64_t clv_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* x with a*x = 1 modulo m; gcd(a, m) = 1. */
static int64_t inverse(int64_t a, int64_t m)
{
    int64_t r = m, next_r = a % m, x = 0, next_x = 1;
    while (next_r != 0) {
        int64_t quotient = r / next_r, rest = r - quotient * next_r, step = x - quotient * next_x;
        r = next_r, next_r = rest;
        x = next_x, next_x = step;
    }
    return x < 0 ? x + m : x;
}

/* The least x >= 0 with lo <= c*x mod m <= hi, where 0 <= lo <= hi < m; -1 if there is none. As in Euclid's algorithm:
 * if no multiple of c lies in [lo, hi], one of m, modulo c, has to bring it there. */
static int64_t first_multiple(int64_t c, int64_t m, int64_t lo, int64_t hi)
{
    if (lo == 0)
        return 0;
    if (c == 0)
        return -1;
    int64_t x = (lo + c - 1) / c;
    if (x * c <= hi)
        return x;
    int64_t rounds = first_multiple(m % c, c, (c - hi % c) % c, (c - lo % c) % c);
    return rounds < 0 ? -1 : (int64_t)(((uint64_t)lo + (uint64_t)m * (uint64_t)rounds + (uint64_t)c - 1) / (uint64_t)c);
}

bool clv_uneven_blocks_meet(int64_t a, int64_t b, int64_t k)
{
    a %= k;
    b %= k;
    if (a == 0)
        return false;
    /* i*a mod k = g*u takes each u in [0, k/g); u belongs to i = u/(a/g) mod k/g. Of these i, i*b is known modulo h,
     * and takes all such values below k. */
    int64_t g = clv_gcd(a, k), period = k / g, h = period * clv_gcd(b, g), small = k - b;
    int64_t c = inverse(a / g, period) * (b % h) % h, from = period - a / g;
    if (small >= h)
        return true;
    int64_t lo = (h - from * c % h) % h, hi = lo + small - 1;
    if (hi >= h)
        return true;
    int64_t x = first_multiple(c, h, lo, hi);
    return x >= 0 && x < a / g;
}
