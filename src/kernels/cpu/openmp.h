/* openmp.h - OpenMP thread queries; one thread where cleave is built without OpenMP. */
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

/* Number of threads of the next parallel region. */
static inline int clv_threads_max(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Index of the calling thread in its team. */
static inline int clv_threads_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Number of threads of the team. */
static inline int clv_threads_team(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Sets the number of threads of parallel regions that this thread starts. */
static inline void clv_threads_set(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
#endif
}
