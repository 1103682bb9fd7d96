/* gemm_skinny_simd.c - skinny GEMM inner loops: B streamed from memory once for up to 16 rows.
 *
 * B stored as [k, n], up to FEW rows of A: bound by memory bandwidth. B is read in order, a few rows at a time, and
 * prefetched in that order; sums stay in cache. If the caller asks for it, and there are whole rows and few sums, one
 * row is read at a time: a single stream, which some CPUs prefetch better.
 *
 * More rows of A, in chunks: a chunk of B is read from memory with the first FEW rows as above, and then again from L2
 * with the other rows, a few at a time.
 *
 * More rows of A, in panels, if the caller says that they are faster, or if there are so few columns that the lines of
 * a chunk would share cache sets: while one panel is multiplied from L2, the next is prefetched in the order of memory.
 * A strip of a panel is converted to f32 once; sums of a few rows and STRIP vectors of columns stay in registers over
 * its depth.
 *
 * B stored as [n, k]: dot products of a few rows of B and a few of A at a time.
 */
#include "kernels/cpu/isa/gemm_skinny_simd.h"

#include "kernels/cpu/isa/load_store_rows.h"

enum {
    FEW = 4,              /* rows of A */
    AT_ONCE = 4,          /* rows of B that are added to sums at a time */
    FEW_SUMS = 64 * 1024, /* floats of C that they are added to: in the second-level cache */
    NEAR_SUMS = 6 * 1024, /* the same in the first-level cache, half of 48 KiB */
    SMALL = 256 * 1024,   /* bytes of B that the second-level cache has from one token to the next */
    SMALL_WIDTH = 8,      /* vectors of columns with sums in registers then */
    NEAR = 16384          /* bytes that are prefetched before they are multiplied */
};

/* By the number of registers. MANY rows of C stand side by side in a panel, then SOME, two and one of those that are
 * left. DOTS: rows of a transposed B, of which 16 registers hold three with one of four rows of A and their sums.
 * DOT_SUMS: columns that are stored together, for less than a vector is stored slowly. EVEN: rows are divided evenly,
 * and each part prefetches as much, rather than the first all of it. */
#if defined(__AVX512F__)
enum { MANY = 6, SOME = 4, DOT_ROWS = 4, DOTS = 4, DOT_SUMS = DOTS, EVEN = 0 };
#elif defined(__AVX2__)
enum { MANY = 2, SOME = 2, DOT_ROWS = 4, DOTS = 3, DOT_SUMS = 48, EVEN = 1 };
#else
enum { MANY = 2, SOME = 2, DOT_ROWS = 2, DOTS = 4, DOT_SUMS = DOTS, EVEN = 0 };
#endif

/* Access to B by its dtype: the bytes of n elements, the address of one, and vectors of them as floats. */
CLV_INLINE int64_t bytes_of(clv_dtype dtype, int64_t n)
{
    return n * (int64_t)vf_element_size(dtype);
}

CLV_INLINE const char *element(clv_dtype dtype, const void *b, int64_t e)
{
    return (const char *)b + bytes_of(dtype, e);
}

CLV_INLINE vf load_b(clv_dtype dtype, const char *b, int64_t e)
{
    return vf_load_dtype(dtype, element(dtype, b, e));
}

CLV_INLINE vf load_b_part(clv_dtype dtype, const char *b, int64_t e, int64_t n)
{
    return vf_load_part(dtype, element(dtype, b, e), n);
}

/* A product, and the columns [j, end) of C to compute. */
typedef struct part {
    const clv_gemm_args *g;
    const clv_gemm_a_rows *x;
    clv_gemm_accumulators own;
    clv_gemm_skinny_tuning way;
    int64_t j, end;
} part;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void *c_at(const clv_gemm_args *g, int64_t j)
{
    return (char *)g->c + (size_t)j * clv_dtype_size(g->c_dtype);
}

/* y [m, width], rows ldy apart: what the sums of C's columns from j on begin with. May be C itself. */
static void begin_sums(float *y, int64_t ldy, const clv_gemm_args *g, int64_t j, int64_t width)
{
    if (!g->accumulate)
        for (int64_t i = 0; i < g->m; i++)
            memset(y + i * ldy, 0, (size_t)width * sizeof *y);
    else if (y != c_at(g, j))
        rows_load(g->c_dtype, y, ldy, c_at(g, j), g->ldc, g->m, width, 1.0f);
}

