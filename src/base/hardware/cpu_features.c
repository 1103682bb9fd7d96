/* cpu_features.c - CPU feature detection: the best instruction set (AVX2, AVX-512, AMX) that kernels may use. */
#include "base/hardware/cpu_features.h"

#include <stdatomic.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { UNKNOWN = -1 };

/* Set on first use; threads that race write the same value. */
static _Atomic int chosen = UNKNOWN;

/* Whether the CPU has bf16 tiles and AVX512-BF16, and Linux permits this process to use tiles: the permission, once
 * granted, holds for all threads. */
static bool os_allows_amx(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* Linux 5.16 */
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE))
        return false;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & AVX512_BF16))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

static clv_isa best_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* clang 14 cannot ask for f16c; no CPU has AVX2 without it. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CLV_ISA_PORTABLE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return os_allows_amx() ? CLV_ISA_AMX : CLV_ISA_AVX512;
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

#if defined(__x86_64__)
#define ASK_CPU(question, what) (__builtin_cpu_init(), question(what))
#else
#define ASK_CPU(question, what) false
#endif

bool clv_cpu_has_avx512_bf16(void)
{
    return ASK_CPU(__builtin_cpu_supports, "avx512bf16");
}

bool clv_cpu_has_avx512_vnni(void)
{
    return ASK_CPU(__builtin_cpu_supports, "avx512vnni");
}

bool clv_cpu_is_amd(void)
{
    return ASK_CPU(__builtin_cpu_is, "amd");
}

int32_t clv_cpu_feature_bits(void)
{
    return (int32_t)clv_cpu_isa() << 3 | clv_cpu_has_avx512_bf16() << 2 | clv_cpu_has_avx512_vnni() << 1 |
           clv_cpu_is_amd();
}

const char *clv_isa_name(clv_isa isa)
{
    static const char *const text[] = {"portable", "avx2", "avx512", "amx"};
    return text[isa];
}
