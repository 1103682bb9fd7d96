/* machine_limits.c - what the machine itself can do, with nothing but threads: the limits that bench/compare.py
 * measures beside cleave. usage: limits read GIB | limits allreduce BYTES
 *
 * A thread on each core that the process may use. read: each reads its part of GIB GiB; prints GB/s of all together,
 * the median of seven. allreduce: each holds a buffer of BYTES, which it has just written; each adds its part of all of
 * them up and writes the sum to all results; prints microseconds, the median of 41, from a meeting to a meeting.
 * Compiled by compare.py: cc -O3 -march=native -pthread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST = 64, READS = 7, SUMS = 41 };

typedef struct job {
    bool sums;
    int n, cpu[MOST];
    size_t bytes; /* of a thread's buffer */
    char *buffer[MOST], *result[MOST];
    double took[SUMS];
    _Atomic int arrived, meeting;
    _Atomic uint64_t seen; /* so that reading is not left out */
} job;

static job all;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(void)
{
    int at = atomic_load(&all.meeting);
    if (atomic_fetch_add(&all.arrived, 1) + 1 == all.n) {
        atomic_store(&all.arrived, 0);
        atomic_store(&all.meeting, at + 1);
    } else {
        while (atomic_load(&all.meeting) == at)
            ;
    }
}

static char *new_memory(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;
    if (posix_memalign(&p, huge, (bytes + huge - 1) / huge * huge) != 0)
        exit(1);
    madvise(p, (bytes + huge - 1) / huge * huge, MADV_HUGEPAGE);
    return p;
}

static uint64_t read_all(const uint64_t *from, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += from[i];
    return sum;
}

static void add_part(int me)
{
    size_t n = all.bytes / sizeof(float), first = n * (size_t)me / (size_t)all.n;
    size_t last = n * (size_t)(me + 1) / (size_t)all.n;
    if (all.n == 2) { /* in one pass */
        const float *a = (float *)all.buffer[0], *b = (float *)all.buffer[1];
        float *restrict x = (float *)all.result[0], *restrict y = (float *)all.result[1];
        for (size_t i = first; i < last; i++)
            x[i] = y[i] = a[i] + b[i];
        return;
    }
    for (int t = 0; t < all.n; t++)
        for (size_t i = first; i < last; i++) {
            float *to = (float *)all.result[0] + i;
            *to = (t == 0 ? 0 : *to) + ((float *)all.buffer[t])[i];
        }
    for (int t = 1; t < all.n; t++)
        memcpy(all.result[t] + first * sizeof(float), all.result[0] + first * sizeof(float),
               (last - first) * sizeof(float));
}

static void *run(void *argument)
{
    int me = (int)(intptr_t)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(all.cpu[me], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    all.buffer[me] = new_memory(all.bytes);
    all.result[me] = all.sums ? new_memory(all.bytes) : NULL;
    memset(all.buffer[me], 0, all.bytes);
    if (all.sums)
        memset(all.result[me], 0, all.bytes);
    for (int k = 0; k < (all.sums ? SUMS : READS); k++) {
        if (all.sums)
            for (size_t i = 0; i < all.bytes / sizeof(float); i++)
                ((float *)all.buffer[me])[i] = 0.5f * ((float *)all.result[me])[i];
        meet();
        double began = now();
        if (all.sums)
            add_part(me);
        else
            atomic_fetch_add(&all.seen, read_all((uint64_t *)all.buffer[me], all.bytes / sizeof(uint64_t)));
        meet();
        if (me == 0)
            all.took[k] = now() - began;
        meet();
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    cpu_set_t set;
    pthread_t thread[MOST];
    if (argc != 3 || (strcmp(argv[1], "read") != 0 && strcmp(argv[1], "allreduce") != 0)) {
        fprintf(stderr, "usage: limits read GIB | limits allreduce BYTES\n");
        return 2;
    }
    sched_getaffinity(0, sizeof set, &set);
    for (int c = 0; c < CPU_SETSIZE && all.n < MOST; c++)
        if (CPU_ISSET(c, &set))
            all.cpu[all.n++] = c;
    all.sums = argv[1][0] == 'a';
    all.bytes = all.sums ? strtoull(argv[2], NULL, 10) : (size_t)(strtod(argv[2], NULL) * (1 << 30)) / (size_t)all.n;
    for (int t = 0; t < all.n; t++)
        if (pthread_create(&thread[t], NULL, run, (void *)(intptr_t)t) != 0)
            return 1;
    for (int t = 0; t < all.n; t++)
        pthread_join(thread[t], NULL);
    int n = all.sums ? SUMS : READS;
    qsort(all.took, (size_t)n, sizeof *all.took, by_size);
    printf("%g\n", all.sums ? 1e6 * all.took[n / 2] : 1e-9 * (double)all.bytes * all.n / all.took[n / 2]);
    return 0;
}