static void end_sums(const float *y, int64_t ldy, const clv_gemm_args *g, int64_t j, int64_t width)
{
    rows_store(g->c_dtype, c_at(g, j), g->ldc, y, ldy, g->m, width, 1.0f);
}

/* ---- B [k, n], few rows of A ---- */

/* y[i, j] += sum of x[i, r] * b[r, j] over r < rows, for from <= j < to; far: what to prefetch for from. */
CLV_INLINE void add_span(clv_dtype dtype, int m, int rows, float *y, int64_t ldy, const clv_gemm_a_rows *x,
                         const char *b, int64_t ldb, int64_t from, int64_t to, const char *far)
{
    int64_t j = from;
    vf one[FEW][AT_ONCE];
    CLV_UNROLL for (int i = 0; i < m; i++) CLV_UNROLL for (int r = 0; r < rows; r++) one[i][r] =
        vf_set1(x->at[i * x->row + r * x->step]);
    for (; to - j >= VF_LANES; j += VF_LANES) {
        vf value[AT_ONCE];
        CLV_UNROLL for (int r = 0; r < rows; r++)
        {
            __builtin_prefetch(element(dtype, far, r * ldb + j - from), 0, 2);
            value[r] = load_b(dtype, b, r * ldb + j);
        }
        CLV_UNROLL for (int i = 0; i < m; i++)
        {
            vf sum = vf_load(y + i * ldy + j);
            CLV_UNROLL for (int r = 0; r < rows; r++) sum = vf_fma(one[i][r], value[r], sum);
            vf_store(y + i * ldy + j, sum);
        }
    }
    for (int i = 0; i < m && j < to; i++) {
        vf sum = vf_load_part(CLV_F32, y + i * ldy + j, to - j);
        CLV_UNROLL for (int r = 0; r < rows; r++) sum =
            vf_fma(one[i][r], load_b_part(dtype, b, r * ldb + j, to - j), sum);
        vf_store_part(CLV_F32, y + i * ldy + j, sum, to - j);
    }
}

/* Rows [p, p + rows) of B, `width` columns from j on, where at_once rows are read side by side. What comes NEAR bytes
 * later is in the same rows until column `turn`, and in later ones from there on. */
CLV_INLINE void add_rows(clv_dtype dtype, int m, int rows, int at_once, float *y, int64_t ldy, const clv_gemm_args *g,
                         const clv_gemm_a_rows *x, int64_t p, int64_t j, int64_t width)
{
    const char *b = element(dtype, g->b, p * g->ldb + j), *far = b, *farther = b;
    const clv_gemm_a_rows here = {.at = x->at + p * x->step, .row = x->row, .step = x->step};
    int64_t near = NEAR / bytes_of(dtype, at_once), rest = near % width / VF_LANES * VF_LANES;
    int64_t turn = (width - rest) / VF_LANES * VF_LANES, later = p + near / width * at_once;
    if (later + rows <= g->k)
        far = element(dtype, g->b, later * g->ldb + j + rest);
    if (later + at_once + rows <= g->k)
        farther = element(dtype, g->b, (later + at_once) * g->ldb + j);
    add_span(dtype, m, rows, y, ldy, &here, b, g->ldb, 0, turn, far);
    add_span(dtype, m, rows, y, ldy, &here, b, g->ldb, turn, width, farther);
}

/* Rows [p, end) of B. */
CLV_INLINE void add_all_rows(clv_dtype dtype, int m, int at_once, float *y, int64_t ldy, const clv_gemm_args *g,
                             const clv_gemm_a_rows *x, int64_t p, int64_t end, int64_t j, int64_t width)
{
    for (; end - p >= at_once; p += at_once)
        add_rows(dtype, m, at_once, at_once, y, ldy, g, x, p, j, width);
    for (; p < end; p++)
        add_rows(dtype, m, 1, at_once, y, ldy, g, x, p, j, width);
}

