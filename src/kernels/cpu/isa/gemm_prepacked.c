/* gemm_prepacked.c - skinny GEMM with B prepacked in panels of 16 columns.
 *
 * Panels are consecutive in memory, so B is a single stream, read in order. A part of a panel that fits in L1 is
 * multiplied by a few rows of A at a time, whose sums are in registers; meanwhile the next part is prefetched, one line
 * for each line's worth of arithmetic, so that neither waits for the other.
 */
#include "kernels/cpu/isa/gemm_skinny_simd.h"

#include "kernels/cpu/isa/load_store_rows.h"

enum {
    WIDTH = CLV_PANEL_COLUMNS,
    VECTORS = WIDTH / VF_LANES,
    PART = 12 * 1024, /* bytes of a panel */
    LINE = 64
};

/* By the number of registers: rows of A side by side, and panels, of which few rows take several, or their sums would
 * wait for each other. */
#if defined(__AVX512F__)
enum { ROWS = 8, PANELS = 4 };
#elif defined(__AVX2__)
enum { ROWS = 6, PANELS = 2 };
#else
enum { ROWS = 2, PANELS = 1 };
#endif

enum { SUMS = PANELS * WIDTH /* floats of a row of sums */ };

/* sums[i, :] += x[i, :] b over k rows of panels that are `apart` bytes from one to the next; `pace` bytes of each panel
 * are prefetched from `far` on for a row of it. */
typedef struct block {
    float *sums;
    clv_gemm_a_rows x;
    const char *b, *far;
    int64_t k, apart, pace;
} block;

typedef void block_function(const block *of);

CLV_INLINE void add_block(clv_dtype dtype, int rows, int panels, const block *of)
{
    const size_t row = WIDTH * vf_element_size(dtype);
    const int64_t apart = of->apart, pace = of->pace, step = of->x.step, next = of->x.row;
    const char *b = of->b, *far = of->far;
    const float *at = of->x.at;
    float *sums = of->sums;
    vf sum[ROWS][PANELS * VECTORS];
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < panels * VECTORS; v++) sum[i][v] =
        vf_load(sums + i * SUMS + v * VF_LANES);
    for (int64_t p = 0; p < of->k; p++, at += step, b += row, far += pace) {
        vf value[PANELS * VECTORS];
        CLV_UNROLL for (int q = 0; q < panels; q++)
        {
            __builtin_prefetch(far + q * apart, 0, 2);
            CLV_UNROLL for (int v = 0; v < VECTORS; v++) value[q * VECTORS + v] =
                vf_load_dtype(dtype, b + q * apart + (size_t)(v * VF_LANES) * vf_element_size(dtype));
        }
        CLV_UNROLL for (int i = 0; i < rows; i++)
        {
            vf one = vf_set1(at[i * next]);
            CLV_UNROLL for (int v = 0; v < panels * VECTORS; v++) sum[i][v] = vf_fma(one, value[v], sum[i][v]);
        }
    }
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < panels * VECTORS; v++)
        vf_store(sums + i * SUMS + v * VF_LANES, sum[i][v]);
}

/* ---- each number of rows and panels with each dtype: functions of their own, so that sums stay in registers */

