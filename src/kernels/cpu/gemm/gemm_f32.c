/* gemm_f32.c - f32-accumulating GEMM driver: cache blocking, packing and division over threads.
 *
 * B is packed in blocks of at most PASS k, unless its panels can be multiplied in block. Rows of A are packed, as many
 * as fit in L2 beside the panels of B of a tile, which are read once for all of them. Sums are added up in C if it is
 * f32; for a 16-bit C they are added up in the workspace, in blocks of as many rows as fit there.
 */
#include "kernels/cpu/gemm/gemm_kernels.h"

#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/gemm_f32_simd.h"
#include "kernels/cpu/parallel_tasks.h"

enum {
    BLOCK_COLS = 1024,        /* columns of a block of an f32 C, */
    BLOCK_COLS_OF_HALF = 512, /* and of a 16-bit C, whose sums need workspace for many rows */
    BLOCK_ROWS = 56,          /* most rows of A that are packed together */
    FEW_ROWS = 48,            /* rows that any kernel can pack together */
    B_FLOATS = CLV_GEMM_F32_PASS * BLOCK_COLS_OF_HALF,
    SUM_FLOATS = CLV_GEMM_MOST_WORKSPACE / 4 - B_FLOATS,
    WORTH_THREADS = 1 << 20 /* multiplications */
};

_Static_assert(BLOCK_COLS % CLV_GEMM_F32_COLS == 0 && BLOCK_COLS_OF_HALF % CLV_GEMM_F32_COLS == 0, "tiles are whole");
_Static_assert((int)CLV_GEMM_F32_COLS % (int)CLV_PANEL_COLUMNS == 0, "so are panels");
_Static_assert(FEW_ROWS <= BLOCK_ROWS / CLV_GEMM_F32_ROWS * CLV_GEMM_F32_ROWS, "few rows are packed together");
_Static_assert(CLV_GEMM_F32_PASS *BLOCK_COLS <= CLV_GEMM_MOST_WORKSPACE / 4, "a block of B has room");

typedef struct blocking {
    const clv_gemm_args *g;
    const clv_gemm_f32_kernel *kernel;
    float *b, *sums;       /* packed B; sums, or NULL if they are added up in C */
    int64_t k, rows, cols; /* k of a pass; rows and columns of a block of C */
    int64_t together;      /* rows of A that are packed together */
} blocking;

/* A block: C's [m, n] at (i, j), for k elements from p. */
typedef struct block {
    int64_t i, j, p, m, n, k;
} block;

/* Buffers of a thread: packed rows of A, and the sums of a tile. */
typedef struct thread_buffers {
    float a[BLOCK_ROWS * (CLV_GEMM_F32_PASS + CLV_GEMM_F32_A_PANEL_STRIDE)] __attribute__((aligned(64)));
    float tile[CLV_GEMM_F32_ROWS * CLV_GEMM_F32_COLS] __attribute__((aligned(64)));
} thread_buffers;

/* run_unpacked_a has also a packed panel of B on the stack. */
_Static_assert(sizeof(thread_buffers) + CLV_GEMM_F32_PASS * CLV_GEMM_F32_COLS * sizeof(float) <
                   CLV_GEMM_MAX_STACK_BYTES,
               "gemm.h says so");

static blocking choose_blocking(const clv_gemm_args *g)
{
    const clv_gemm_f32_kernel *kernel = CLV_ISA_SELECT(clv_gemm_f32_kernel_of)();
    blocking c = {.g = g,
                  .kernel = kernel,
                  .b = g->workspace,
                  .k = clv_equal_chunk_size(g->k, CLV_GEMM_F32_PASS, 4),
                  .rows = g->m,
                  .cols = BLOCK_COLS,
                  .together = BLOCK_ROWS / kernel->rows * kernel->rows};
    if (g->c_dtype == CLV_F32)
        return c;
    c.sums = c.b + B_FLOATS;
    c.cols = BLOCK_COLS_OF_HALF;
    if (c.k < g->k)
        c.rows =
            clv_equal_chunk_size(g->m, SUM_FLOATS / BLOCK_COLS_OF_HALF / kernel->rows * kernel->rows, kernel->rows);
    return c;
}