/* Columns [j, j + width vectors) of C: sums stay in registers. */
CLV_INLINE void small_strip(clv_dtype dtype, int m, int width, const clv_gemm_args *g, const clv_gemm_a_rows *x,
                            int64_t j)
{
    vf sum[FEW][SMALL_WIDTH];
    const char *b = element(dtype, g->b, j);
    CLV_UNROLL for (int i = 0; i < m; i++) CLV_UNROLL for (int v = 0; v < width; v++) sum[i][v] = vf_set1(0.0f);
    for (int64_t p = 0; p < g->k; p++, b = element(dtype, b, g->ldb))
        CLV_UNROLL for (int v = 0; v < width; v++)
        {
            vf value = load_b(dtype, b, v * VF_LANES);
            CLV_UNROLL for (int i = 0; i < m; i++) sum[i][v] =
                vf_fma(vf_set1(x->at[i * x->row + p * x->step]), value, sum[i][v]);
        }
    CLV_UNROLL for (int i = 0; i < m; i++) CLV_UNROLL for (int v = 0; v < width; v++)
        vf_store_dtype(g->c_dtype, c_at(g, i * g->ldc + j + v * VF_LANES), sum[i][v]);
}

/* All columns by such strips, the last of which may make some once more. */
CLV_INLINE void small_strips(clv_dtype dtype, int m, int width, const clv_gemm_args *g, const clv_gemm_a_rows *x,
                             int64_t j, int64_t end)
{
    for (; end - j >= width * VF_LANES; j += width * VF_LANES)
        small_strip(dtype, m, width, g, x, j);
    if (j < end)
        small_strip(dtype, m, width, g, x, end - width * VF_LANES);
}

/* Where B is so small that a cache has it: the same sums, without memory between them. False where it is not, or has no
 * vector of columns. */
CLV_INLINE bool small_few(clv_dtype dtype, int m, const clv_gemm_args *g, const clv_gemm_a_rows *x, int64_t j,
                          int64_t end)
{
    int64_t vectors = (end - j) / VF_LANES;
    if (g->accumulate || vectors == 0 || bytes_of(dtype, g->k * g->n) > SMALL)
        return false;
    if (m == 1 && vectors >= 8)
        small_strips(dtype, m, 8, g, x, j, end);
    else if (m <= 2 && vectors >= 4)
        small_strips(dtype, m, 4, g, x, j, end);
    else if (vectors >= 2)
        small_strips(dtype, m, 2, g, x, j, end);
    else
        small_strips(dtype, m, 1, g, x, j, end);
    return true;
}

/* Whether a row of B at a time is read best: whole rows, whose sums are in the first-level cache, where loading and
 * storing them for each costs less than memory. */
CLV_INLINE bool is_one_stream(clv_dtype dtype, int m, int64_t n, int64_t width)
{
    return width == n && m * width <= NEAR_SUMS && m <= (dtype == CLV_F32 ? FEW : FEW / 2);
}

/* Sums of f32 are in C, those of other dtypes in `own`. */
CLV_INLINE void plain_few(clv_dtype dtype, int m, const part *of)
{
    const clv_gemm_args *g = of->g;
    if (small_few(dtype, m, g, of->x, of->j, of->end))
        return;
    bool in_c = g->c_dtype == CLV_F32;
    int64_t most = least(FEW_SUMS, in_c ? FEW_SUMS : of->own.floats) / m / VF_LANES * VF_LANES;
    int64_t ldy = in_c ? g->ldc : most;
    for (int64_t j = of->j, width; j < of->end; j += width) {
        float *y = in_c ? c_at(g, j) : of->own.at;
        width = least(most, of->end - j);
        begin_sums(y, ldy, g, j, width);
        if (of->way.streams == 1 && is_one_stream(dtype, m, g->n, width))
            add_all_rows(dtype, m, 1, y, ldy, g, of->x, 0, g->k, j, width);
        else
            add_all_rows(dtype, m, AT_ONCE, y, ldy, g, of->x, 0, g->k, j, width);
        if (!in_c)
            end_sums(y, ldy, g, j, width);
    }
}

/* ---- B [k, n], more rows of A, in panels ---- */

