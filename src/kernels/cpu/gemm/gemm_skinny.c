/* gemm_skinny.c - skinny GEMM driver (up to 16 rows, decoding): splits columns of B over threads and idle ranks.
 * Where a column has its bytes of B for itself, they are divided in pieces of memory, which other threads or ranks
 * may take.
 */
#include "kernels/cpu/gemm/gemm_skinny.h"

#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/convert_rows.h"
#include "kernels/cpu/isa/gemm_prepacked.h"
#include "kernels/cpu/isa/gemm_skinny_simd.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/parallel_tasks.h"

enum {
    OF_LINES = 32,  /* columns of a piece are a multiple of this: a line of bf16, two of f32; ... */
    OF_PANELS = 64, /* ... where B is packed, or transposed, of what any kernel takes side by side ... */
    OF_DOTS = 48,
    UNITS_EACH = 4,    /* ... if that leaves each thread so many at least */
    ALIGN = 16,        /* floats of a line */
    ALONE = 128 * 1024 /* elements of B up to which waking other threads costs more than they save */
};

/* The workspace of bf16 and f16: first what op(A) is widened to, then each piece's sums. */
typedef struct room {
    float *at;
    int64_t each;
} room;

/* Elements of a row of op(A) are apart. */
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

/* Three quarters of the workspace have to hold as many rows as there may be: so it is k alone that decides, and a row
 * goes the same way beside others. *threads: as many at most as the rest has room for. */
static bool find_room(room *out, const clv_gemm_args *g, size_t bytes, int64_t *threads)
{
    int64_t wide = (g->m * g->k + ALIGN - 1) / ALIGN * ALIGN, all = (int64_t)(bytes / sizeof(float));
    if (g->dtype == CLV_F32)
        return true;
    if (g->k > all / 4 * 3 / CLV_GEMM_SKINNY_ROWS)
        return false;
    int64_t most = (all - wide) / CLV_GEMM_ACCUMULATOR_FLOATS;
    *threads = *threads < most ? *threads : most;
    *out = (room){(float *)g->workspace + wide, (all - wide) / *threads / ALIGN * ALIGN};
    return true;
}

/* A product in pieces of its columns, each a multiple of `unit`. */
typedef struct product {
    const clv_gemm_args *g;
    clv_gemm_a_rows x;
    room sums;
    clv_gemm_skinny_tuning way;
    int64_t unit, pieces;
} product;

static void run_piece(void *arg, int piece, int who)
{
    (void)who;
    const product *p = arg;
    const clv_gemm_args *g = p->g;
    const int64_t from = clv_task_begin(g->n, p->unit, p->pieces, piece);
    const int64_t to = clv_task_begin(g->n, p->unit, p->pieces, piece + 1);
    const clv_gemm_accumulators own = {p->sums.at ? p->sums.at + piece * p->sums.each : NULL, p->sums.each};
    if (from == to)
        return;
    if (g->packed_b)
        CLV_ISA_SELECT(clv_gemm_packed)(g, &p->x, from, to);
    else
        CLV_ISA_SELECT(clv_gemm_skinny_columns)(g, &p->x, own, p->way, from, to);
}

/* A piece a thread; or in smaller ones, if it can be: its columns are sums of their own then. */
static void cut(product *p, int64_t threads)
{
    const clv_gemm_args *g = p->g;
    p->unit = OF_LINES;
    p->pieces = threads;
    if (!g->packed_b && !g->trans_b)
        return;
    const int64_t wide = g->packed_b ? OF_PANELS : OF_DOTS;
    if (threads == 1 || g->n >= UNITS_EACH * threads * wide)
        p->unit = wide;
    p->pieces = clv_streaming_task_count((int)threads, g->n, p->unit, g->n * g->k * (int64_t)clv_dtype_size(g->dtype));
    p->sums = (room){0};
}

bool clv_gemm_skinny(const clv_gemm_args *g, size_t bytes)
{
    const clv_tuning *tuning = clv_cpu_tuning();
    int64_t threads = g->n * g->k <= ALONE ? 1 : clv_threads_max();
    product p = {
        .g = g,
        .way = {.panels = g->dtype == CLV_F32 ? tuning->skinny_panel_columns_f32 : tuning->skinny_panel_columns_16bit,
                .streams = tuning->dense_streams}};
    if (g->m > CLV_GEMM_SKINNY_ROWS || (is_strided(g) && g->trans_b) || !find_room(&p.sums, g, bytes, &threads))
        return false;
    p.x = rows_of(g);
    cut(&p, threads);
    clv_run_tasks(g->work, (int)threads, run_piece, &p, (int)p.pieces);
    return true;
}
