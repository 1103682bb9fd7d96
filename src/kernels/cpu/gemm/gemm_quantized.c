/* gemm_quantized.c - block quantization (Q8_0, Q4_0) and quantized GEMM: integer dots or dequantized panels. */
#include "kernels/cpu/gemm/gemm_quantized.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa/gemm_skinny_simd.h"
#include "kernels/cpu/isa/gemm_quantized_simd.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/parallel_tasks.h"
#include "tensor/float16.h"

enum {
    BLOCK = CLV_QUANT_BLOCK,
    HALF = BLOCK / 2,
    ALIGN = 64,
    WEIGHTS_AT_ONCE = 16,  /* rows of weights that a thread multiplies all rows of x with before it goes on */
    PANEL_ELEMS = 1 << 20, /* of a panel, where ... */
    PANEL_LEAST = 64       /* ... it has no fewer rows of weights than these, and a multiple of them */
};

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* ---- between floats and blocks ---- */

/* The first element of largest magnitude; what is NaN counts as largest. */
static float extreme_of(const float *x)
{
    uint32_t most = 0;
    int at = 0;
    for (int i = 0; i < BLOCK; i++) {
        uint32_t u = clv_bits_of_f32(x[i]) & 0x7fffffffu;
        if (u > most) {
            most = u;
            at = i;
        }
    }
    return x[at];
}

/* In f32, halves away from 0. */
static uint8_t round_q8(float scaled)
{
    float size = fabsf(scaled);
    int whole = (int)size;
    whole += size - (float)whole >= 0.5f;
    return (uint8_t)(scaled < 0 ? 128 - whole : 128 + whole);
}

/* In f32, with the product rounded first: not an FMA (contraction is off). */
static uint8_t round_q4(float x, float by)
{
    return (uint8_t)clv_min_i64(15, (int64_t)(x * by + 8.5f));
}

static void quantize_block(clv_quant how, uint8_t *ints, uint16_t *scale, const float *x)
{
    const float extreme = extreme_of(x);
    const float d = how == CLV_QUANT_Q8 ? fabsf(extreme) / 127 : extreme / -8;
    float by = d != 0 ? 1 / d : 0;
    if (!(fabsf(by) <= FLT_MAX) || !(fabsf(d) <= FLT_MAX)) /* nothing can be divided by that */
        by = 0;
    if (scale)
        *scale = clv_f16_of_f32(d);
    for (int i = 0; ints && how == CLV_QUANT_Q8 && i < BLOCK; i++)
        ints[i] = by == 0 ? 128 : round_q8(x[i] * by);
    for (int i = 0; ints && how == CLV_QUANT_Q4 && i < HALF; i++)
        ints[i] = by == 0 ? 0x88 : (uint8_t)(round_q4(x[i], by) | round_q4(x[HALF + i], by) << 4);
}

void clv_quantize(clv_quant how, uint8_t *ints, uint16_t *scales, const float *x, int64_t blocks)
{
    for (int64_t b = 0; b < blocks; b++)
        quantize_block(how, ints ? ints + b * clv_quant_block_bytes(how) : NULL, scales ? scales + b : NULL,
                       x + b * BLOCK);
}

void clv_dequantize(clv_quant how, float *x, const uint8_t *ints, const uint16_t *scales, int64_t blocks)
{
    CLV_ISA_SELECT(clv_dequantize_rows)(how, CLV_F32, x, ints, scales, 1, blocks);
}

/* ---- few rows: integers ---- */

static _Atomic int vnni = -1; /* not asked yet */

static bool use_vnni(void)
{
    int known = atomic_load_explicit(&vnni, memory_order_relaxed);
    if (known < 0) {
        known = clv_cpu_has_avx512_vnni();
        atomic_store_explicit(&vnni, known, memory_order_relaxed);
    }
    return known && clv_cpu_isa() >= CLV_ISA_AVX512;
}

void clv_quant_use_vnni_for_test(bool use)
{
    atomic_store_explicit(&vnni, use && clv_cpu_has_avx512_vnni(), memory_order_relaxed);
}

/* Bytes of one row of x as integers, and in f32. */
static size_t row_bytes(int64_t blocks)
{
    int64_t ints = round_up(blocks, CLV_QUANT_GROUP) * BLOCK, scales = round_up(blocks, CLV_QUANT_SCALES);
    return (size_t)round_up(2 * ints + ints + scales * (int64_t)sizeof(float), ALIGN);
}

