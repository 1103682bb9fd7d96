/* gemm_rows.c - see gemm_rows.h: op(A) as floats, and columns divided over threads in whole lines of B. */
#include "kernels/cpu/gemm_rows.h"

#include "kernels/cpu/isa/gemm.h"
#include "kernels/cpu/isa/gemm_packed.h"
#include "kernels/cpu/isa/gemm_rows.h"
#include "kernels/cpu/threads.h"
#include "kernels/cpu/tuning.h"

enum {
    COLUMNS = 32,      /* a line of bf16, two of f32 */
    ALIGN = 16,        /* floats of a line */
    ALONE = 128 * 1024 /* elements of B up to which waking other threads costs more than they save */
};

/* The workspace of bf16 and f16: first what op(A) is widened to, then each thread's sums. */
typedef struct room {
    float *at;
    int64_t each;
} room;

/* Elements of a row of op(A) are apart. */
static bool is_strided(const clv_gemm_args *g)
{
    return g->trans_a && !(g->m == 1 && g->lda == 1);
}

static clv_gemm_x rows_of(const clv_gemm_args *g)
{
    bool strided = is_strided(g);
    int64_t rows = strided ? g->k : g->m, cols = strided ? g->m : g->k, ld = g->lda;
    const float *at = g->a;
    if (g->dtype != CLV_F32) {
        CLV_ISA_SELECT(clv_gemm_widen)(g->dtype, g->workspace, cols, g->a, ld, rows, cols);
        at = g->workspace;
        ld = cols;
    }
    return (clv_gemm_x){.at = at, .row = strided ? 1 : ld, .step = strided ? ld : 1};
}

/* Three quarters of the workspace have to hold as many rows as there may be: so it is k alone that decides, and a row
 * goes the same way beside others. *threads: as many at most as the rest has room for. */
static bool find_room(room *out, const clv_gemm_args *g, size_t bytes, int64_t *threads)
{
    int64_t wide = (g->m * g->k + ALIGN - 1) / ALIGN * ALIGN, all = (int64_t)(bytes / sizeof(float));
    if (g->dtype == CLV_F32)
        return true;
    if (g->k > all / 4 * 3 / CLV_GEMM_ROWS)
        return false;
    int64_t most = (all - wide) / CLV_GEMM_OWN;
    *threads = *threads < most ? *threads : most;
    *out = (room){(float *)g->workspace + wide, (all - wide) / *threads / ALIGN * ALIGN};
    return true;
}

static void multiply(const clv_gemm_args *g, const clv_gemm_x *x, clv_gemm_own own, clv_gemm_way way, int64_t j,
                     int64_t end)
{
    if (g->packed_b)
        CLV_ISA_SELECT(clv_gemm_packed)(g, x, j, end);
    else
        CLV_ISA_SELECT(clv_gemm_columns)(g, x, own, way, j, end);
}

bool clv_gemm_rows(const clv_gemm_args *g, size_t bytes)
{
    int64_t units = (g->n + COLUMNS - 1) / COLUMNS, threads = g->n * g->k <= ALONE ? 1 : clv_threads_max();
    const clv_tuning *tuning = clv_tuning_here();
    const clv_gemm_way way = {.panels = g->dtype == CLV_F32 ? tuning->panels_of_f32 : tuning->panels_of_half,
                              .streams = tuning->plain_streams};
    room sums = {0};
    if (g->m > CLV_GEMM_ROWS || (is_strided(g) && g->trans_b) || !find_room(&sums, g, bytes, &threads))
        return false;
    const clv_gemm_x x = rows_of(g);
    if (threads == 1) { /* no parallel region, which costs more than a small product (block.h) */
        multiply(g, &x, (clv_gemm_own){sums.at, sums.each}, way, 0, g->n);
        return true;
    }
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < threads; t++) {
        int64_t from = units * t / threads * COLUMNS, to = units * (t + 1) / threads * COLUMNS;
        if (from < to)
            multiply(g, &x, (clv_gemm_own){sums.at + t * sums.each, sums.each}, way, from, to < g->n ? to : g->n);
    }
    return true;
}
