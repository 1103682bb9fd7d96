/* gemm.h - matrix products (GEMM), strided batches, prepacked B; f32, bf16, f16, f64.
 *
 *   for each i < batch:  C_i = [C_i +] op(A_i) op(B_i),  op(A) [m, k], op(B) [k, n], C [m, n], all row-major
 *
 * dtypes:   f32 x f32 -> f32; bf16 x bf16 -> bf16 or f32; f16 x f16 -> f16 or f32; f64 x f64 -> f64. bf16 and f16 are
 *           accumulated in f32 and rounded once. (With `accumulate`, a 16-bit C is read, added to in f32 and rounded.)
 * Kernels:  f32, bf16 and f16 with up to 16 rows (decoding, short prompts): our skinny kernel (isa/gemm_skinny_simd.h),
 *           which reads B once for all rows, at the speed of memory. More rows: the fastest on this CPU (cpu_tuning.h):
 *           for f32 ours or oneDNN's sgemm; for bf16 ours by AMX or AVX512-BF16, or in f32; f16 in f32. f64: a plain
 *           blocked product.
 * Packed B: [n / 16, k, 16], n a multiple of 16: panels of 16 columns, one after another. It is a single stream of
 *           memory, in the order in which kernels would otherwise pack it for each product: decoding several sequences
 *           reads it up to twice as fast. Only our kernels take it; up to 16 rows have the bits of a plain B.
 * Numerics: the same arguments on the same CPU with the same number of OpenMP threads give the same bits.
 *           Our kernels and f64: bits do not depend on the number of threads. oneDNN may split k over threads.
 *           Up to 16 rows: a row has the same bits among any number of rows, so a sequence decodes to the same bits
 *           alone or in a batch. Exceptions: bf16 and f16 with k above 36,864; both operands transposed; which NaN a
 *           NaN is.
 *           More than 16 rows: another kernel, whose last bits may differ. Ours gives a row the same bits among any 17
 *           or more rows; so does oneDNN's f32 with AVX-512 and k up to 768, but it splits longer sums by m, n and k.
 * Zeros:    m, n or batch = 0 does nothing; k = 0 writes zeros, or keeps C when accumulating. a and b may then be NULL.
 * Threads:  the caller's OpenMP threads (omp_set_num_threads of the rank's thread).
 * Memory:   oneDNN allocates packing buffers; nothing else is allocated.
 * Traffic:  per product, if it fits in cache: (m*k + k*n) * size of dtype + m*n * size of c_dtype (twice when
 *           accumulating).
 */
#pragma once

#include <stdbool.h>

#include "base/threads/work_stealing.h"
#include "cleave/dtype.h"
#include "tensor/quant_block.h"

enum { CLV_GEMM_MAX_STACK_BYTES = 192 << 10 /* most bytes of a thread's stack that our kernels use */ };

typedef struct clv_gemm_args {
    const void *a;    /* [batch, m, k], or [batch, k, m] when trans_a                                      */
    const void *b;    /* [batch, k, n], or [batch, n, k] when trans_b                                      */
    void *c;          /* [batch, m, n]; disjoint from a and b                                              */
    int64_t m, n, k;  /* >= 0                                                                              */
    int64_t lda;      /* elements between rows of a as stored: >= k, or >= m when trans_a                  */
    int64_t ldb;      /* the same of b: >= n, or >= k when trans_b                                         */
    int64_t ldc;      /* the same of c: >= n                                                               */
    bool trans_a;     /* op(A) is the transpose of what is stored                                          */
    bool trans_b;     /* the same of B                                                                     */
    bool packed_b;    /* b is prepacked: [n / CLV_PANEL_COLUMNS, k, CLV_PANEL_COLUMNS]; ldb is not used */
    int64_t batch;    /* >= 0; 1 for a single product                                                      */
    int64_t stride_a; /* elements between products; 0 reads one A (or B) for all; ignored when batch is 1  */
    int64_t stride_b;
    int64_t stride_c; /* products in C do not overlap                                                      */
    clv_dtype dtype;  /* of a and b                                                                        */
    clv_dtype c_dtype;
    bool accumulate;           /* adds the product to C                                                  */
    void *workspace;           /* clv_gemm_workspace() bytes, aligned to 64, not shared                   */
    clv_task_pool_member work; /* lets idle ranks take part in our kernels; bits do not depend on it */
} clv_gemm_args;

/* Bytes of workspace, the same on every CPU: 0 for f64, a constant for bf16 and f16, at most 2 MiB for f32. A smaller
 * shape needs no more. */
size_t clv_gemm_workspace(const clv_gemm_args *args);

/* JIT-compiles oneDNN's f32 kernels once in a process; does nothing on a CPU that does not use them. Without this call
 * oneDNN does so in the first product, and ends the process if memory is out.
 * @return CLV_ENOMEM; the next call tries again */
clv_status clv_gemm_jit_compile(clv_error *err);

/* @return CLV_OK; CLV_EUNSUPPORTED for integer dtypes or another c_dtype; CLV_EINVAL for extents or leading dimensions
 *         out of range, or a missing workspace; CLV_ENOMEM when oneDNN found no memory. */
clv_status clv_gemm(const clv_gemm_args *args, clv_error *err);

/* Writes oneDNN's version ("2.6.3"), as snprintf does. */
int clv_gemm_onednn_version(char *text, size_t size);

/* For tests: selects the f32 kernel for more than 16 rows. BEST is the default. */
typedef enum clv_gemm_f32_path { CLV_GEMM_F32_BEST, CLV_GEMM_F32_OWN, CLV_GEMM_F32_ONEDNN } clv_gemm_f32_path;
void clv_gemm_set_f32_path_for_test(clv_gemm_f32_path path);

/* For tests: selects the bf16 kernel (f16 always uses F32), which the CPU must have. BEST is the default. */
typedef enum clv_gemm_half_path {
    CLV_GEMM_HALF_BEST,
    CLV_GEMM_HALF_F32,
    CLV_GEMM_HALF_VDP,
    CLV_GEMM_HALF_AMX
} clv_gemm_half_path;
bool clv_gemm_has_half_path(clv_gemm_half_path path);
void clv_gemm_set_half_path_for_test(clv_gemm_half_path path);
