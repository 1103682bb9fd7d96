/* bench_gemm.c - the `cleave bench gemm` benchmark: FLOP/s of one matrix product. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cleave/session.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options/output_options.h"
#include "cli/options/run_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"
#include "cli/timing/clock.h"

typedef struct gemm_bench {
    int64_t m, n, k, threads, repeat;
    const char *dtype, *c_dtype; /* c_dtype NULL: as dtype */
    bool trans_a, trans_b, accumulate;
    clv_table_format form;
} gemm_bench;

static const char *c_dtype_of(const gemm_bench *bench)
{
    return bench->c_dtype ? bench->c_dtype : bench->dtype;
}

/* C = A B, or C += A B, alone. They are states: they stay where they are, as weights do. */
static clv_status compile(clv_program **out, const gemm_bench *bench, clv_error *err)
{
    const clv_init init = {CLV_INIT_NORMAL, 1};
    clv_mesh one = {0};
    clv_dtype dtype, c_dtype;
    clv_graph *graph;
    CLV_TRY(clv_dtype_parse(&dtype, bench->dtype, err));
    CLV_TRY(clv_dtype_parse(&c_dtype, c_dtype_of(bench), err));
    CLV_TRY(clv_graph_new(&graph, &one, err));
    const int64_t a_shape[] = {bench->trans_a ? bench->k : bench->m, bench->trans_a ? bench->m : bench->k};
    const int64_t b_shape[] = {bench->trans_b ? bench->n : bench->k, bench->trans_b ? bench->k : bench->n};
    char subscripts[16];
    snprintf(subscripts, sizeof subscripts, "%s,%s->mn", bench->trans_a ? "km" : "mk", bench->trans_b ? "nk" : "kn");
    clv_value x = clv_state(graph, "a", dtype, 2, a_shape, NULL, init);
    clv_value y = clv_state(graph, "b", dtype, 2, b_shape, NULL, init);
    const int64_t c_shape[] = {bench->m, bench->n};
    if (bench->accumulate) {
        clv_value c = clv_state(graph, "c", c_dtype, 2, c_shape, NULL, (clv_init){.kind = CLV_INIT_ZEROS});
        clv_assign(graph, c, clv_einsum_accumulate(graph, subscripts, x, y, c, c_dtype));
    } else {
        clv_output(graph, "c", clv_einsum_accumulate(graph, subscripts, x, y, CLV_NONE, c_dtype), NULL);
    }
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

/* Seconds of the last run, in the product: what hands it to the rank and waits for it is not counted. */
static double product_seconds(clv_session *session, const clv_program *program)
{
    double seconds = 0;
    for (int i = 0; i < clv_program_instruction_count(program); i++)
        seconds += clv_session_instruction_seconds(session, program, i);
    clv_session_take_stats(session, NULL, NULL);
    return seconds;
}

static clv_status time_products(double *times, const gemm_bench *bench, clv_session *session,
                                const clv_program *program, clv_error *err)
{
    CLV_TRY(clv_session_run(session, program, NULL, 0, NULL, 0, err)); /* not counted: makes oneDNN's code */
    clv_session_take_stats(session, NULL, NULL);
    for (int64_t i = 0; i < bench->repeat; i++) {
        CLV_TRY(clv_session_run(session, program, NULL, 0, NULL, 0, err));
        times[i] = product_seconds(session, program);
    }
    clv_times_sort(times, bench->repeat);
    return CLV_OK;
}

static clv_status measure(double *times, const gemm_bench *bench, clv_error *err)
{
    clv_program *program;
    clv_session *session = NULL;
    const clv_session_options options = {.threads_per_rank = (int)bench->threads, .seed = 1, .trace = 1};
    CLV_TRY(compile(&program, bench, err));
    clv_status status = clv_session_new(&session, clv_program_mesh(program), &options, err);
    if (status == CLV_OK)
        status = time_products(times, bench, session, program, err);
    clv_session_free(session);
    clv_program_free(program);
    return status;
}

static int print(const gemm_bench *bench, const double *times)
{
    int64_t middle = bench->repeat / 2;
    double median = times[middle];
    clv_table *t = clv_table_new(NULL);

    clv_table_int(t, "m", bench->m);
    clv_table_int(t, "n", bench->n);
    clv_table_int(t, "k", bench->k);
    clv_table_text(t, "dtype", bench->dtype);
    if (bench->c_dtype)
        clv_table_text(t, "c_dtype", bench->c_dtype);
    if (bench->accumulate)
        clv_table_bool(t, "accumulate", true);
    clv_table_int(t, "threads", bench->threads);
    clv_table_real(t, "median_ms", median * 1e3);
    clv_table_real(t, "min_ms", times[0] * 1e3);
    clv_table_real(t, "gflops", 2e-9 * (double)bench->m * (double)bench->n * (double)bench->k / median);
    return clv_table_finish(t, &bench->form);
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
         .help = "rows of A and C (1024)"},
        {.names = "--n",
         .kind = CLV_OPTION_INT,
         .out = &bench.n,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "columns of B and C (1024)"},
        {.names = "--k",
         .kind = CLV_OPTION_INT,
         .out = &bench.k,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "columns of A, rows of B (1024)"},
        CLV_DTYPE_ROW(&bench.dtype, "f32|bf16|f16|f64", "of all three matrices (f32)"),
        {.names = "--c-dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &bench.c_dtype,
         .value = "f32",
         .help = "of C, where A and B are of 16 bits: what was summed is not rounded (as --dtype)"},
        {.names = "--accumulate",
         .kind = CLV_OPTION_FLAG,
         .out = &bench.accumulate,
         .help = "C += A B: what C holds is added in the same pass"},
        {.names = "--trans-a",
         .kind = CLV_OPTION_FLAG,
         .out = &bench.trans_a,
         .help = "A is stored as [k, m]: the gradient of weights is a product of that kind"},
        {.names = "--transposed, --trans-b",
         .kind = CLV_OPTION_FLAG,
         .out = &bench.trans_b,
         .help = "B is stored as [n, k], as Hugging Face stores weights"},
        {.names = "--threads",
         .kind = CLV_OPTION_INT,
         .out = &bench.threads,
         .min = 1,
         .max = 1024,
         .value = "N",
         .help = "threads of the rank (1)"},
        {.names = "--repeat",
         .kind = CLV_OPTION_INT,
         .out = &bench.repeat,
         .min = 1,
         .max = 100000,
         .value = "N",
         .help = "how many are timed (20)"},
        CLV_FORMAT_OPTIONS(&bench.form, "", "print JSON"),
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;

    clv_error err = {0};
    double *times = calloc((size_t)bench.repeat, sizeof *times);
    clv_status status =
        times ? measure(times, &bench, &err) : clv_fail_memory(&err, "the times", (size_t)bench.repeat * sizeof *times);
    code = status == CLV_OK ? print(&bench, times) : clv_command_print_error(argv[0], &err);
    free(times);
    return code;
}
