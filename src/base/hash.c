/* hash.c - FNV-1a hashes (a stable one of text, a fast one of bytes), and random ids that identify a run. */
#include "base/hash.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint32_t clv_hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

uint64_t clv_hash_bytes(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t n; size > 0; at += n, size -= n) {
        uint64_t word = 0;
        n = size < sizeof word ? size : sizeof word;
        memcpy(&word, at, n);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29; /* the upper bits of a word reach the lower ones of the hash */
    }
    return hash;
}

uint64_t clv_unique_id(void)
{
    struct {
        struct timespec now;
        uint64_t random, process;
    } seed = {.process = (uint64_t)getpid()};

    clock_gettime(CLOCK_REALTIME, &seed.now);
    if (getrandom(&seed.random, sizeof seed.random, GRND_NONBLOCK) < 0)
        seed.random = 0; /* time and process id are enough then */
    uint64_t id = clv_hash_bytes(&seed, sizeof seed);
    return id ? id : 1;
}
