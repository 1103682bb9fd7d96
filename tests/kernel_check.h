/* kernel_check.h - what the kernel tests share: random operands, every instruction set, and a comparison that names the
 * worst element. The oracle of a fast kernel is the same call in f64 on the same (rounded) operands. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/dtype.h"
#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/isa_dispatch.h"
#include "unit_test.h"

static uint64_t check_seed = 20240607;

/* splitmix64 */
static inline uint64_t check_next(void)
{
    uint64_t z = check_seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline double check_uniform(double lo, double hi)
{
    return lo + (hi - lo) * (double)(check_next() >> 11) * 0x1p-53;
}

/* n elements in a dtype, and the same values in f64. */
typedef struct operand {
    clv_dtype dtype;
    int64_t n;
    void *data;
    double *exact;
} operand;

/* Sizes are exact, so that the address sanitizer sees every overrun; n == 0 gives one byte. */
static inline void *check_alloc(int64_t n, size_t size)
{
    void *data = malloc(n > 0 ? (size_t)n * size : 1);
    assert_non_null(data);
    memset(data, 0x55, n > 0 ? (size_t)n * size : 1);
    return data;
}

static inline operand operand_blank(clv_dtype dtype, int64_t n)
{
    return (operand){dtype, n, check_alloc(n, clv_dtype_size(dtype)), check_alloc(n, sizeof(double))};
}

static inline operand operand_random(clv_dtype dtype, int64_t n, double lo, double hi)
{
    operand o = operand_blank(dtype, n);
    for (int64_t i = 0; i < n; i++) {
        clv_dtype_store(dtype, o.data, i, check_uniform(lo, hi));
        o.exact[i] = clv_dtype_load(dtype, o.data, i);
    }
    return o;
}

static inline void operand_copy(operand to, operand from)
{
    memcpy(to.data, from.data, (size_t)from.n * clv_dtype_size(from.dtype));
    memcpy(to.exact, from.exact, (size_t)from.n * sizeof(double));
}

static inline void operand_free(operand o)
{
    free(o.data);
    free(o.exact);
}

/* Half an ulp of the dtype, relative. */
static inline double check_rounding(clv_dtype dtype)
{
    return dtype == CLV_BF16 ? 0x1p-8 : dtype == CLV_F16 ? 0x1p-11 : dtype == CLV_F32 ? 0x1p-24 : 0x1p-53;
}

/* |got - want| <= rounding of the dtype + `units` of 2^-24 (f64: 2^-46) of max(|want|, scale); NaN must match
 * NaN, and infinity infinity. */
static inline void check_close(const char *what, clv_dtype dtype, const void *got, const double *want, int64_t n,
                               double units, double scale)
{
    double worst = 0, unit = dtype == CLV_F64 ? 0x1p-46 : 0x1p-24;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        double g = clv_dtype_load(dtype, got, i), w = want[i];
        if ((isnan(g) && isnan(w)) || g == w)
            continue;
        double least = dtype == CLV_F16 ? 0x1p-25 : 0;
        double tolerance = fabs(w) * check_rounding(dtype) + units * unit * fmax(fabs(w), scale) + least;
        double error = fabs(g - w) / tolerance;
        if (!(error <= worst)) {
            worst = isnan(error) ? INFINITY : error;
            at = i;
        }
    }
    if (!(worst <= 1))
        fail_msg("%s, %s, %s: element %lld of %lld is %.9g, not %.9g (%.3g of the tolerance)", what,
                 clv_isa_name(clv_cpu_isa()), clv_dtype_name(dtype), (long long)at, (long long)n,
                 clv_dtype_load(dtype, got, at), want[at], worst);
}

static const clv_dtype check_dtypes[] = {CLV_F32, CLV_BF16, CLV_F16, CLV_F64};
enum { CHECK_DTYPES = 4 };

/* Runs body(dtype) for every instruction set of this CPU and every float dtype; AMX differs for bf16 alone. */
static inline void check_everywhere(void (*body)(clv_dtype dtype))
{
    print_message("seed %llu\n", (unsigned long long)check_seed);
    for (int kind = 0; kind < CLV_CPU_KINDS; kind++) {
        if (clv_tuning_set_for_test((clv_cpu_kind)kind) != 0) {
            print_message("skipped: this CPU is not of kind %d\n", kind);
            continue;
        }
        for (int d = 0; d < CHECK_DTYPES; d++)
            if (kind != CLV_CPU_AMX || check_dtypes[d] == CLV_BF16)
                body(check_dtypes[d]);
    }
    clv_tuning_reset_for_test();
}
