/* openmp_spin.c - restarts the program with a short GOMP_SPINCOUNT, so that idle OpenMP threads do not hold cores. */
#include "cli/job/openmp_spin.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Spins of a pause each: 0.1 to 0.5 ms. */
static const char spins[] = "10000";

#ifdef _OPENMP
/* The file of this process, by its own name, which processes are known by; false for another program that has loaded
 * this one: it would be started instead. */
static bool find_program(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    const char *slash = strrchr(path, '/');
    return slash && strncmp(slash + 1, "cleave", strlen("cleave")) == 0;
}
#endif

void clv_openmp_restart_with_short_spin(char **argv)
{
#ifdef _OPENMP
    char path[4096];
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1)
        return;
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || !find_program(path, sizeof path))
        return;
    if (setenv("GOMP_SPINCOUNT", spins, 1) == 0)
        execv(path, argv);
#else
    (void)spins;
#endif
}
