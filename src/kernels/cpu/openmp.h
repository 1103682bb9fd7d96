/* openmp.h - OpenMP thread queries; one thread where cleave is built without OpenMP. */
#ifndef CLEAVE_KERNELS_CPU_OPENMP_H
#define CLEAVE_KERNELS_CPU_OPENMP_H

#ifdef _OPENMP
#include <omp.h>
#endif

/* How many threads a parallel region started here gets. */
static inline int clv_threads_max(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* The calling thread's place in its team, from 0. */
static inline int clv_threads_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* The threads of that team. */
static inline int clv_threads_team(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Regions started by this thread (alone) get n threads from now on. */
static inline void clv_threads_set(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

#endif
