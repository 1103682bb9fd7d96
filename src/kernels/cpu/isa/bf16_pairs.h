/* bf16_pairs.h - interleaves two bf16 rows into pairs, as bf16 dot-product instructions take them. For sources in
 * isa/ and x86/ where AVX-512 is compiled.
 */
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#include <stdint.h>

/* What takes the words of x0 y0 x1 y1 ... of two rows x and y of 32: from their element `first` on, 0 or 16. */
static inline __m512i clv_pair_order(int first)
{
    uint16_t order[32];
    for (int i = 0; i < 32; i++)
        order[i] = (uint16_t)(first + i / 2 + i % 2 * 32);
    return _mm512_loadu_si512(order);
}

/* The words of x and y, the first 16 and the last, by clv_pair_order(0) and (16). */
static inline void clv_store_pairs(void *first, void *last, __m512i x, __m512i y, __m512i front, __m512i back)
{
    _mm512_storeu_si512(first, _mm512_permutex2var_epi16(x, front, y));
    _mm512_storeu_si512(last, _mm512_permutex2var_epi16(x, back, y));
}

#endif
