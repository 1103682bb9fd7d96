/* unique_id.c - unique ids: random 64-bit numbers that identify a run. */
#include "base/unique_id.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

uint64_t clv_unique_id(void)
{
    struct {
        struct timespec now;
        uint64_t random, process;
    } seed = {.process = (uint64_t)getpid()};

    clock_gettime(CLOCK_REALTIME, &seed.now);
    if (getrandom(&seed.random, sizeof seed.random, GRND_NONBLOCK) < 0)
        seed.random = 0; /* the time and the process are to do */
    uint64_t number = clv_hash_bytes(&seed, sizeof seed);
    return number ? number : 1;
}
