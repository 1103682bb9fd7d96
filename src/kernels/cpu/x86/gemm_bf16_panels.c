/* gemm_bf16_panels.c - bf16 GEMM driver: packing into panels, cache blocking, division over threads.
 *
 * B is packed in blocks, which stay in L2 while they are multiplied by all panels of A. A is read in block_at, except
 * at edges; a transposed A is packed into the workspace, once for each block of rows unless k is split. Sums between
 * passes are f32: those of a panel of A on the stack, those over several blocks of B in the workspace.
 */
#include "kernels/cpu/x86/gemm_bf16_panels.h"

#include <string.h>

#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/bf16_pairs.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/parallel_tasks.h"

enum {
    STEP = 32,              /* k of a step */
    K_WHOLE = 2048,         /* most k that a block of B holds whole */
    K_BLOCK = 1024,         /* k of a block of B, where there is more */
    K_TRANSPOSED = 512,     /* the same where A is packed, too, again for each block of B */
    COLUMNS = 1024,         /* of a block of B */
    COLUMNS_SUMMED = 512,   /* the same where sums take several passes */
    WORTH_THREADS = 1 << 20 /* multiplications */
};

/* ------------------------------------------------------------------------------------------------- packing */

/* Lane i of four: the 16 bytes at p + i * apart elements. */
CLV_ALWAYS_INLINE __m512i lanes(const uint16_t *p, int64_t apart)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128((const void *)(p + apart)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128((const void *)(p + 2 * apart)));
    return _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128((const void *)(p + 3 * apart)));
}

/* out [32][32] from in [rows, cols]; zeros where that has no element. */
static void pad(uint16_t *out, const uint16_t *in, int64_t ld, int rows, int cols)
{
    for (int r = 0; r < SIDE; r++, out += SIDE)
        _mm512_storeu_si512(out, r < rows ? _mm512_maskz_loadu_epi16(clv_mask32(cols), in + r * ld)
                                          : _mm512_setzero_si512());
}

/* out [8 columns][32 k] from in [32 k][8 columns]: thread_buffers i of x[j] is row 8i + j, and each thread_buffers is
 * transposed. */