enum {
    PANEL = 64 * 1024, /* bytes of B that are multiplied while as many come */
    DEPTH = 64,        /* most rows of a panel */
    SUMS = 8192,       /* floats of C that a panel is added to: in the first-level cache */
    STRIP = 4,         /* vectors of columns side by side */
    LINE = 64
};

/* The cache lines of the next panel, to prefetch. */
typedef struct ahead {
    const char *row;
    int64_t at, bytes, stride; /* next byte of the row, bytes of a row, and between rows */
    int64_t left;              /* lines */
    int64_t each;              /* lines that one step of a product prefetches */
} ahead;

CLV_INLINE void prefetch_some(ahead *a)
{
    for (int64_t i = 0; i < a->each && a->left > 0; i++, a->left--) {
        __builtin_prefetch(a->row + a->at, 0, 2);
        a->at += LINE;
        if (a->at >= a->bytes) {
            a->at = 0;
            a->row += a->stride;
        }
    }
}

/* Of B, [depth, width], at row p and column j. */
typedef struct panel {
    int64_t p, depth, j, width;
} panel;

CLV_INLINE ahead lines_of(clv_dtype dtype, const clv_gemm_args *g, const panel *next, int64_t steps)
{
    ahead a = {.row = element(dtype, g->b, next->p * g->ldb + next->j),
               .bytes = bytes_of(dtype, next->width),
               .stride = bytes_of(dtype, g->ldb)};
    a.left = (a.bytes + LINE - 1) / LINE * next->depth;
    a.each = (a.left + steps - 1) / steps;
    return a;
}

/* A strip in f32: out [depth, STRIP * VF_LANES], zeros after `columns`. */
CLV_INLINE void widen_strip(clv_dtype dtype, float *out, const char *b, int64_t ldb, int64_t depth, int64_t columns)
{
    for (int64_t p = 0; p < depth; p++, b = element(dtype, b, ldb), out += STRIP * VF_LANES)
        CLV_UNROLL for (int v = 0; v < STRIP; v++)
        {
            int64_t left = columns - v * VF_LANES;
            vf value = left >= VF_LANES ? load_b(dtype, b, v * VF_LANES)
                       : left > 0       ? load_b_part(dtype, b, v * VF_LANES, left)
                                        : vf_set1(0.0f);
            vf_store(out + v * VF_LANES, value);
        }
}

/* y[i, 0 .. STRIP * VF_LANES) += x[i, :] b, i < rows, over depth rows of b. */
CLV_INLINE void add_block(int rows, float *y, int64_t ldy, const clv_gemm_a_rows *x, const float *b, int64_t depth,
                          ahead *next)
{
    vf sum[MANY][STRIP];
    const float *at = x->at;
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < STRIP; v++) sum[i][v] =
        vf_load(y + i * ldy + v * VF_LANES);
    for (int64_t p = 0; p < depth; p++, at += x->step, b += STRIP * VF_LANES) {
        vf value[STRIP];
        prefetch_some(next);
        CLV_UNROLL for (int v = 0; v < STRIP; v++) value[v] = vf_load(b + v * VF_LANES);
        CLV_UNROLL for (int i = 0; i < rows; i++)
        {
            vf one = vf_set1(at[i * x->row]);
            CLV_UNROLL for (int v = 0; v < STRIP; v++) sum[i][v] = vf_fma(one, value[v], sum[i][v]);
        }
    }
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < STRIP; v++)
        vf_store(y + i * ldy + v * VF_LANES, sum[i][v]);
}

/* All m rows of one strip. */
CLV_INLINE void add_strip(float *y, int64_t ldy, int64_t m, clv_gemm_a_rows x, const float *b, int64_t depth,
                          ahead *next)
{
    while (m > 0) {
        int rows = m >= MANY ? MANY : m >= SOME ? SOME : m >= 2 ? 2 : 1;
        if (rows == MANY)
            add_block(MANY, y, ldy, &x, b, depth, next);
        else if (rows == SOME)
            add_block(SOME, y, ldy, &x, b, depth, next);
        else if (rows == 2)
            add_block(2, y, ldy, &x, b, depth, next);
        else
            add_block(1, y, ldy, &x, b, depth, next);
        m -= rows;
        y += rows * ldy;
        x.at += rows * x.row;
    }
}

