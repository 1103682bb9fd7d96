/* gemm.h - matrix products (GEMM), strided batches, prepacked B; f32, bf16, f16, f64.
 *
 *   for each i < batch:  C_i = [C_i +] op(A_i) op(B_i),  op(A) [m, k], op(B) [k, n], C [m, n], all row-major
 *
 * dtypes:   f32 x f32 -> f32; bf16 x bf16 -> bf16 or f32; f16 x f16 -> f16 or f32; f64 x f64 -> f64. bf16 and f16 are
 *           accumulated in f32 and rounded once (an accumulated bf16 or f16 C is read, added to in f32, rounded again).
 * Kernels:  up to 16 rows of f32, bf16 or f16 (decoding, short prompts) are our own (isa/gemm_skinny_simd.h): B is read
 * once
 *           for all rows, at the speed of memory while they are few. More rows: by the fastest on this CPU
 *           (cpu_tuning.h), f32 by our own (gemm_f32.h) or oneDNN's sgemm; bf16 by our own (gemm_bf16.h) or, as f16
 *           always, our own in f32. f64 is a plain blocked product.
 * Packed:   a B [n / 16, k, 16], n a multiple of 16: panels of columns, one behind the other. It is a single stream
 *           of memory, and what the kernels pack again for each product else; decoding several sequences reads it
 *           twice as fast. By our own kernels, up to 16 rows with the bits of a B that is not packed.
 * Numerics: the same arguments on the same CPU with the same number of OpenMP threads give the same bits. Those of our
 *           own kernels and of f64 do not depend on the number of threads either; oneDNN may split k over threads, so
 *           its products can. A row has the same bits among any number of rows up to 16 (of bf16 and f16 while k is at
 *           most 36,864; not where both operands are transposed, nor which NaN a NaN is), so a sequence that is decoded
 *           beside others gets those it would have alone. Among more rows another kernel is chosen, and the last bits
 *           may differ; by our own rows are the same among any 17 or more, as by oneDNN's of f32 with AVX-512 and k up
 *           to 768; it divides longer sums by m, n and k.
 * Zeros:    m, n or batch = 0 is a no-op; k = 0 writes zeros, or keeps C when accumulating. a and b may then be NULL.
 * Threads:  OpenMP threads of the caller (omp_set_num_threads of the rank's thread).
 * Memory:   oneDNN packs into buffers of its own. Apart from that nothing is allocated.
 * Traffic:  (m*k + k*n) * size of dtype + m*n * size of c_dtype (twice when accumulating), a batch; if it fits in
 * cache.
 */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/threads/work_stealing.h"
#include "cleave/dtype.h"
#include "cleave/status.h"
#include "tensor/quant_block.h"

enum { CLV_GEMM_MAX_STACK_BYTES = 192 << 10 /* most bytes of a thread's stack that our own products take */ };

typedef struct clv_gemm_args {
    const void *a;   /* [batch, m, k], or [batch, k, m] when trans_a                                      */
    const void *b;   /* [batch, k, n], or [batch, n, k] when trans_b                                      */
    void *c;         /* [batch, m, n]; disjoint from a and b                                              */
    int64_t m, n, k; /* >= 0                                                                              */
    int64_t lda;     /* elements between rows of a as stored: >= k, or >= m when trans_a                  */
    int64_t ldb;     /* the same of b: >= n, or >= k when trans_b                                         */
    int64_t ldc;     /* the same of c: >= n                                                               */
    bool trans_a;    /* op(A) is the transpose of what is stored                                          */
    bool trans_b;    /* the same of B                                                                     */
    bool
        packed_b; /* b is [n / CLV_PANEL_COLUMNS, k, CLV_PANEL_COLUMNS], without trans_b; ldb does not matter; no f64 */
    int64_t batch;    /* >= 0; 1 for a single product                                                      */
    int64_t stride_a; /* elements between products; 0 reads one A (or B) for all; ignored when batch is 1  */
    int64_t stride_b;
    int64_t stride_c; /* products in C do not overlap                                                      */
    clv_dtype dtype;  /* of a and b                                                                        */
    clv_dtype c_dtype;
    bool accumulate;           /* adds to what c holds; else what it held is not read                               */
    void *workspace;           /* clv_gemm_workspace() bytes, aligned to 64; one a caller                           */
    clv_task_pool_member work; /* where ranks that wait take part in products of our own; no bit depends on it */
} clv_gemm_args;

/* Bytes of workspace, the same on every CPU: 0 for f64, a fixed amount for bf16 and f16 whatever the shape, for f32 up
 * to 2 MiB, and no more for a smaller shape. */
size_t clv_gemm_workspace(const clv_gemm_args *args);

/* Makes the code of the f32 kernels where they are oneDNN's, once a process: it is written on first use, and the
 * process ends where memory is out then.
 * @return CLV_ENOMEM; the next call tries again */
clv_status clv_gemm_prepare(clv_error *err);

/* @return CLV_OK; CLV_EUNSUPPORTED for integer dtypes or another c_dtype; CLV_EINVAL for extents or leading dimensions
 *         out of range, or a missing workspace; CLV_ENOMEM when oneDNN found no memory. */
clv_status clv_gemm(const clv_gemm_args *args, clv_error *err);

/* The same in plain loops, accumulated in f64 for every float dtype: the oracle of the tests. Needs no workspace. */
void clv_gemm_reference(const clv_gemm_args *args);

/* "2.6.3": oneDNN's version at run time, into text as snprintf does. */
int clv_gemm_onednn_version(char *text, size_t size);

/* For tests: the kernel of f32 products of more than 16 rows from now on. BEST is the default. */
typedef enum clv_gemm_f32_path { CLV_GEMM_F32_BEST, CLV_GEMM_F32_OWN, CLV_GEMM_F32_ONEDNN } clv_gemm_f32_path;
void clv_gemm_set_f32_path_for_test(clv_gemm_f32_path path);

/* For tests: the way that bf16 (and f16, which has WIDE alone) takes from now on, one that this CPU has. BEST is the
 * default. */
typedef enum clv_gemm_half_path {
    CLV_GEMM_HALF_BEST,
    CLV_GEMM_HALF_F32,
    CLV_GEMM_HALF_VDP,
    CLV_GEMM_HALF_AMX
} clv_gemm_half_path;
bool clv_gemm_has_half_path(clv_gemm_half_path path);
void clv_gemm_set_half_path_for_test(clv_gemm_half_path path);

#endif
