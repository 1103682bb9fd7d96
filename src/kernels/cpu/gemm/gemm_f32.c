/* gemm_f32.c - f32-accumulating GEMM driver: cache blocking, packing and division over threads.
 *
 * B is packed in blocks of at most PASS k by some columns, unless its panels can be multiplied where they are. Rows of
 * A are packed by so many as stay in L2 beside a tile's panels of B, which are taken there once for all of them. Sums
 * of f32 are added up in C; those of a C of 16 bits in the workspace, so its rows go in blocks of as many as have room
 * there.
 */
#include "kernels/cpu/gemm/gemm_f32.h"

#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/gemm_f32_simd.h"
#include "kernels/cpu/parallel_tasks.h"

enum {
    BLOCK_COLS = 1024, /* of a C of f32, and of 16 bits: its sums have room for more rows, then */
    BLOCK_COLS_OF_HALF = 512,
    BLOCK_ROWS = 56, /* of A, packed together: at most */
    FEW_ROWS = 48,   /* that fit there by any kernel */
    B_FLOATS = CLV_GEMM_F32_PASS * BLOCK_COLS_OF_HALF,
    SUM_FLOATS = CLV_GEMM_F32_MOST_WORKSPACE / 4 - B_FLOATS,
    WORTH_THREADS = 1 << 20 /* multiplications */
};

_Static_assert(BLOCK_COLS % CLV_GEMM_F32_COLS == 0 && BLOCK_COLS_OF_HALF % CLV_GEMM_F32_COLS == 0, "tiles are whole");
_Static_assert((int)CLV_GEMM_F32_COLS % (int)CLV_PANEL_COLUMNS == 0, "so are panels");
_Static_assert(FEW_ROWS <= BLOCK_ROWS / CLV_GEMM_F32_ROWS * CLV_GEMM_F32_ROWS, "few rows are packed together");
_Static_assert(CLV_GEMM_F32_PASS *BLOCK_COLS <= CLV_GEMM_F32_MOST_WORKSPACE / 4, "a block of B has room");

typedef struct cut {
    const clv_gemm_args *g;
    const clv_gemm_f32_kernel *kernel;
    float *b, *sums;       /* sums: NULL where they are added up in C */
    int64_t k, rows, cols; /* of a pass, and of a block of C */
    int64_t together;      /* rows of A that are packed together */
} cut;

/* C's block at (i, j), [m, n], and k from p. */
typedef struct place {
    int64_t i, j, p, m, n, k;
} place;

/* A thread's own: packed rows of A, and a tile's sums. */
typedef struct lane {
    float a[BLOCK_ROWS * (CLV_GEMM_F32_PASS + CLV_GEMM_F32_A_PANEL_STRIDE)] __attribute__((aligned(64)));
    float tile[CLV_GEMM_F32_ROWS * CLV_GEMM_F32_COLS] __attribute__((aligned(64)));
} lane;

/* A packed panel of B beside it is run_unpacked_a's. */
_Static_assert(sizeof(lane) + CLV_GEMM_F32_PASS * CLV_GEMM_F32_COLS * sizeof(float) < CLV_GEMM_MAX_STACK_BYTES,
               "gemm.h says so");