static int64_t blocks_of(int64_t m)
{
    int64_t rest = m % MANY;
    return m / MANY + rest / SOME + rest % SOME / 2 + rest % SOME % 2;
}

CLV_INLINE void add_panel(clv_dtype dtype, float *y, int64_t ldy, const clv_gemm_args *g, clv_gemm_a_rows x,
                          const panel *now, const panel *then)
{
    enum { COLUMNS = STRIP * VF_LANES };
    float strip[DEPTH * COLUMNS];
    const char *b = element(dtype, g->b, now->p * g->ldb + now->j);
    int64_t strips = (now->width + COLUMNS - 1) / COLUMNS;
    ahead next = lines_of(dtype, g, then, strips * blocks_of(g->m) * now->depth);
    x.at += now->p * x.step;
    for (int64_t j = 0; j < now->width; j += COLUMNS) {
        if (now->width - j >= COLUMNS)
            widen_strip(dtype, strip, element(dtype, b, j), g->ldb, now->depth, COLUMNS);
        else
            widen_strip(dtype, strip, element(dtype, b, j), g->ldb, now->depth, now->width - j);
        add_strip(y + j, ldy, g->m, x, strip, now->depth, &next);
    }
}

/* The panel after one: below it, or at the top of the next columns; of width 0 after the last. */
static panel following(const panel *now, const panel *whole, int64_t k, int64_t end)
{
    panel next = {.p = now->p + now->depth, .j = now->j, .width = now->width};
    if (next.p >= k) {
        next.p = 0;
        next.j += now->width;
        next.width = least(whole->width, end - next.j);
    }
    next.depth = next.width > 0 ? least(whole->depth, k - next.p) : 0;
    return next;
}

CLV_INLINE void by_panels(clv_dtype dtype, const part *of)
{
    const clv_gemm_args *g = of->g;
    float y[SUMS];
    int64_t strip = STRIP * VF_LANES, ldy = SUMS / g->m / strip * strip, width = least(ldy, of->end - of->j);
    const panel whole = {
        .depth = least(g->k, least(DEPTH, PANEL / bytes_of(dtype, width) + 1)), .j = of->j, .width = width};
    panel now = whole;
    if (bytes_of(dtype, width * g->k) > PANEL) { /* smaller ones are in a cache, or not worth it */
        ahead first = lines_of(dtype, g, &now, 1);
        prefetch_some(&first);
    }
    while (now.width > 0) {
        panel next = following(&now, &whole, g->k, of->end);
        if (now.p == 0)
            begin_sums(y, ldy, g, now.j, now.width);
        add_panel(dtype, y, ldy, g, *of->x, &now, &next);
        if (now.p + now.depth == g->k)
            end_sums(y, ldy, g, now.j, now.width);
        now = next;
    }
}

/* ---- B [k, n], more rows of A, in chunks ---- */

enum {
    CHUNK = 128 * 1024,     /* bytes of B that stay in the second-level cache */
    CHUNK_SUMS = 16 * 1024, /* floats of C next to them */
    NEAR_ROWS = 6,          /* rows of C side by side, over as many vectors as registers hold with them */
    NEAR_VECTORS = 4
};

/* Rows [p, end) and columns [j, j + width) of B. */
typedef struct chunk {
    int64_t p, end, j, width;
} chunk;

/* y[i, :] += x[i, :] b, i < rows, over depth rows of b; columns: as many as the vectors hold, or fewer where there is
 * but one vector. */
CLV_INLINE void add_near_block(clv_dtype dtype, int rows, int vectors, float *y, int64_t ldy, const clv_gemm_a_rows *x,
                               const char *b, int64_t ldb, int64_t depth, int64_t columns)
{
    const bool whole = columns == vectors * VF_LANES;
    const float *at = x->at;
    vf sum[NEAR_ROWS][NEAR_VECTORS];
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
        whole ? vf_load(y + i * ldy + v * VF_LANES) : vf_load_part(CLV_F32, y + i * ldy, columns);
    for (int64_t p = 0; p < depth; p++, at += x->step, b = element(dtype, b, ldb)) {
        vf value[NEAR_VECTORS];
        CLV_UNROLL for (int v = 0; v < vectors; v++) value[v] =
            whole ? load_b(dtype, b, v * VF_LANES) : load_b_part(dtype, b, 0, columns);
        CLV_UNROLL for (int i = 0; i < rows; i++)
        {
            vf one = vf_set1(at[i * x->row]);
            CLV_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma(one, value[v], sum[i][v]);
        }
    }
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < vectors; v++)
    {
        if (whole)
            vf_store(y + i * ldy + v * VF_LANES, sum[i][v]);
        else
            vf_store_part(CLV_F32, y + i * ldy, sum[i][v], columns);
    }
}