/* A prepacked f32 B is multiplied in block. */
static bool is_in_place(const clv_gemm_args *g)
{
    return g->packed_b && g->dtype == CLV_F32;
}

/* The block's panels of B. */
static clv_gemm_f32_b_panels panels_of(const blocking *c, const block *at)
{
    const clv_gemm_args *g = c->g;
    if (!is_in_place(g))
        return (clv_gemm_f32_b_panels){c->b, at->k * CLV_PANEL_COLUMNS};
    return (clv_gemm_f32_b_panels){(const float *)g->b + at->j * g->k + at->p * CLV_PANEL_COLUMNS,
                                   g->k * CLV_PANEL_COLUMNS};
}

/* The panels from column j on, of n columns. */
static clv_gemm_f32_b_panels panels_from(const clv_gemm_f32_b_panels *b, int64_t j, int64_t n)
{
    return (clv_gemm_f32_b_panels){b->at + j / CLV_PANEL_COLUMNS * b->apart + j % CLV_PANEL_COLUMNS,
                                   n - j > CLV_PANEL_COLUMNS ? b->apart : 0};
}

/* The tile of the block at (i, j). */
static void run_tile(thread_buffers *l, const blocking *c, const block *at, int64_t i, int64_t j, const float *a,
                     const clv_gemm_f32_b_panels *b)
{
    const clv_gemm_args *g = c->g;
    const clv_gemm_f32_kernel *kernel = c->kernel;
    const bool first = at->p == 0, last = at->p + at->k == g->k;
    clv_gemm_f32_tile tile = {.rows = clv_min_i64(kernel->rows, at->m - i),
                              .cols = clv_min_i64(kernel->cols, at->n - j)};
    if (!c->sums) {
        tile.at = (float *)g->c + (at->i + i) * g->ldc + at->j + j;
        tile.ld = g->ldc;
        tile.add = !first || g->accumulate;
        kernel->multiply(&tile, a, b, at->k);
        return;
    }
    tile.at = first && last ? l->tile : c->sums + i * BLOCK_COLS_OF_HALF + j * kernel->rows;
    tile.ld = kernel->cols;
    tile.add = !first;
    kernel->multiply(&tile, a, b, at->k);
    if (last)
        kernel->finish(g, at->i + i, at->j + j, tile.rows, tile.cols, tile.at);
}

/* Multiplies packed rows [i, i + rows) of the block by its panels at column j. */
static void run_rows(thread_buffers *l, const blocking *c, const block *at, int64_t i, int64_t rows, int64_t j,
                     const clv_gemm_f32_b_panels *b)
{
    const int64_t each = c->kernel->rows, apart = at->k * each + CLV_GEMM_F32_A_PANEL_STRIDE;
    for (int64_t r = 0; r < rows; r += each)
        run_tile(l, c, at, i + r, j, l->a + r / each * apart, b);
}

/* A block with so few rows that each panel of B is used once: it is packed just before, and so is in L1 or L2. All
 * threads call this with the same `at`. */
