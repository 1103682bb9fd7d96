/* gemm_onednn.c - f32 GEMM by oneDNN's sgemm (2.6 to 3.x). */
#include "kernels/cpu/gemm/gemm_kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/error.h"
#include "kernels/cpu/openmp.h"

static clv_status failed(clv_error *err, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory)
        return clv_fail(err, CLV_ENOMEM, "out of memory in oneDNN: %s", what);
    return clv_fail(err, CLV_EUNSUPPORTED, "oneDNN: %s failed (status %d)", what, (int)status);
}

int clv_gemm_onednn_version(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    return snprintf(text, size, "%d.%d.%d", v->major, v->minor, v->patch);
}

/* ---- one-time code generation */

enum { CODE_BYTES = 32 << 20 /* address space; sgemm's kernels take 18 MiB */ };

/* oneDNN 2.6 does not check for failed allocations when it generates code, so check beforehand. */
static clv_status check_memory(size_t bytes, clv_error *err)
{
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (probe == MAP_FAILED)
        return clv_fail_memory(err, "the code of matrix products", bytes);
    munmap(probe, bytes);
    return CLV_OK;
}

/* Multiplies shapes that use each family of kernels: blocks, one row or column (gemv), few columns. */
static clv_status generate_kernels(clv_error *err)
{
    static const dnnl_dim_t shapes[][3] = {{32, 32, 32}, {1, 32, 32}, {32, 1, 32}, {4, 64, 64}, {64, 4, 64}};
    static float zeros[64 * 64], out[64 * 64];
    dnnl_status_t status = dnnl_success;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int variant = 0; variant < 8 && status == dnnl_success; variant++) {
            const dnnl_dim_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            status = dnnl_sgemm(variant & 1 ? 'T' : 'N', variant & 2 ? 'T' : 'N', m, n, k, 1.0f, zeros,
                                variant & 1 ? m : k, zeros, variant & 2 ? k : n, variant & 4 ? 1.0f : 0.0f, out, n);
        }
    return status == dnnl_success ? CLV_OK : failed(err, status, "generating sgemm");
}

clv_status clv_onednn_jit_compile(clv_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool generated;
    int threads = clv_threads_max();
    clv_status status = CLV_OK;

    pthread_mutex_lock(&lock);
    if (!generated) {
        status = check_memory(CODE_BYTES, err);
        clv_threads_set(1);
        if (status == CLV_OK)
            status = generate_kernels(err);
        clv_threads_set(threads);
        generated = status == CLV_OK;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

clv_status clv_onednn_sgemm(const clv_gemm_args *g, clv_error *err)
{
    dnnl_status_t status = dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, 1.0f, g->a,
                                      g->lda, g->b, g->ldb, g->accumulate ? 1.0f : 0.0f, g->c, g->ldc);
    return status == dnnl_success ? CLV_OK : failed(err, status, "sgemm");
}
