#include "cli/openmp_spin.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Of a pause each: 0.1 to 0.5 ms. */
static const char spins[] = "10000";

void clv_openmp_spin_less(char **argv)
{
#ifdef _OPENMP
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1)
        return;
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || setenv("GOMP_SPINCOUNT", spins, 1) != 0)
        return;
    execv("/proc/self/exe", argv);
#else
    (void)argv;
    (void)spins;
#endif
}