static cut choose_blocking(const clv_gemm_args *g)
{
    const clv_gemm_f32_kernel *kernel = CLV_ISA_SELECT(clv_gemm_f32_kernel_of)();
    cut c = {.g = g,
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

/* An f32 B that comes packed is multiplied where it lies. */
static bool is_in_place(const clv_gemm_args *g)
{
    return g->packed_b && g->dtype == CLV_F32;
}

/* The block's panels of B. */
static clv_gemm_f32_b_panels panels_of(const cut *c, const place *at)
{
    const clv_gemm_args *g = c->g;
    if (!is_in_place(g))
        return (clv_gemm_f32_b_panels){c->b, at->k * CLV_PANEL_COLUMNS};
    return (clv_gemm_f32_b_panels){(const float *)g->b + at->j * g->k + at->p * CLV_PANEL_COLUMNS,
                                   g->k * CLV_PANEL_COLUMNS};
}

/* Those from column j on, of n. */
static clv_gemm_f32_b_panels panels_from(const clv_gemm_f32_b_panels *b, int64_t j, int64_t n)
{
    return (clv_gemm_f32_b_panels){b->at + j / CLV_PANEL_COLUMNS * b->apart + j % CLV_PANEL_COLUMNS,
                                   n - j > CLV_PANEL_COLUMNS ? b->apart : 0};
}

/* The tile of the block at (i, j). */
static void run_tile(lane *l, const cut *c, const place *at, int64_t i, int64_t j, const float *a,
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

/* Packed rows [i, i + rows) of the block, by its tiles at column j. */
static void run_rows(lane *l, const cut *c, const place *at, int64_t i, int64_t rows, int64_t j,
                     const clv_gemm_f32_b_panels *b)
{
    const int64_t each = c->kernel->rows, apart = at->k * each + CLV_GEMM_F32_A_PANEL_STRIDE;
    for (int64_t r = 0; r < rows; r += each)
        run_tile(l, c, at, i + r, j, l->a + r / each * apart, b);
}

/* A block of so few rows that each panel of B serves once: what has to be packed is when its turn comes, and the
 * first-level cache, or the second, has it then. All threads call it with the same `at`, as they do the next. */
static void run_unpacked_a(const cut *c, const place *at)
{
    const int64_t cols = c->kernel->cols,
                  stripe = cols > CLV_PANEL_COLUMNS ? cols : CLV_PANEL_COLUMNS; /* whole tiles and panels */
    const clv_gemm_f32_b_panels there = panels_of(c, at);
    float packed[CLV_GEMM_F32_PASS * CLV_GEMM_F32_COLS] __attribute__((aligned(64)));
    lane l;
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

/* A block in pieces, of some rows by some panels, which threads of the team take in turn; a team of one shares them
 * with ranks that wait. */
typedef struct pieces {
    const cut *c;
    const place *at;
    int64_t across;
} pieces;

static void run_piece(void *arg, int piece, int who)
{
    (void)who;
    const pieces *x = arg;
    const place *at = x->at;
    const clv_gemm_f32_kernel *kernel = x->c->kernel;
    const int64_t i = piece / x->across * x->c->together, part = piece % x->across, cols = kernel->cols;
    const int64_t rows = clv_min_i64(x->c->together, at->m - i), tiles = clv_ceil_div(at->n, cols);
    const clv_gemm_f32_b_panels first = panels_of(x->c, at);
    lane l;

    kernel->pack_a(l.a, x->c->g, at->i + i, at->p, rows, at->k);
    for (int64_t t = tiles * part / x->across; t < tiles * (part + 1) / x->across; t++) {
        const clv_gemm_f32_b_panels b = panels_from(&first, t * cols, at->n);
        run_rows(&l, x->c, at, i, rows, t * cols, &b);
    }
}

static void run_packed_a(const cut *c, const place *at)
{
    enum { PACKED = 8 * CLV_PANEL_COLUMNS };
    const int64_t tiles = clv_ceil_div(at->n, c->kernel->cols), down = clv_ceil_div(at->m, c->together);
    pieces x = {c, at, clv_splits_for_team(down, tiles)};

    if (!is_in_place(c->g)) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t j = 0; j < at->n; j += PACKED)
            c->kernel->pack_b(c->b + j * at->k, c->g, at->p, at->j + j, at->k, clv_min_i64(PACKED, at->n - j));
    }
    clv_run_tasks_in_region(c->g->work, run_piece, &x, (int)(down * x.across));
}

static void run_thread(const cut *c)
{
    const clv_gemm_args *g = c->g;
    void (*run)(const cut *, const place *) = g->m <= FEW_ROWS ? run_unpacked_a : run_packed_a;
    for (int64_t j = 0; j < g->n; j += c->cols)
        for (int64_t i = 0; i < g->m; i += c->rows)
            for (int64_t p = 0; p < g->k; p += c->k) {
                place at = {.i = i,
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
    const cut c = choose_blocking(g);
#pragma omp parallel if ((double)g->m * (double)g->n * (double)g->k >= WORTH_THREADS)
    run_thread(&c);
}