#define BLOCK(dtype, rows, panels)                                                                                     \
    CLV_NOINLINE void block_##dtype##_##rows##_##panels(const block *of)                                               \
    {                                                                                                                  \
        add_block(CLV_##dtype, rows, panels, of);                                                                      \
    }

#define TWO(_, dtype, panels) _(dtype, 1, panels) _(dtype, 2, panels)
#define SIX(_, dtype, panels)                                                                                          \
    TWO(_, dtype, panels) _(dtype, 3, panels) _(dtype, 4, panels) _(dtype, 5, panels) _(dtype, 6, panels)
#define EIGHT(_, dtype, panels) SIX(_, dtype, panels) _(dtype, 7, panels) _(dtype, 8, panels)

#if defined(__AVX512F__)
#define EACH(_, dtype) EIGHT(_, dtype, 1) EIGHT(_, dtype, 2) TWO(_, dtype, 4)
#elif defined(__AVX2__)
#define EACH(_, dtype) SIX(_, dtype, 1) TWO(_, dtype, 2)
#else
#define EACH(_, dtype) TWO(_, dtype, 1)
#endif

#define ENTRY(dtype, rows, panels) [rows][panels] = block_##dtype##_##rows##_##panels,
#define BLOCKS_OF(dtype)                                                                                               \
    EACH(BLOCK, dtype)                                                                                                 \
    static block_function *const blocks_of_##dtype[ROWS + 1][PANELS + 1] = {EACH(ENTRY, dtype)};

BLOCKS_OF(F32)
BLOCKS_OF(BF16)
BLOCKS_OF(F16)

static block_function *block_for(clv_dtype dtype, int64_t rows, int64_t panels)
{
    block_function *const(*blocks)[PANELS + 1] = dtype == CLV_F32    ? blocks_of_F32
                                                 : dtype == CLV_BF16 ? blocks_of_BF16
                                                                     : blocks_of_F16;
    return blocks[rows][panels];
}

/* How many panels are multiplied side by side, of those that are left. */
static int64_t panels_for(int64_t m, int64_t left)
{
    if (m <= 2 && left >= PANELS)
        return PANELS;
    return PANELS == 4 && left >= 2 ? 2 : 1;
}

/* ---- a product */

/* Part [p, p + k) of panels that begin at b, with all rows of x. */
typedef struct part {
    const char *b, *far;
    int64_t p, k, panels, apart, row_bytes;
} part;

static void add_part(clv_dtype dtype, float *sums, const clv_gemm_a_rows *x, int64_t m, const part *of)
{
    const int64_t groups = (m + ROWS - 1) / ROWS, pace = of->row_bytes / groups;
    block now = {.sums = sums,
                 .x = {x->at + of->p * x->step, x->row, x->step},
                 .b = of->b + of->p * of->row_bytes,
                 .far = of->far,
                 .k = of->k,
                 .apart = of->apart,
                 .pace = pace};
    for (int64_t i = 0; i < m;) {
        const int64_t left = (m - i + ROWS - 1) / ROWS, rows = (m - i + left - 1) / left;
        block_for(dtype, rows, of->panels)(&now);
        i += rows;
        now.sums += rows * SUMS;
        now.x.at += rows * x->row;
        now.far += of->k * pace;
    }
}

/* All of k. `then`: the panels that come next, or these. */
static void add_panels(const clv_gemm_args *g, float *sums, const clv_gemm_a_rows *x, const char *b, const char *then,
                       int64_t panels)
{
    const int64_t row_bytes = WIDTH * (int64_t)vf_element_size(g->dtype), parts = (g->k * row_bytes + PART - 1) / PART;
    part now = {.b = b, .panels = panels, .apart = g->k * row_bytes, .row_bytes = row_bytes};
    for (int64_t t = 0; t < parts; t++, now.p += now.k) {
        const int64_t end = g->k * (t + 1) / parts;
        now.k = end - now.p;
        now.far = t + 1 < parts ? b + end * row_bytes : then;
        add_part(g->dtype, sums, x, g->m, &now);
    }
}

void CLV_ISA_NAME(clv_gemm_packed)(const clv_gemm_args *g, const clv_gemm_a_rows *x, int64_t j, int64_t end)
{
    float sums[CLV_GEMM_SKINNY_ROWS * SUMS] __attribute__((aligned(LINE)));
    for (int64_t width; j < end; j += width) {
        const int64_t panels = panels_for(g->m, (end - j) / WIDTH);
        const char *b = (const char *)g->b + (size_t)(j * g->k) * vf_element_size(g->dtype);
        void *c = (char *)g->c + (size_t)j * clv_dtype_size(g->c_dtype);
        width = panels * WIDTH;
        if (g->accumulate)
            rows_load(g->c_dtype, sums, SUMS, c, g->ldc, g->m, width, 1.0f);
        else
            memset(sums, 0, (size_t)g->m * SUMS * sizeof *sums);
        add_panels(g, sums, x, b, j + width < g->n ? b + (size_t)(width * g->k) * vf_element_size(g->dtype) : b,
                   panels);
        rows_store(g->c_dtype, c, g->ldc, sums, SUMS, g->m, width, 1.0f);
    }
}
