/* gemm_wide.c: how a product is cut, from its shape alone, and divided over threads.
 *
 * B is packed in blocks of at most PASS k by BLOCK_COLS, which stay in L2 while rows of A, a tile's at a time, go by.
 * Sums over several passes lie in the workspace, so rows go in blocks of as many as have room there. */
#include "kernels/cpu/gemm_wide.h"

#include "kernels/cpu/block.h"
#include "kernels/cpu/isa/gemm_wide.h"

enum {
    BLOCK_COLS = 512,
    TILES_OF_A = 4, /* that are widened together */
    B_FLOATS = CLV_GEMM_WIDE_PASS * BLOCK_COLS,
    SUM_FLOATS = CLV_GEMM_WIDE_WORKSPACE / 4 - B_FLOATS,
    WORTH_THREADS = 1 << 20 /* multiplications */
};

_Static_assert(BLOCK_COLS % CLV_GEMM_WIDE_COLS == 0, "panels are whole");

typedef struct cut {
    const clv_gemm_args *g;
    const clv_gemm_wide_kernel *kernel;
    float *b, *sums;
    int64_t k, rows; /* of a pass, and of a block */
} cut;

/* C's block at (i, j), [m, n], and k from p. */
typedef struct place {
    int64_t i, j, p, m, n, k;
} place;

/* A thread's own. */
typedef struct lane {
    float a[TILES_OF_A * CLV_GEMM_WIDE_A] __attribute__((aligned(64)));
    float tile[CLV_GEMM_WIDE_ROWS * CLV_GEMM_WIDE_COLS] __attribute__((aligned(64)));
} lane;

static cut cut_product(const clv_gemm_args *g)
{
    const clv_gemm_wide_kernel *kernel = CLV_ISA_SELECT(clv_gemm_wide_kernel_of)();
    float *b = g->workspace;
    cut c = {g, kernel, b, b + B_FLOATS, clv_equal_pieces(g->k, CLV_GEMM_WIDE_PASS, 16), g->m};
    if (c.k < g->k)
        c.rows = clv_equal_pieces(g->m, SUM_FLOATS / BLOCK_COLS / kernel->rows * kernel->rows, kernel->rows);
    return c;
}

/* Row i of the block and those that make a tile with it, whose A is widened, by panels [from, to) of B. */
static void run_tiles(lane *l, const cut *c, const place *at, int64_t i, const float *a, int64_t from, int64_t to)
{
    const clv_gemm_wide_kernel *kernel = c->kernel;
    int64_t rows = clv_min_i64(kernel->rows, at->m - i);
    bool first = at->p == 0, last = at->p + at->k == c->g->k;

    for (int64_t t = from; t < to; t++) {
        int64_t j = t * kernel->cols, cols = clv_min_i64(kernel->cols, at->n - j);
        float *sums = first && last ? l->tile : c->sums + i * BLOCK_COLS + t * kernel->rows * kernel->cols;
        kernel->multiply(sums, first, rows, a, c->g->trans_a, c->b + t * at->k * kernel->cols, at->k);
        if (last)
            kernel->finish(c->g, at->i + i, at->j + j, rows, cols, sums);
    }
}

/* Tiles of rows [i, end) of the block, by panels [from, to) of B. */
static void run_rows(lane *l, const cut *c, const place *at, int64_t i, int64_t end, int64_t from, int64_t to)
{
    int64_t each = c->kernel->rows, together = TILES_OF_A * each;
    for (; i < end; i += together) {
        int64_t rows = clv_min_i64(together, end - i);
        c->kernel->widen_a(l->a, c->g, at->i + i, at->p, rows, at->k);
        for (int64_t r = 0; r < rows; r += each)
            run_tiles(l, c, at, i + r, l->a + r / each * CLV_GEMM_WIDE_A, from, to);
    }
}

/* Where thread `me` of `team` begins in n. */
static int64_t share(int64_t n, int me, int team)
{
    return n * me / team;
}

/* This thread's part of a block: rows, or where they are few, columns. All threads call it with the same `at`. */
static void run_block(lane *l, const cut *c, const place *at)
{
    int me = clv_threads_index(), team = clv_threads_team();
    int64_t down = clv_pieces(at->m, c->kernel->rows), across = clv_pieces(at->n, c->kernel->cols);
    bool by_rows = down >= 4 * team;
    int64_t i0 = by_rows ? share(down, me, team) * c->kernel->rows : 0;
    int64_t i1 = by_rows ? clv_min_i64(share(down, me + 1, team) * c->kernel->rows, at->m) : at->m;
    int64_t t0 = share(across, me, team), t1 = share(across, me + 1, team);

    c->kernel->pack_b(c->b, c->g, at->p, at->j, at->k, at->n, t0, t1);
#pragma omp barrier
    run_rows(l, c, at, i0, i1, by_rows ? 0 : t0, by_rows ? across : t1);
#pragma omp barrier
}

static void run_lane(const cut *c)
{
    const clv_gemm_args *g = c->g;
    lane l;
    for (int64_t j = 0; j < g->n; j += BLOCK_COLS)
        for (int64_t i = 0; i < g->m; i += c->rows)
            for (int64_t p = 0; p < g->k; p += c->k) {
                place at = {.i = i,
                            .j = j,
                            .p = p,
                            .m = clv_min_i64(c->rows, g->m - i),
                            .n = clv_min_i64(BLOCK_COLS, g->n - j),
                            .k = clv_min_i64(c->k, g->k - p)};
                run_block(&l, c, &at);
            }
}

void clv_gemm_wide(const clv_gemm_args *g)
{
    const cut c = cut_product(g);
#pragma omp parallel if ((double)g->m * (double)g->n * (double)g->k >= WORTH_THREADS)
    run_lane(&c);
}
