/* f32_blocks.h - blocks of an f32, bf16 or f16 buffer as f32 in L1; when a loop is worth OpenMP threads.
 *
 * Internal to this folder. An f32 buffer is used where it lies; bf16 and f16 go through a scratch of CLV_BLOCK floats.
 */
#ifndef CLEAVE_KERNELS_CPU_F32_BLOCKS_H
#define CLEAVE_KERNELS_CPU_F32_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "cleave/dtype.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/simd_loops.h"

/* Elements below which a parallel region costs more than it saves. */
enum { CLV_PARALLEL_MIN = 32768 };

#ifdef _OPENMP
#define CLV_PRAGMA(text) _Pragma(#text)
/* The loop that follows, over threads when `elems` is worth it. Iterations are independent. */
#define CLV_PARALLEL_FOR(elems) CLV_PRAGMA(omp parallel for schedule(static) if ((elems) >= CLV_PARALLEL_MIN))
#else
#define CLV_PARALLEL_FOR(elems)
#define CLV_PRAGMA(text)
#endif

static inline bool clv_is_worth_parallel(int64_t elems)
{
    return elems >= CLV_PARALLEL_MIN && clv_threads_max() > 1;
}

/* The same where `elems` may be very few, as when one token is decoded: "each" for i from 0 to n, without a parallel
 * region where it is not worth one. GCC's costs a system call and two allocations even with one thread. */
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

/* Columns that a thread sums at a time: all threads get some, and a row's part is worth fetching. Each column is summed
 * on its own, so results do not depend on it. */
static inline int64_t clv_column_width(int64_t cols)
{
#ifdef _OPENMP
    int64_t share = (cols + omp_get_max_threads() - 1) / omp_get_max_threads();
#else
    int64_t share = cols;
#endif
    return share < 64 ? 64 : share > CLV_BLOCK ? CLV_BLOCK : share;
}

/* Whether the f32 kernels serve this dtype; the others run the plain f64 kernel. */
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

/* Pieces of at most `size` that n is cut into. */
static inline int64_t clv_ceil_div(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* The size of equal parts of n, each a multiple of `unit` and at most `most`, which is one, too. */
static inline int64_t clv_equal_chunk_size(int64_t n, int64_t most, int64_t unit)
{
    return clv_ceil_div(clv_ceil_div(n, clv_ceil_div(n, most)), unit) * unit;
}

/* A block of f32 on the stack, on lines of the cache: a vector that lies across two takes as long as two. */
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

/* Where to compute elements [i, ...) of out; clv_block_store then puts them there. */
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

/* An id or label of dtype i32 or i64. */
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

static inline const clv_update_loops *clv_simd_updates(void)
{
    return CLV_ISA_SELECT(clv_update_loops_of)();
}

#endif
