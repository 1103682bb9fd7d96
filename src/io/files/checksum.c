/* checksum.c - checksum: 128-bit XXH3 as 32 hex digits, detects damage, not tampering. */
#include "io/files/checksum.h"

#include <stdio.h>
#include <xxhash.h>

clv_checksum *clv_checksum_new(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state != NULL)
        XXH3_128bits_reset(state);
    return (clv_checksum *)state;
}

void clv_checksum_free(clv_checksum *sum)
{
    XXH3_freeState((XXH3_state_t *)sum);
}

void clv_checksum_reset(clv_checksum *sum)
{
    XXH3_128bits_reset((XXH3_state_t *)sum);
}

void clv_checksum_add(clv_checksum *sum, const void *bytes, size_t size)
{
    XXH3_128bits_update((XXH3_state_t *)sum, bytes, size);
}

static void print(char out[CLV_CHECKSUM_SIZE], XXH128_hash_t hash)
{
    snprintf(out, CLV_CHECKSUM_SIZE, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

void clv_checksum_text(char out[CLV_CHECKSUM_SIZE], const clv_checksum *sum)
{
    print(out, XXH3_128bits_digest((const XXH3_state_t *)sum));
}

void clv_checksum_of(char out[CLV_CHECKSUM_SIZE], const void *bytes, size_t size)
{
    print(out, XXH3_128bits(bytes, size));
}
