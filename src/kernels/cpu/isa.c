/* isa.c: which instruction set the kernels use. */
#include "kernels/cpu/isa.h"

#include <stdatomic.h>

enum { UNKNOWN = -1 };

/* Threads that race to fill it write the same value. */
static _Atomic int chosen = UNKNOWN;

static clv_isa best_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* clang 14 cannot ask for f16c; no CPU has AVX2 without it. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CLV_ISA_PORTABLE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return CLV_ISA_AVX512;
    return CLV_ISA_AVX2;
#else
    return CLV_ISA_PORTABLE;
#endif
}

clv_isa clv_cpu_isa(void)
{
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa == UNKNOWN) {
        isa = (int)best_isa();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (clv_isa)isa;
}

int clv_cpu_set_isa_for_test(clv_isa isa)
{
    if (isa > best_isa())
        return -1;
    atomic_store_explicit(&chosen, (int)isa, memory_order_relaxed);
    return 0;
}

void clv_cpu_isa_reset_for_test(void)
{
    atomic_store_explicit(&chosen, UNKNOWN, memory_order_relaxed);
}

const char *clv_isa_text(clv_isa isa)
{
    static const char *const text[] = {"portable", "avx2", "avx512"};
    return text[isa];
}
