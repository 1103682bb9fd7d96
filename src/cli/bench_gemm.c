/* bench_gemm.c - cleave bench gemm: the rate of one matrix product, as the library computes it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cleave/status.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/threads.h"

typedef struct gemm_bench {
    int64_t m, n, k, threads, repeat;
    const char *dtype;
    bool transposed, json;
} gemm_bench;

static int by_time(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Elements of a few different values, none of which make sums overflow. */
static void *operand(int64_t elems, clv_dtype dtype)
{
    void *p = malloc((size_t)elems * clv_dtype_size(dtype));
    for (int64_t i = 0; p && i < elems; i++)
        clv_dtype_store(dtype, p, i, (double)(i % 13 - 6) / 8);
    return p;
}

static clv_status time_products(int64_t *times, const gemm_bench *bench, const clv_gemm_args *args, clv_error *err)
{
    CLV_TRY(clv_gemm(args, err)); /* not counted: makes oneDNN's code and touches the memory */
    for (int64_t i = 0; i < bench->repeat; i++) {
        int64_t start = clv_clock_ns();
        CLV_TRY(clv_gemm(args, err));
        times[i] = clv_clock_ns() - start;
    }
    qsort(times, (size_t)bench->repeat, sizeof *times, by_time);
    return CLV_OK;
}

static clv_status measure(int64_t *times, const gemm_bench *bench, clv_error *err)
{
    clv_dtype dtype;
    clv_status status;

    CLV_TRY(clv_dtype_parse(&dtype, bench->dtype, err));
    clv_gemm_args args = {.m = bench->m,
                          .n = bench->n,
                          .k = bench->k,
                          .lda = bench->k,
                          .ldb = bench->transposed ? bench->k : bench->n,
                          .ldc = bench->n,
                          .trans_b = bench->transposed,
                          .batch = 1,
                          .dtype = dtype,
                          .c_dtype = dtype};
    void *a = operand(args.m * args.k, dtype), *b = operand(args.k * args.n, dtype);
    args.a = a;
    args.b = b;
    args.c = operand(args.m * args.n, dtype);
    args.workspace = aligned_alloc(64, clv_gemm_workspace(&args) + 64);
    if (a && b && args.c && args.workspace)
        status = time_products(times, bench, &args, err);
    else
        status = clv_fail(err, CLV_ENOMEM, "the operands of %lld x %lld x %lld do not fit in memory", (long long)args.m,
                          (long long)args.n, (long long)args.k);
    free(a);
    free(b);
    free(args.c);
    free(args.workspace);
    return status;
}

static int print(const gemm_bench *bench, const int64_t *times)
{
    int64_t middle = bench->repeat / 2;
    double median_ns = (double)times[middle];
    clv_table *t = clv_table_new(NULL);

    clv_table_int(t, "m", bench->m);
    clv_table_int(t, "n", bench->n);
    clv_table_int(t, "k", bench->k);
    clv_table_text(t, "dtype", bench->dtype);
    clv_table_int(t, "threads", bench->threads);
    clv_table_real(t, "median_ms", median_ns * 1e-6);
    clv_table_real(t, "min_ms", (double)times[0] * 1e-6);
    clv_table_real(t, "gflops", 2.0 * (double)bench->m * (double)bench->n * (double)bench->k / median_ns);
    return clv_table_finish(t, bench->json);
}

int bench_gemm(int argc, char **argv)
{
    gemm_bench bench = {.m = 1024, .n = 1024, .k = 1024, .threads = 1, .repeat = 20, .dtype = "f32"};
    const clv_option options[] = {
        {.names = "--m",
         .kind = CLV_OPTION_INT,
         .out = &bench.m,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "rows of A and C"},
        {.names = "--n",
         .kind = CLV_OPTION_INT,
         .out = &bench.n,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "columns of B and C"},
        {.names = "--k",
         .kind = CLV_OPTION_INT,
         .out = &bench.k,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "columns of A, rows of B"},
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &bench.dtype,
         .value = "f32|bf16|f16|f64",
         .help = "of all three matrices"},
        {.names = "--transposed",
         .kind = CLV_OPTION_FLAG,
         .out = &bench.transposed,
         .help = "B is stored as [n, k], as Hugging Face stores weights"},
        {.names = "--threads",
         .kind = CLV_OPTION_INT,
         .out = &bench.threads,
         .min = 1,
         .max = 1024,
         .value = "N",
         .help = "threads of the rank"},
        {.names = "--repeat",
         .kind = CLV_OPTION_INT,
         .out = &bench.repeat,
         .min = 1,
         .max = 100000,
         .value = "N",
         .help = "how many are timed"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &bench.json, .help = "print JSON"},
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;

    clv_error err = {0};
    int64_t *times = calloc((size_t)bench.repeat, sizeof *times);
    clv_threads_set((int)bench.threads);
    clv_status status =
        times ? measure(times, &bench, &err) : clv_fail_memory(&err, "the times", (size_t)bench.repeat * sizeof *times);
    code = status == CLV_OK ? print(&bench, times) : clv_command_report(argv[0], &err);
    free(times);
    return code;
}
