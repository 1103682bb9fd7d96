/* prefill_chunk.c - chooses the chunk size of chunked prefill: a power of two up to 512 tokens. */
#include "infer/generation/prefill_chunk.h"

#include <stdbool.h>

/* Rows that take as long as reading all weights once: twice the rate of products divided by that of memory, times an
 * element's bytes. 20 on two cores of Zen 5 with AVX-512, in f32 and bf16; 16 with AVX2 in f32, 8 in bf16. */
enum { ROWS_PER_READ = 16 };

static int64_t power_of_two_from(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* Whether one padded chunk of 2n rows takes no longer than a chunk of n rows and one for the rest. */
static bool padding_pays(int64_t n, int64_t rest)
{
    return n - power_of_two_from(rest - n) <= ROWS_PER_READ;
}

int clv_prefill_chunk_log2_or_negative(int64_t rest, int64_t shortest, int64_t room)
{
    int power = 0;
    if (rest <= 0)
        return -1;
    for (; power + 1 < CLV_PREFILL_CHUNK_SIZES && (INT64_C(1) << power) < rest; power++) {
        const int64_t n = INT64_C(1) << power;
        if (2 * n > shortest && (2 * n > room || !padding_pays(n, rest)))
            break;
    }
    return power;
}
