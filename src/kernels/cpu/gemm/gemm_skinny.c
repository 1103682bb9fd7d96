/* gemm_skinny.c - skinny GEMM driver (up to 16 rows, decoding): splits columns of B over threads and idle ranks. If B
 * is transposed or prepacked, columns are contiguous in memory and are split into small tasks, which idle ranks take.
 */
#include "kernels/cpu/gemm/gemm_kernels.h"

#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/gemm_skinny_simd.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/parallel_tasks.h"

enum {
    LINE_COLUMNS = 32,   /* unit of columns: whole cache lines of bf16 or f32, */
    PACKED_COLUMNS = 64, /* or for a prepacked, or transposed, B the columns that a kernel computes together, */
    DOT_COLUMNS = 48,
    UNITS_PER_THREAD = 4,    /* if each thread gets at least this many units */
    ALIGN = 16,              /* floats of a cache line */
    SERIAL_ELEMS = 128 << 10 /* elements of B up to which waking other threads costs more than it saves */
};

/* The part of the workspace that holds f32 sums of each task, for bf16 and f16; op(A) in f32 is before it. */
typedef struct sums_space {
    float *at;
    int64_t per_task;
} sums_space;

/* Whether consecutive elements of a row of op(A) are not adjacent in memory. */
static bool is_strided(const clv_gemm_args *g)
{
    return g->trans_a && !(g->m == 1 && g->lda == 1);
}

static clv_gemm_a_rows rows_of(const clv_gemm_args *g)
{
    bool strided = is_strided(g);
    int64_t rows = strided ? g->k : g->m, cols = strided ? g->m : g->k, ld = g->lda;
    const float *at = g->a;
    if (g->dtype != CLV_F32) {
        CLV_ISA_SELECT(clv_gemm_widen)(g->dtype, g->workspace, cols, g->a, ld, rows, cols);
        at = g->workspace;
        ld = cols;
    }
    return (clv_gemm_a_rows){.at = at, .row = strided ? 1 : ld, .step = strided ? ld : 1};
}

/* Divides the workspace. False: three quarters of it cannot hold the most rows there may be in f32; this depends on k
 * alone, so that a row takes the same path among any number of rows. Limits *threads to what the rest can serve. */
static bool divide_workspace(sums_space *out, const clv_gemm_args *g, size_t bytes, int64_t *threads)
{
    int64_t wide = (g->m * g->k + ALIGN - 1) / ALIGN * ALIGN, all = (int64_t)(bytes / sizeof(float));
    if (g->dtype == CLV_F32)
        return true;
    if (g->k > all / 4 * 3 / CLV_GEMM_SKINNY_ROWS)
        return false;
    int64_t most = (all - wide) / CLV_GEMM_ACCUMULATOR_FLOATS;
    *threads = *threads < most ? *threads : most;
    *out = (sums_space){(float *)g->workspace + wide, (all - wide) / *threads / ALIGN * ALIGN};
    return true;
}

/* A product with its columns split into tasks, each a multiple of `unit` columns. */
typedef struct product {
    const clv_gemm_args *g;
    clv_gemm_a_rows x;
    sums_space sums;
    clv_gemm_skinny_tuning tuning;
    int64_t unit, tasks;
} product;

static void run_task(void *arg, int task, int who)
{
    const product *p = arg;
    const clv_gemm_args *g = p->g;
    const int64_t from = clv_task_begin(g->n, p->unit, p->tasks, task);
    const int64_t to = clv_task_begin(g->n, p->unit, p->tasks, task + 1);
    const clv_gemm_accumulators own = {p->sums.at ? p->sums.at + task * p->sums.per_task : NULL, p->sums.per_task};
    if (from == to)
        return;
    if (g->packed_b)
        CLV_ISA_SELECT(clv_gemm_packed)(g, &p->x, from, to);
    else
        CLV_ISA_SELECT(clv_gemm_skinny_columns)(g, &p->x, own, p->tuning, from, to);
}

/* One task for each thread; smaller tasks if B's columns are contiguous. */
static void split(product *p, int64_t threads)
{
    const clv_gemm_args *g = p->g;
    p->unit = LINE_COLUMNS;
    p->tasks = threads;
    if (!g->packed_b && !g->trans_b)
        return;
    const int64_t unit = g->packed_b ? PACKED_COLUMNS : DOT_COLUMNS;
    if (threads == 1 || g->n >= UNITS_PER_THREAD * threads * unit)
        p->unit = unit;
    p->tasks = clv_streaming_task_count((int)threads, g->n, p->unit, g->n * g->k * (int64_t)clv_dtype_size(g->dtype));
    p->sums = (sums_space){0};
}

bool clv_gemm_try_skinny(const clv_gemm_args *g, size_t bytes)
{
    const clv_tuning *tuning = clv_cpu_tuning();
    int64_t threads = g->n * g->k <= SERIAL_ELEMS ? 1 : clv_threads_max();
    product p = {.g = g,
                 .tuning = {.panels = g->dtype == CLV_F32 ? tuning->skinny_panel_columns_f32
                                                          : tuning->skinny_panel_columns_16bit,
                            .streams = tuning->dense_streams}};
    if (g->m > CLV_GEMM_SKINNY_ROWS || (is_strided(g) && g->trans_b) || !divide_workspace(&p.sums, g, bytes, &threads))
        return false;
    p.x = rows_of(g);
    split(&p, threads);
    clv_run_tasks(g->work, (int)threads, run_task, &p, (int)p.tasks);
    return true;
}