/* Adds the products of `rows` rows of A with a chunk that was read before. */
CLV_INLINE void add_near(clv_dtype dtype, int rows, int vectors, float *y, int64_t ldy, const clv_gemm_args *g,
                         const clv_gemm_a_rows *x, const chunk *c)
{
    const clv_gemm_a_rows here = {.at = x->at + c->p * x->step, .row = x->row, .step = x->step};
    const char *b = element(dtype, g->b, c->p * g->ldb + c->j);
    int64_t depth = c->end - c->p, columns = vectors * VF_LANES, j = 0;
    for (; c->width - j >= columns; j += columns)
        add_near_block(dtype, rows, vectors, y + j, ldy, &here, element(dtype, b, j), g->ldb, depth, columns);
    for (; c->width - j >= VF_LANES; j += VF_LANES)
        add_near_block(dtype, rows, 1, y + j, ldy, &here, element(dtype, b, j), g->ldb, depth, VF_LANES);
    if (j < c->width)
        add_near_block(dtype, rows, 1, y + j, ldy, &here, element(dtype, b, j), g->ldb, depth, c->width - j);
}

/* Multiplies the remaining m >= 2 rows of A with a chunk, in parts of nearly equal size, at least 2. */
CLV_INLINE void add_others(clv_dtype dtype, float *y, int64_t ldy, const clv_gemm_args *g, clv_gemm_a_rows x, int64_t m,
                           const chunk *c)
{
    while (m > 0) {
        int64_t times = (m + NEAR_ROWS - 1) / NEAR_ROWS, rows = (m + times - 1) / times;
        if (rows == 2)
            add_near(dtype, 2, 4, y, ldy, g, &x, c);
        else if (rows == 3)
            add_near(dtype, 3, 3, y, ldy, g, &x, c);
        else if (rows == 4)
            add_near(dtype, 4, 3, y, ldy, g, &x, c);
        else if (rows == 5)
            add_near(dtype, 5, 2, y, ldy, g, &x, c);
        else
            add_near(dtype, NEAR_ROWS, 2, y, ldy, g, &x, c);
        m -= rows;
        y += rows * ldy;
        x.at += rows * x.row;
    }
}

CLV_INLINE void add_chunk(clv_dtype dtype, float *y, int64_t ldy, const clv_gemm_args *g, clv_gemm_a_rows x,
                          const chunk *c)
{
    int first = g->m > FEW + 1 ? FEW : FEW - 1; /* at least two remain */
    if (first == FEW)
        add_all_rows(dtype, FEW, AT_ONCE, y, ldy, g, &x, c->p, c->end, c->j, c->width);
    else
        add_all_rows(dtype, FEW - 1, AT_ONCE, y, ldy, g, &x, c->p, c->end, c->j, c->width);
    x.at += first * x.row;
    add_others(dtype, y + first * ldy, ldy, g, x, g->m - first, c);
}