static size_t wide_bytes(int64_t blocks)
{
    return (size_t)round_up(blocks * BLOCK * (int64_t)sizeof(float), ALIGN);
}

/* Offsets take 4 bytes for 4 elements of q8 or 8 of q4. */
static clv_quant_row row_at(char *at, int64_t blocks)
{
    int64_t ints = round_up(blocks, CLV_QUANT_GROUP) * BLOCK;
    return (clv_quant_row){.hi = (int8_t *)at,
                           .lo = (int8_t *)at + ints,
                           .offset = (int32_t *)(at + 2 * ints),
                           .scale = (float *)(at + 3 * ints)};
}

static void fill_rows(clv_quant_row *rows, const clv_gemm_quantized_args *a)
{
    const size_t row = (size_t)(a->blocks * BLOCK) * clv_dtype_size(a->dtype);
    float *wide = a->workspace;
    char *next = (char *)a->workspace + wide_bytes(a->blocks);
    for (int64_t r = 0; r < a->m; r++, next += row_bytes(a->blocks)) {
        const char *x = (const char *)a->x + (size_t)r * row;
        rows[r] = row_at(next, a->blocks);
        if (a->dtype != CLV_F32)
            CLV_ISA_SELECT(clv_gemm_widen)
        (a->dtype, wide, a->blocks * BLOCK, x, a->blocks * BLOCK, 1, a->blocks * BLOCK);
        CLV_ISA_SELECT(clv_quant_fill_row)(a->how, &rows[r], a->dtype == CLV_F32 ? (const float *)x : wide, a->blocks);
    }
}

/* A product with few rows of x, split into tasks of rows of weights. */
typedef struct skinny {
    const clv_gemm_quantized_args *a;
    clv_quant_row rows[CLV_QUANT_SKINNY_ROWS];
    int streams;
    bool has_vnni;
    int tasks;
} skinny;

/* Products of rows [j, j + n) of weights with all rows of x. */
static void skinny_columns(const skinny *f, int64_t j, int64_t n)
{
    const clv_gemm_quantized_args *a = f->a;
    float y[CLV_QUANT_ROWS][WEIGHTS_AT_ONCE];
    for (int64_t r = 0; r < a->m; r += CLV_QUANT_ROWS) {
        int rows = (int)clv_min_i64(CLV_QUANT_ROWS, a->m - r);
        CLV_ISA_SELECT(clv_quant_dots)
        (a->how, y[0], WEIGHTS_AT_ONCE, f->rows + r, rows, a->ints + j * a->blocks * clv_quant_block_bytes(a->how),
         a->scales + j * a->blocks, n, f->streams, a->blocks, f->has_vnni);
        char *to = (char *)a->y + (size_t)(r * a->n + j) * clv_dtype_size(a->dtype);
        CLV_ISA_SELECT(clv_gemm_narrow)(a->dtype, to, a->n, y[0], WEIGHTS_AT_ONCE, rows, n);
    }
}

static void run_task(void *arg, int task, int who)
{
    const skinny *f = arg;
    const int64_t end = clv_task_begin(f->a->n, WEIGHTS_AT_ONCE, f->tasks, task + 1);
    for (int64_t j = clv_task_begin(f->a->n, WEIGHTS_AT_ONCE, f->tasks, task); j < end; j += WEIGHTS_AT_ONCE)
        skinny_columns(f, j, clv_min_i64(WEIGHTS_AT_ONCE, end - j));
}

static void run_skinny(const clv_gemm_quantized_args *a)
{
    const clv_tuning *tuning = clv_cpu_tuning();
    const int threads = clv_threads_max();
    skinny f = {.a = a,
                .streams = a->how == CLV_QUANT_Q8 ? tuning->q8_streams : tuning->q4_streams,
                .has_vnni = use_vnni(),
                .tasks = clv_streaming_task_count(threads, a->n, WEIGHTS_AT_ONCE,
                                                  a->n * a->blocks * clv_quant_block_bytes(a->how))};
    fill_rows(f.rows, a);
    clv_run_tasks(a->work, threads, run_task, &f, f.tasks);
}

/* ---- many rows: panels of weights ---- */

/* Elements of a panel of weights. */
static int64_t panel_elems(const clv_gemm_quantized_args *a)
{
    int64_t k = a->blocks * BLOCK;
    return clv_min_i64(a->n * k, clv_max_i64(PANEL_ELEMS, PANEL_LEAST * k));
}

