/* prefill_chunk.c - chunk size of chunked prefill: a power of two up to 512 tokens. */
#include "infer/generation/prefill_chunk.h"

#include <stdbool.h>

/* Rows that take as long as reading all weights once more: twice the rate of products by that of memory, over an
 * element's bytes. 20 on two cores of Zen 5 with AVX-512, in f32 and bf16; 16 with AVX2 in f32, 8 in bf16. */
enum { A_READ = 16 };

static int64_t power_of_two_from(int64_t n)
{
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* Whether 2n rows in one chunk take no longer than n rows and then what holds the others. */
static bool is_worth_filling(int64_t n, int64_t rest)
{
    return n - power_of_two_from(rest - n) <= A_READ;
}

int clv_prefill_chunk_log2(int64_t rest, int64_t shortest, int64_t room)
{
    int power = 0;
    if (rest <= 0)
        return -1;
    for (; power + 1 < CLV_PREFILL_CHUNK_SIZES && (INT64_C(1) << power) < rest; power++) {
        const int64_t n = INT64_C(1) << power;
        if (2 * n > shortest && (2 * n > room || !is_worth_filling(n, rest)))
            break;
    }
    return power;
}
