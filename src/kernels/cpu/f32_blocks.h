/* f32_blocks.h - loads and stores blocks of f32, bf16 or f16 buffers as f32; parallel loops.
 *
 * Internal to this folder. f32 buffers are used in place; bf16 and f16 go through a scratch of CLV_BLOCK floats in L1.
 */
#pragma once

#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "cleave/dtype.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/simd_loops.h"

/* A parallel region costs more than it saves below this many elements. */
enum { CLV_PARALLEL_MIN = 32768 };

#ifdef _OPENMP
#define CLV_PRAGMA(text) _Pragma(#text)
/* Runs the following loop, whose iterations are independent, over threads if `elems` is large enough. */
#define CLV_PARALLEL_FOR(elems) CLV_PRAGMA(omp parallel for schedule(static) if ((elems) >= CLV_PARALLEL_MIN))
#else
#define CLV_PARALLEL_FOR(elems)
#define CLV_PRAGMA(text)
#endif

static inline bool clv_is_worth_parallel(int64_t elems)
{
    return elems >= CLV_PARALLEL_MIN && clv_threads_max() > 1;
}

/* Runs `each` for i from 0 to n - 1, over threads if `elems` is large enough. Unlike CLV_PARALLEL_FOR it starts no
 * parallel region otherwise, which matters for small loops (decoding): GCC's costs a system call and two allocations
 * even with one thread. */
#define CLV_PARALLEL_FOR_EACH(i, n, elems, each)                                                                       \
    do {                                                                                                               \
        if (clv_is_worth_parallel(elems)) {                                                                            \
            CLV_PRAGMA(omp parallel for schedule(static))                                                              \
            for (int64_t i = 0; i < (n); i++)                                                                          \
                each;                                                                                                  \
        } else {                                                                                                       \
            for (int64_t i = 0; i < (n); i++)                                                                          \
                each;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Columns that a thread sums at a time, so that all threads get some. Results do not depend on it: each column is
 * summed by itself. */
static inline int64_t clv_column_width(int64_t cols)
{
#ifdef _OPENMP
    int64_t share = (cols + omp_get_max_threads() - 1) / omp_get_max_threads();
#else
    int64_t share = cols;
#endif
    return share < 64 ? 64 : share > CLV_BLOCK ? CLV_BLOCK : share;
}

/* Whether the dtype is computed in f32; others are computed by the plain f64 kernel. */
static inline bool clv_computes_in_f32(clv_dtype dtype)
{
    return dtype == CLV_F32 || dtype == CLV_BF16 || dtype == CLV_F16;
}

static inline int64_t clv_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t clv_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ceil(n / size) */
static inline int64_t clv_ceil_div(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* The size of equal parts of n: a multiple of `unit`, and at most `most`, a multiple of `unit`. */
static inline int64_t clv_equal_chunk_size(int64_t n, int64_t most, int64_t unit)
{
    return clv_ceil_div(clv_ceil_div(n, clv_ceil_div(n, most)), unit) * unit;
}

/* A block of f32 on the stack, aligned to cache lines. */
typedef float clv_scratch[CLV_BLOCK] __attribute__((aligned(64)));

/* Elements [i, i + n) of x as f32, n <= CLV_BLOCK. */
static inline const float *clv_block_load(const clv_elementwise_loops *math, clv_dtype dtype, const void *x, int64_t i,
                                          int64_t n, float *scratch)
{
    if (dtype == CLV_F32)
        return (const float *)x + i;
    if (dtype == CLV_BF16)
        math->widen_bf16(scratch, (const uint16_t *)x + i, n);
    else
        math->widen_f16(scratch, (const uint16_t *)x + i, n);
    return scratch;
}

/* Where to compute elements [i, ...) of out: in place for f32, else in scratch. clv_block_store then stores them. */
static inline float *clv_block_out(clv_dtype dtype, void *out, int64_t i, float *scratch)
{
    return dtype == CLV_F32 ? (float *)out + i : scratch;
}

static inline void clv_block_store(const clv_elementwise_loops *math, clv_dtype dtype, void *out, int64_t i, int64_t n,
                                   const float *from)
{
    if (dtype == CLV_BF16)
        math->narrow_bf16((uint16_t *)out + i, from, n);
    else if (dtype == CLV_F16)
        math->narrow_f16((uint16_t *)out + i, from, n);
}

/* Element i of an i32 or i64 buffer of ids or labels. */
static inline int64_t clv_load_index(clv_dtype dtype, const void *x, int64_t i)
{
    return dtype == CLV_I32 ? ((const int32_t *)x)[i] : ((const int64_t *)x)[i];
}

static inline const clv_elementwise_loops *clv_simd_elementwise(void)
{
    return CLV_ISA_SELECT(clv_elementwise_loops_of)();
}

static inline const clv_rowwise_loops *clv_simd_rowwise(void)
{
    return CLV_ISA_SELECT(clv_rowwise_loops_of)();
}

static inline const clv_optimizer_dropout_rope_loops *clv_simd_optimizer_dropout_rope(void)
{
    return CLV_ISA_SELECT(clv_optimizer_dropout_rope_loops_of)();
}