/* Of the panel at the workspace's beginning. */
static clv_gemm_args panel_product(const clv_gemm_quantized_args *a)
{
    return (clv_gemm_args){.a = a->x,
                           .b = a->workspace,
                           .m = a->m,
                           .n = a->n, /* at most */
                           .k = a->blocks * BLOCK,
                           .lda = a->blocks * BLOCK,
                           .ldb = a->blocks * BLOCK,
                           .ldc = a->n,
                           .trans_b = true,
                           .batch = 1,
                           .dtype = a->dtype,
                           .c_dtype = a->dtype};
}

static size_t panel_bytes(const clv_gemm_quantized_args *a)
{
    return (size_t)round_up(panel_elems(a) * (int64_t)clv_dtype_size(a->dtype), ALIGN);
}

static void fill_panel(const clv_gemm_quantized_args *a, int64_t j, int64_t n)
{
    const int64_t blocks = a->blocks;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        CLV_ISA_SELECT(clv_dequantize_rows)
    (a->how, a->dtype, (char *)a->workspace + (size_t)(i * blocks * BLOCK) * clv_dtype_size(a->dtype),
     a->ints + (j + i) * blocks * clv_quant_block_bytes(a->how), a->scales + (j + i) * blocks, 1, blocks);
}

/* As few panels as possible, of equal size. */
static int64_t panel_rows(const clv_gemm_quantized_args *a)
{
    const int64_t most = clv_max_i64(PANEL_ELEMS / (a->blocks * BLOCK) / PANEL_LEAST, 1) * PANEL_LEAST;
    return clv_equal_chunk_size(a->n, most, PANEL_LEAST);
}

static clv_status run_panels(const clv_gemm_quantized_args *a, clv_error *err)
{
    clv_gemm_args g = panel_product(a);
    const int64_t rows = panel_rows(a);
    g.workspace = (char *)a->workspace + panel_bytes(a);
    g.work = a->work;
    for (int64_t j = 0; j < a->n; j += rows) {
        g.n = clv_min_i64(rows, a->n - j);
        g.c = (char *)a->y + (size_t)j * clv_dtype_size(a->dtype);
        fill_panel(a, j, g.n);
        CLV_TRY(clv_gemm(&g, err));
    }
    return CLV_OK;
}

/* ---- f64 ---- */

static double reference_element(const clv_gemm_quantized_args *a, const double *x, int64_t j)
{
    double sum = 0;
    for (int64_t b = 0; b < a->blocks; b++) {
        const uint8_t *u = a->ints + (j * a->blocks + b) * clv_quant_block_bytes(a->how);
        double d = clv_f32_of_f16(a->scales[j * a->blocks + b]);
        for (int i = 0; i < BLOCK; i++) {
            int value = a->how == CLV_QUANT_Q8 ? u[i] - 128 : (i < HALF ? u[i] & 15 : u[i - HALF] >> 4) - 8;
            sum += x[b * BLOCK + i] * (d * value);
        }
    }
    return sum;
}

static void reference(const clv_gemm_quantized_args *a)
{
    const double *x = a->x;
    double *y = a->y;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < a->n; j++)
        for (int64_t r = 0; r < a->m; r++)
            y[r * a->n + j] = reference_element(a, x + r * a->blocks * BLOCK, j);
}

/* ---- the front ---- */

size_t clv_gemm_quantized_workspace(const clv_gemm_quantized_args *a)
{
    if (a->dtype == CLV_F64)
        return 0;
    if (a->global_m <= CLV_QUANT_SKINNY_ROWS)
        return wide_bytes(a->blocks) + (size_t)a->m * row_bytes(a->blocks);
    clv_gemm_args g = panel_product(a);
    return panel_bytes(a) + clv_gemm_workspace(&g);
}

clv_status clv_gemm_quantized(const clv_gemm_quantized_args *a, clv_error *err)
{
    if (a->m == 0 || a->n == 0)
        return CLV_OK;
    if (a->blocks == 0)
        memset(a->y, 0, (size_t)(a->m * a->n) * clv_dtype_size(a->dtype));
    else if (a->dtype == CLV_F64)
        reference(a);
    else if (a->global_m > CLV_QUANT_SKINNY_ROWS)
        return run_panels(a, err);
    else
        run_skinny(a);
    return CLV_OK;
}
