/* resident_memory.c - samples the peak anonymous resident memory of the process on a thread. */
#include "cli/bench/resident_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct clv_resident_watch {
    pthread_t thread;
    atomic_bool done;
    int64_t peak;
};

int64_t clv_resident_bytes(void)
{
    long long size, resident = 0, shared = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm)
        return 0;
    if (fscanf(statm, "%lld %lld %lld", &size, &resident, &shared) != 3)
        resident = shared = 0;
    fclose(statm);
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

static void *watch_loop(void *arg)
{
    clv_resident_watch *watch = arg;
    while (!atomic_load(&watch->done)) {
        int64_t now = clv_resident_bytes();
        watch->peak = now > watch->peak ? now : watch->peak;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

clv_resident_watch *clv_resident_watch_start(void)
{
    clv_resident_watch *watch = calloc(1, sizeof *watch);
    if (watch && pthread_create(&watch->thread, NULL, watch_loop, watch) != 0) {
        free(watch);
        return NULL;
    }
    return watch;
}

int64_t clv_resident_watch_stop(clv_resident_watch *watch)
{
    if (!watch)
        return 0;
    atomic_store(&watch->done, true);
    pthread_join(watch->thread, NULL);
    int64_t peak = watch->peak;
    free(watch);
    return peak;
}
