/* chunk.c - see chunk.h. */
#include "infer/chunk.h"

/* Most tokens that are added. To read all weights once more takes as long as 20 to 30 rows do (AVX-512, in bf16 and
 * f32). */
enum { ADDED = 28 };

int clv_chunk_power(int64_t rest, int64_t shortest, int64_t room)
{
    int power = 0;
    if (rest <= 0)
        return -1;
    for (; power + 1 < CLV_CHUNK_POWERS && (INT64_C(1) << power) < rest; power++) {
        const int64_t next = INT64_C(2) << power;
        if (next > shortest && (next > room || next - shortest > ADDED))
            break;
    }
    return power;
}
