/* soak.c - random graphs for a while, each in a process of its own, from a random seed on. What fails is shrunk and
 * shown, and the soak goes on; at its end it fails if any did.
 *
 *   soak [SECONDS [SEED]] */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "random_graph_run.h"

enum { SECONDS = 3600, SECONDS_A_CASE = 120, SECONDS_A_LINE = 300 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t random_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed;
}

static void show(random_spec spec, random_result result)
{
    char text[RANDOM_SPEC_TEXT];
    random_spec_print(text, &spec);
    printf("\nCLV_SEED=%s %s\nin short:\n", text, result.message);
    spec = random_shrink(&spec, &result, SECONDS_A_CASE);
    random_report(stdout, &spec, &result);
    fflush(stdout);
}

static void count(uint64_t graphs, double seconds, uint64_t failed)
{
    printf("soak: %" PRIu64 " graphs in %.0f s, %" PRIu64 " failed\n", graphs, seconds, failed);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : SECONDS, begin = now();
    random_spec spec = {.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : random_seed()};
    uint64_t first = spec.seed, failed = 0, lines = 0;
    printf("soak: %g s from seed %" PRIu64 "\n", seconds, first);
    fflush(stdout);
    for (; now() - begin < seconds; spec.seed++) {
        random_result result = random_run_apart(&spec, SECONDS_A_CASE);
        if (now() - begin > (double)(lines + 1) * SECONDS_A_LINE) {
            count(spec.seed - first + 1, now() - begin, failed + result.failed);
            lines++;
        }
        if (!result.failed)
            continue;
        failed++;
        show(spec, result);
    }
    count(spec.seed - first, now() - begin, failed);
    return failed > 0;
}
