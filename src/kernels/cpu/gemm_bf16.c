/* gemm_bf16.c: which of our kernels of bf16 this CPU has. */
#include "kernels/cpu/gemm_bf16.h"

#include "kernels/cpu/isa.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/x86/gemm_x86.h"

enum {
    ARCH_REQ_XCOMP_PERM = 0x1023,
    XFEATURE_XTILEDATA = 18,
    EDX_AMX_BF16 = 1 << 22, /* CPUID 7.0 */
    EDX_AMX_TILE = 1 << 24,
    EAX_AVX512_BF16 = 1 << 5 /* CPUID 7.1 */
};

static clv_gemm_bf16_kernel found;

/* Linux gives the tiles' registers, 8 KiB a thread, to processes that ask for them. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void look(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & EAX_AVX512_BF16))
        return;
    found = CLV_GEMM_BF16_VDP;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & EDX_AMX_BF16) && (d & EDX_AMX_TILE) && may_use_tiles())
        found = CLV_GEMM_BF16_AMX;
}

clv_gemm_bf16_kernel clv_gemm_bf16_best(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return clv_cpu_isa() >= CLV_ISA_AVX512 ? found : CLV_GEMM_BF16_NONE;
}

void clv_gemm_bf16(const clv_gemm_args *g, clv_gemm_bf16_kernel kernel)
{
    if (kernel == CLV_GEMM_BF16_AMX)
        clv_gemm_amx(g);
    else
        clv_gemm_vdp(g);
}

#else

clv_gemm_bf16_kernel clv_gemm_bf16_best(void)
{
    return CLV_GEMM_BF16_NONE;
}

void clv_gemm_bf16(const clv_gemm_args *g, clv_gemm_bf16_kernel kernel)
{
    (void)g;
    (void)kernel;
}

#endif