/* m > FEW. Where C is of f32, sums are in C, else in `own`. */
CLV_INLINE void by_chunks(clv_dtype dtype, const part *of)
{
    const clv_gemm_args *g = of->g;
    bool in_c = g->c_dtype == CLV_F32;
    int64_t most = least(CHUNK_SUMS, in_c ? CHUNK_SUMS : of->own.floats) / g->m / VF_LANES * VF_LANES;
    int64_t ldy = in_c ? g->ldc : most;
    for (chunk c = {.j = of->j}; c.j < of->end; c.j += c.width) {
        float *y = in_c ? c_at(g, c.j) : of->own.at;
        c.width = least(most, of->end - c.j);
        int64_t depth = (CHUNK / bytes_of(dtype, c.width) + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
        begin_sums(y, ldy, g, c.j, c.width);
        for (c.p = 0; c.p < g->k; c.p = c.end) {
            c.end = least(g->k, c.p + depth);
            add_chunk(dtype, y, ldy, g, *of->x, &c);
        }
        if (!in_c)
            end_sums(y, ldy, g, c.j, c.width);
    }
}

/* ---- B [n, k] ---- */

/* y[r, d] += x[r, :] . b[d, :], r < rows <= DOT_ROWS, d < dots <= DOTS; far: bytes from b to what is prefetched,
 * `pace` bytes of each row for a vector, or 0. */
CLV_INLINE void add_dots(clv_dtype dtype, int rows, int dots, float *y, int64_t ldy, const clv_gemm_a_rows *x,
                         const char *b, int64_t ldb, int64_t k, int64_t far, int64_t pace)
{
    vf sum[DOT_ROWS][DOTS], value[DOTS];
    int64_t p = 0;
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int d = 0; d < dots; d++) sum[r][d] = vf_set1(0.0f);
    for (; k - p >= VF_LANES; p += VF_LANES) {
        CLV_UNROLL for (int d = 0; d < dots; d++)
        {
            const char *row = element(dtype, b, d * ldb);
            if (far)
                __builtin_prefetch(row + far + p / VF_LANES * pace);
            value[d] = load_b(dtype, row, p);
        }
        CLV_UNROLL for (int r = 0; r < rows; r++)
        {
            vf one = vf_load(x->at + r * x->row + p);
            CLV_UNROLL for (int d = 0; d < dots; d++) sum[r][d] = vf_fma(one, value[d], sum[r][d]);
        }
    }
    if (p < k) {
        CLV_UNROLL for (int d = 0; d < dots; d++) value[d] = load_b_part(dtype, element(dtype, b, d * ldb), p, k - p);
        CLV_UNROLL for (int r = 0; r < rows; r++)
        {
            vf one = vf_load_part(CLV_F32, x->at + r * x->row + p, k - p);
            CLV_UNROLL for (int d = 0; d < dots; d++) sum[r][d] = vf_fma(one, value[d], sum[r][d]);
        }
    }
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int d = 0; d < dots; d++) y[r * ldy + d] +=
        vf_sum(sum[r][d]);
}

/* Number of the m rows to take next. */
static int dot_rows(int64_t m)
{
    int64_t times = (m + DOT_ROWS - 1) / DOT_ROWS;
    if (EVEN)
        return (int)((m + times - 1) / times);
    return m >= DOT_ROWS ? DOT_ROWS : m >= 2 ? 2 : 1;
}

/* All m rows, with `dots` rows of B. */
CLV_INLINE void add_dots_of_all(clv_dtype dtype, int dots, float *y, const clv_gemm_args *g, clv_gemm_a_rows x,
                                const char *b, int64_t far)
{
    int64_t m = g->m, parts = EVEN ? (m + DOT_ROWS - 1) / DOT_ROWS : 1;
    int64_t pace = bytes_of(dtype, VF_LANES) / parts;
    while (m > 0) {
        int rows = dot_rows(m);
        if (rows == DOT_ROWS)
            add_dots(dtype, DOT_ROWS, dots, y, DOT_SUMS, &x, b, g->ldb, g->k, far, pace);
        else if (EVEN && rows == 3)
            add_dots(dtype, 3, dots, y, DOT_SUMS, &x, b, g->ldb, g->k, far, pace);
        else if (rows == 2)
            add_dots(dtype, 2, dots, y, DOT_SUMS, &x, b, g->ldb, g->k, far, pace);
        else
            add_dots(dtype, 1, dots, y, DOT_SUMS, &x, b, g->ldb, g->k, far, pace);
        far = EVEN && far ? far + g->k / VF_LANES * pace : 0;
        m -= rows;
        y += rows * DOT_SUMS;
        x.at += rows * x.row;
    }
}