CLV_ALWAYS_INLINE void transpose_eight(char *out, const uint16_t *in, int64_t ld)
{
    __m512i x[8], y[8];

    for (int i = 0; i < 8; i++)
        x[i] = lanes(in + i * ld, 8 * ld);
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm512_unpacklo_epi16(x[i], x[i + 1]); /* columns 0 to 3 of two rows */
        y[i + 1] = _mm512_unpackhi_epi16(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        x[i] = _mm512_unpacklo_epi32(y[i], y[i + 2]); /* columns 0 and 1 of four rows */
        x[i + 1] = _mm512_unpackhi_epi32(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi32(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi32(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_store_si512(out + 2 * i * 64, _mm512_unpacklo_epi64(x[i], x[i + 4]));
        _mm512_store_si512(out + (2 * i + 1) * 64, _mm512_unpackhi_epi64(x[i], x[i + 4]));
    }
}

/* out [4 pairs of k][16 columns] from in [16 columns][8 k] */
CLV_ALWAYS_INLINE void transpose_four_pairs(char *out, const uint16_t *in, int64_t ld)
{
    __m512i x[4], y[4];

    for (int i = 0; i < 4; i++)
        x[i] = lanes(in + i * ld, 4 * ld);
    for (int i = 0; i < 4; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        _mm512_store_si512(out + 2 * i * 64, _mm512_unpacklo_epi64(y[i], y[i + 2]));
        _mm512_store_si512(out + (2 * i + 1) * 64, _mm512_unpackhi_epi64(y[i], y[i + 2]));
    }
}

/* A step of a panel: its two tiles, from 32 rows of 32 elements. */
typedef void pack_step(char *out, const uint16_t *in, int64_t ld);

/* Of A from [32 rows][32 k]. */
static void copy_step(char *out, const uint16_t *in, int64_t ld)
{
    for (int r = 0; r < SIDE; r++)
        memcpy(out + r * 64, in + r * ld, 64);
}

/* Of A from [32 k][32 rows]. */
static void turn_step(char *out, const uint16_t *in, int64_t ld)
{
    for (int i = 0; i < SIDE; i += 8)
        transpose_eight(out + i * 64, in + i, ld);
}

/* Of B from [32 k][32 columns]. */
static void pair_step(char *out, const uint16_t *in, int64_t ld)
{
    const __m512i front = clv_pair_order(0), back = clv_pair_order(TILE_SIDE);
    for (int p = 0; p < TILE_SIDE; p++, in += 2 * ld, out += 64)
        clv_store_pairs(out, out + TILE_BYTES, _mm512_loadu_si512(in), _mm512_loadu_si512(in + ld), front, back);
}

/* Of B from [32 columns][32 k]. */
static void turn_pairs_step(char *out, const uint16_t *in, int64_t ld)
{
    for (int tile = 0; tile < 2; tile++, out += TILE_BYTES, in += TILE_SIDE * ld)
        for (int q = 0; q < 4; q++)
            transpose_four_pairs(out + q * TILE_BYTES / 4, in + 8 * q, ld);
}

/* Part of an operand that becomes panels: `wide` rows of op(A), or columns of op(B), by k. */
typedef struct part {
    const uint16_t *at;
    int64_t ld;
    bool k_first; /* stored [k, wide]; else [wide, k] */
    int wide, k;
    pack_step *step;
} part;

static void pack_one(char *out, const part *x, int steps, int panel, int step)
{
    int64_t i = (int64_t)SIDE * panel, p = (int64_t)STEP * step;
    int wide = (int)clv_min_i64(x->wide - i, SIDE), k = (int)clv_min_i64(x->k - p, STEP);
    const uint16_t *in = x->at + (x->k_first ? p * x->ld + i : i * x->ld + p);

    out += ((size_t)panel * (size_t)steps + (size_t)step) * STEP_BYTES;
    if (wide < SIDE || k < STEP) {
        uint16_t whole[SIDE * STEP] __attribute__((aligned(64)));
        pad(whole, in, x->ld, x->k_first ? k : wide, x->k_first ? wide : k);
        x->step(out, whole, SIDE);
        return;
    }
    x->step(out, in, x->ld);
}

/* Whole panels [from, to) and whole steps, as pair_step makes them, but by two rows of what is stored at a time, which
 * are read through: 32 side by side may lie a multiple of 4 KiB apart, where they push each other out of the
 * first-level cache, and are more streams than a CPU follows. */
static void pack_pairs(char *out, const part *x, int steps, int from, int to)
{
    enum { AHEAD = 16 };
    const __m512i front = clv_pair_order(0), back = clv_pair_order(TILE_SIDE);
    const int64_t k = x->k / STEP * STEP, apart = (int64_t)steps * STEP_BYTES;
    for (int64_t p = 0; p < k; p += 2) {
        const uint16_t *even = x->at + p * x->ld + (int64_t)SIDE * from, *odd = even + x->ld;
        const int64_t ahead = p + AHEAD + 1 < k ? AHEAD * x->ld : 0;
        char *to_pair = out + from * apart + p / STEP * STEP_BYTES + p % STEP / 2 * 64;
        for (int panel = from; panel < to; panel++, even += SIDE, odd += SIDE, to_pair += apart) {
            __builtin_prefetch(even + ahead);
            __builtin_prefetch(odd + ahead);
            clv_store_pairs(to_pair, to_pair + TILE_BYTES, _mm512_loadu_si512(even), _mm512_loadu_si512(odd), front,
                            back);
        }
    }
}

/* Panels [from, to), in the order in which the operand lies in memory. */
static void pack(char *out, const part *x, int from, int to)
{
    const int steps = (int)clv_ceil_div(x->k, STEP);
    int done = from; /* whole steps of panels before it are packed */

    if (x->step == pair_step) {
        done = (int)clv_max_i64(from, clv_min_i64(x->wide / SIDE, to));
        pack_pairs(out, x, steps, from, done);
    }
    if (x->k_first)
        for (int s = 0; s < steps; s++)
            for (int panel = s < x->k / STEP ? done : from; panel < to; panel++)
                pack_one(out, x, steps, panel, s);
    else
        for (int panel = from; panel < to; panel++)
            for (int s = 0; s < steps; s++)
                pack_one(out, x, steps, panel, s);
}

/* pairs: a transposed A is packed as B is. */
static part part_of_a(const clv_gemm_args *g, bool pairs, int64_t i, int64_t p, int64_t rows, int64_t k)
{
    const uint16_t *a = g->a;
    return (part){.at = g->trans_a ? a + p * g->lda + i : a + i * g->lda + p,
                  .ld = g->lda,
                  .k_first = g->trans_a,
                  .wide = (int)rows,
                  .k = (int)k,
                  .step = !g->trans_a ? copy_step
                          : pairs     ? pair_step
                                      : turn_step};
}

static part part_of_b(const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t cols)
{
    const uint16_t *b = g->b;
    return (part){.at = g->trans_b ? b + j * g->ldb + p : b + p * g->ldb + j,
                  .ld = g->ldb,
                  .k_first = !g->trans_b,
                  .wide = (int)cols,
                  .k = (int)k,
                  .step = g->trans_b ? turn_pairs_step : pair_step};
}

/* -------------------------------------------------------------------------------------------------- blocks */

/* How a product is divided into blocks, from its shape alone, and the buffers in the workspace. */
typedef struct blocking {
    const clv_gemm_args *g;
    const clv_gemm_panel_kernel *kernel;
    int64_t m, n, k; /* of a block */
    int64_t pass;    /* k of a pass */
    char *a, *b;     /* packed */
    float *sums;     /* of a block of C, if k takes several blocks of B; else NULL */
    bool past;       /* C is written past the caches */
} blocking;

/* Most k of a block. */
static int64_t most_depth(const clv_gemm_args *g, const clv_gemm_panel_kernel *kernel)
{
    if (g->trans_a)
        return g->k <= kernel->whole_transposed ? kernel->whole_transposed : K_TRANSPOSED;
    return g->k <= K_WHOLE ? K_WHOLE : K_BLOCK;
}

/* Whether C is written past the caches: it is larger than they are, and rows are whole cache lines. */
static bool is_past(const clv_gemm_args *g, const clv_gemm_panel_kernel *kernel)
{
    size_t size = clv_dtype_size(g->c_dtype), bytes = (size_t)(g->m * g->n) * size;
    return kernel->past > 0 && bytes >= (size_t)kernel->past && !g->accumulate && (uintptr_t)g->c % 64 == 0 &&
           (size_t)g->ldc * size % 64 == 0;
}

static blocking choose_blocking(const clv_gemm_args *g, const clv_gemm_panel_kernel *kernel)
{
    blocking c = {.g = g, .kernel = kernel, .b = g->workspace};
    c.k = clv_equal_chunk_size(g->k, most_depth(g, kernel), STEP);
    c.pass = clv_equal_chunk_size(c.k, kernel->pass, STEP);
    bool summed = c.k < g->k;
    int64_t columns = clv_min_i64(c.pass < c.k ? COLUMNS_SUMMED : COLUMNS, kernel->b_bytes / (c.k * 2) / SIDE * SIDE);
    c.n = clv_equal_chunk_size(g->n, columns, SIDE);
    int64_t b_bytes = c.k * c.n * 2, row_bytes = (g->trans_a ? c.k * 2 : 0) + (summed ? c.n * 4 : 0);
    int64_t rows = row_bytes ? (CLV_GEMM_MOST_WORKSPACE - b_bytes) / row_bytes / SIDE * SIDE : g->m;
    c.m = row_bytes ? clv_equal_chunk_size(g->m, rows, SIDE) : g->m;
    c.a = c.b + b_bytes;
    c.sums = summed ? (float *)(void *)(c.a + (g->trans_a ? c.m * c.k * 2 : 0)) : NULL;
    c.past = is_past(g, kernel);
    return c;
}

/* One block of the blocking: C's part at (i, j), [m, n], and k from p. */
typedef struct block_at {
    int64_t i, j, p, m, n, k;
} block_at;

/* Buffers of a thread. */
typedef struct thread_buffers {
    char panel[SIDE * MOST_PASS * 2] __attribute__((aligned(64))); /* of A, if it is packed */
    float sums[SIDE * COLUMNS_SUMMED] __attribute__((aligned(64)));
    clv_gemm_tile_output pending;
} thread_buffers;

_Static_assert(sizeof(thread_buffers) < CLV_GEMM_MAX_STACK_BYTES, "gemm.h says so");

static clv_gemm_a_panel panel_of_a(thread_buffers *l, const blocking *c, const block_at *at, int64_t i, int64_t q,
                                   int64_t k)
{
    const clv_gemm_args *g = c->g;
    int64_t rows = clv_min_i64(at->m - i, SIDE);
    clv_gemm_a_panel packed = {
        .at = l->panel, .step = STEP_BYTES, .row = 64, .half = TILE_BYTES, .pair = 4, .rows = (int)rows};

    if (g->trans_a) {
        packed.at = c->a + (i / SIDE * clv_ceil_div(at->k, STEP) + q / STEP) * STEP_BYTES;
        if (c->kernel->pairs_of_a)
            packed.row = 4, packed.pair = 64;
        return packed;
    }
    part a = part_of_a(g, false, at->i + i, at->p + q, rows, k);
    if (rows == SIDE && k % STEP == 0)
        return (clv_gemm_a_panel){.at = (const char *)a.at,
                                  .step = 64,
                                  .row = g->lda * 2,
                                  .half = g->lda * 2 * TILE_SIDE,
                                  .pair = 4,
                                  .rows = SIDE};
    pack(l->panel, &a, 0, 1);
    return packed;
}

static clv_gemm_tile_output out_of(const blocking *c, const block_at *at, int64_t i, int64_t j, const float *from)
{
    const clv_gemm_args *g = c->g;
    int64_t size = (int64_t)clv_dtype_size(g->c_dtype);
    return (clv_gemm_tile_output){.from = from,
                                  .to = (char *)g->c + ((at->i + i) * g->ldc + at->j + j) * size,
                                  .ldc = g->ldc * size,
                                  .rows = (int)clv_min_i64(at->m - i, SIDE),
                                  .cols = (int)clv_min_i64(at->n - j, SIDE),
                                  .f32 = g->c_dtype == CLV_F32,
                                  .accumulate = g->accumulate,
                                  .past = c->past && at->n - j >= SIDE};
}

/* Panel i of A by columns [j, to), k from q. */
static void panel_by_b(thread_buffers *l, const blocking *c, const block_at *at, int64_t i, int64_t q, int64_t j,
                       int64_t to)
{
    int64_t k = clv_min_i64(c->pass, at->k - q), steps = clv_ceil_div(at->k, STEP);
    clv_gemm_a_panel a = panel_of_a(l, c, at, i, q, k);
    bool last = at->p + q + k == c->g->k;

    for (; j < to; j += SIDE) {
        float *sums = c->sums           ? c->sums + (i / SIDE * (c->n / SIDE) + j / SIDE) * BLOCK_FLOATS
                      : c->pass < at->k ? l->sums + j / SIDE * BLOCK_FLOATS
                                        : l->sums;
        const clv_gemm_tile_output whole = out_of(c, at, i, j, sums);
        c->kernel->block(sums, at->p + q == 0, (int)clv_ceil_div(k, STEP), a,
                         c->b + (j / SIDE * steps + q / STEP) * STEP_BYTES, &l->pending, last ? &whole : NULL);
    }
}

/* A block, split into tasks of a panel of A by some panels of B; `across` tasks side by side. */
typedef struct block_tasks {
    const blocking *c;
    const block_at *at;
    int64_t across;
} block_tasks;

static void run_task(void *arg, int task, int who)
{
    const block_tasks *x = arg;
    const blocking *c = x->c;
    const int64_t i = task / x->across * SIDE, of_b = task % x->across;
    const int64_t j = clv_task_begin(x->at->n, SIDE, x->across, of_b);
    const int64_t to = clv_task_begin(x->at->n, SIDE, x->across, of_b + 1);
    thread_buffers l;

    l.pending = (clv_gemm_tile_output){0};
    if (c->kernel->begin)
        c->kernel->begin();
    for (int64_t q = 0; q < x->at->k; q += c->pass)
        panel_by_b(&l, c, x->at, i, q, j, to);
    clv_rows_out(&l.pending, SIDE);
    if (c->past)
        _mm_sfence();
    if (c->kernel->end)
        c->kernel->end();
}

/* This thread's part of an operand's packing. */
static void pack_share(char *out, const part *x)
{
    const int64_t me = clv_threads_index(), team = clv_threads_team();
    pack(out, x, (int)(clv_task_begin(x->wide, SIDE, team, me) / SIDE),
         (int)clv_ceil_div(clv_task_begin(x->wide, SIDE, team, me + 1), SIDE));
}

/* All threads call it with the same `at`. */
static void run_block(const blocking *c, const block_at *at)
{
    const int64_t down = clv_ceil_div(at->m, SIDE), panels = clv_ceil_div(at->n, SIDE);
    block_tasks x = {c, at, clv_splits_for_team(down, panels)};
    const part b = part_of_b(c->g, at->p, at->j, at->k, at->n);

    pack_share(c->b, &b);
    if (c->g->trans_a && (at->j == 0 || c->k < c->g->k)) {
        const part a = part_of_a(c->g, c->kernel->pairs_of_a, at->i, at->p, at->m, at->k);
        pack_share(c->a, &a);
    }
#pragma omp barrier
    clv_run_tasks_in_region(c->g->work, run_task, &x, (int)(down * x.across));
}

static void run_thread(const blocking *c)
{
    const clv_gemm_args *g = c->g;
    for (int64_t i = 0; i < g->m; i += c->m)
        for (int64_t j = 0; j < g->n; j += c->n)
            for (int64_t p = 0; p < g->k; p += c->k) {
                block_at at = {.i = i,
                               .j = j,
                               .p = p,
                               .m = clv_min_i64(c->m, g->m - i),
                               .n = clv_min_i64(c->n, g->n - j),
                               .k = clv_min_i64(c->k, g->k - p)};
                run_block(c, &at);
            }
}

void clv_gemm_bf16_panels(const clv_gemm_args *g, const clv_gemm_panel_kernel *kernel)
{
    const blocking c = choose_blocking(g, kernel);
#pragma omp parallel if ((double)g->m * (double)g->n * (double)g->k >= WORTH_THREADS)
    run_thread(&c);
}