static void run_unpacked_a(const blocking *c, const block *at)
{
    const int64_t cols = c->kernel->cols,
                  stripe = cols > CLV_PANEL_COLUMNS ? cols : CLV_PANEL_COLUMNS; /* whole tiles and panels */
    const clv_gemm_f32_b_panels there = panels_of(c, at);
    float packed[CLV_GEMM_F32_PASS * CLV_GEMM_F32_COLS] __attribute__((aligned(64)));
    thread_buffers l;
    c->kernel->pack_a(l.a, c->g, at->i, at->p, at->m, at->k);
#pragma omp for schedule(dynamic, 4)
    for (int64_t t = 0; t < clv_ceil_div(at->n, stripe); t++) {
        const int64_t first = t * stripe, n = clv_min_i64(stripe, at->n - first);
        clv_gemm_f32_b_panels of_stripe = panels_from(&there, first, at->n);
        if (!is_in_place(c->g)) {
            c->kernel->pack_b(packed, c->g, at->p, at->j + first, at->k, n);
            of_stripe = (clv_gemm_f32_b_panels){packed, at->k * CLV_PANEL_COLUMNS};
        }
        for (int64_t j = 0; j < n; j += cols) {
            const clv_gemm_f32_b_panels b = panels_from(&of_stripe, j, n);
            run_rows(&l, c, at, 0, at->m, first + j, &b);
        }
    }
}

/* A block, split into tasks of some rows by some panels; `across` tasks side by side. */
typedef struct block_tasks {
    const blocking *c;
    const block *at;
    int64_t across;
} block_tasks;

static void run_task(void *arg, int task, int who)
{
    const block_tasks *x = arg;
    const block *at = x->at;
    const clv_gemm_f32_kernel *kernel = x->c->kernel;
    const int64_t i = task / x->across * x->c->together, part = task % x->across, cols = kernel->cols;
    const int64_t rows = clv_min_i64(x->c->together, at->m - i), tiles = clv_ceil_div(at->n, cols);
    const clv_gemm_f32_b_panels first = panels_of(x->c, at);
    thread_buffers l;

    kernel->pack_a(l.a, x->c->g, at->i + i, at->p, rows, at->k);
    for (int64_t t = tiles * part / x->across; t < tiles * (part + 1) / x->across; t++) {
        const clv_gemm_f32_b_panels b = panels_from(&first, t * cols, at->n);
        run_rows(&l, x->c, at, i, rows, t * cols, &b);
    }
}

static void run_packed_a(const blocking *c, const block *at)
{
    enum { PACKED = 8 * CLV_PANEL_COLUMNS };
    const int64_t tiles = clv_ceil_div(at->n, c->kernel->cols), down = clv_ceil_div(at->m, c->together);
    block_tasks x = {c, at, clv_splits_for_team(down, tiles)};

    if (!is_in_place(c->g)) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t j = 0; j < at->n; j += PACKED)
            c->kernel->pack_b(c->b + j * at->k, c->g, at->p, at->j + j, at->k, clv_min_i64(PACKED, at->n - j));
    }
    clv_run_tasks_in_region(c->g->work, run_task, &x, (int)(down * x.across));
}

static void run_thread(const blocking *c)
{
    const clv_gemm_args *g = c->g;
    void (*run)(const blocking *, const block *) = g->m <= FEW_ROWS ? run_unpacked_a : run_packed_a;
    for (int64_t j = 0; j < g->n; j += c->cols)
        for (int64_t i = 0; i < g->m; i += c->rows)
            for (int64_t p = 0; p < g->k; p += c->k) {
                block at = {.i = i,
                            .j = j,
                            .p = p,
                            .m = clv_min_i64(c->rows, g->m - i),
                            .n = clv_min_i64(c->cols, g->n - j),
                            .k = clv_min_i64(c->k, g->k - p)};
                run(c, &at);
            }
}

size_t clv_gemm_f32_workspace(const clv_gemm_args *g)
{
    if (g->m <= FEW_ROWS)
        return 0;
    const int64_t k = clv_min_i64(g->k, CLV_GEMM_F32_PASS), n = clv_min_i64(g->n, BLOCK_COLS);
    return (size_t)(clv_ceil_div(k, 4) * 4 * clv_ceil_div(n, CLV_GEMM_F32_COLS) * CLV_GEMM_F32_COLS) * sizeof(float);
}

void clv_gemm_f32(const clv_gemm_args *g)
{
    const blocking c = choose_blocking(g);
#pragma omp parallel if ((double)g->m * (double)g->n * (double)g->k >= WORTH_THREADS)
    run_thread(&c);
}