/* Columns [j, j + n) of C, n <= DOT_SUMS. */
CLV_INLINE void dot_columns(clv_dtype dtype, const clv_gemm_args *g, const clv_gemm_a_rows *x, int64_t j, int64_t n)
{
    float y[CLV_GEMM_SKINNY_ROWS * DOT_SUMS];
    int64_t d = 0;
    if (g->accumulate)
        rows_load(g->c_dtype, y, DOT_SUMS, c_at(g, j), g->ldc, g->m, n, 1.0f);
    else
        memset(y, 0, (size_t)g->m * DOT_SUMS * sizeof *y);
    for (; n - d >= DOTS; d += DOTS) {
        int64_t far = j + d + 2 * DOTS <= g->n ? bytes_of(dtype, DOTS * g->ldb) : 0;
        add_dots_of_all(dtype, DOTS, y + d, g, *x, element(dtype, g->b, (j + d) * g->ldb), far);
    }
    for (; d < n; d++)
        add_dots_of_all(dtype, 1, y + d, g, *x, element(dtype, g->b, (j + d) * g->ldb), 0);
    rows_store(g->c_dtype, c_at(g, j), g->ldc, y, DOT_SUMS, g->m, n, 1.0f);
}

CLV_INLINE void transposed(clv_dtype dtype, const part *of)
{
    for (int64_t j = of->j; j < of->end; j += DOT_SUMS)
        dot_columns(dtype, of->g, of->x, j, least(DOT_SUMS, of->end - j));
}

/* ---- each way with each dtype */

typedef void multiply_function(const part *of);

/* Each small number of rows has a variant of its own: BY_FEW + m - 1. */
enum { BY_FEW, BY_PANELS = BY_FEW + FEW, BY_CHUNKS, TRANSPOSED, WAYS };

#define APART(name, call)                                                                                              \
    CLV_NOINLINE void name(const part *of)                                                                             \
    {                                                                                                                  \
        call;                                                                                                          \
    }

#define WAYS_OF(dtype)                                                                                                 \
    APART(one_##dtype, plain_few(CLV_##dtype, 1, of))                                                                  \
    APART(two_##dtype, plain_few(CLV_##dtype, 2, of))                                                                  \
    APART(three_##dtype, plain_few(CLV_##dtype, 3, of))                                                                \
    APART(four_##dtype, plain_few(CLV_##dtype, 4, of))                                                                 \
    APART(panels_##dtype, by_panels(CLV_##dtype, of))                                                                  \
    APART(chunks_##dtype, by_chunks(CLV_##dtype, of))                                                                  \
    APART(transposed_##dtype, transposed(CLV_##dtype, of))                                                             \
    static multiply_function *const ways_of_##dtype[WAYS] = {                                                          \
        [BY_FEW] = one_##dtype,           [BY_FEW + 1] = two_##dtype,   [BY_FEW + 2] = three_##dtype,                  \
        [BY_FEW + 3] = four_##dtype,      [BY_PANELS] = panels_##dtype, [BY_CHUNKS] = chunks_##dtype,                  \
        [TRANSPOSED] = transposed_##dtype};

WAYS_OF(F32)
WAYS_OF(BF16)
WAYS_OF(F16)

_Static_assert(FEW == 4, "a function for each");

void CLV_ISA_NAME(clv_gemm_skinny_columns)(const clv_gemm_args *g, const clv_gemm_a_rows *x, clv_gemm_accumulators own,
                                           clv_gemm_skinny_tuning way, int64_t j, int64_t end)
{
    const part of = {g, x, own, way, j, end};
    multiply_function *const *ways = g->dtype == CLV_F32    ? ways_of_F32
                                     : g->dtype == CLV_BF16 ? ways_of_BF16
                                                            : ways_of_F16;
    const int is = g->trans_b              ? TRANSPOSED
                   : g->m <= FEW           ? BY_FEW + (int)g->m - 1
                   : end - j <= way.panels ? BY_PANELS
                                           : BY_CHUNKS;
    ways[is](&of);
}

/* ---- conversion of rows ---- */

void CLV_ISA_NAME(clv_gemm_widen)(clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows,
                                  int64_t cols)
{
    rows_load(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}

void CLV_ISA_NAME(clv_gemm_narrow)(clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows,
                                   int64_t cols)
{
    rows_store(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}
