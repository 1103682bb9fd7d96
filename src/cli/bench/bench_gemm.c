/* bench_gemm.c - the `cleave bench gemm` benchmark: FLOP/s of one matrix product. */
#include "cleave/session.h"
#include "cli/command.h"
#include "cli/options/run_options.h"
#include "cli/timing/clock.h"

typedef struct gemm_bench {
    int64_t m, n, k, threads, repeat;
    clv_dtype dtype;
    const char *c_dtype; /* "f32"; NULL: as dtype */
    bool trans_a, trans_b, accumulate;
    clv_program *program;
    clv_session *session;
} gemm_bench;

/* C = A B, or C += A B, alone. They are states: they stay where they are, as weights do. */
static clv_status compile(clv_program **out, const gemm_bench *bench, clv_error *err)
{
    const clv_init init = {CLV_INIT_NORMAL, 1};
    clv_mesh one = {0};
    const clv_dtype dtype = bench->dtype, c_dtype = bench->c_dtype ? CLV_F32 : dtype;
    clv_graph *graph;
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

/* Seconds in the product itself, without handing it to the rank and waiting for it. */
static clv_status time_product(void *arg, int64_t i, double *seconds, clv_error *err)
{
    const gemm_bench *b = arg;
    CLV_TRY(clv_session_run(b->session, b->program, NULL, 0, NULL, 0, err));
    *seconds = 0;
    for (int k = 0; k < clv_program_instruction_count(b->program); k++)
        *seconds += clv_session_instruction_seconds(b->session, b->program, k);
    clv_session_take_stats(b->session, NULL, NULL);
    return CLV_OK;
}

static clv_status measure(double **times, gemm_bench *b, clv_error *err)
{
    enum { WARM_UPS = 1 }; /* generates oneDNN's code */
    const clv_session_options options = {.threads_per_rank = (int)b->threads, .seed = 1, .trace = 1};
    CLV_TRY(compile(&b->program, b, err));
    clv_status status = clv_session_new(&b->session, clv_program_mesh(b->program), &options, err);
    if (status == CLV_OK)
        status = clv_times_measure(times, WARM_UPS, b->repeat, time_product, b, err);
    clv_session_free(b->session);
    clv_program_free(b->program);
    return status;
}

static void report(clv_table *t, const gemm_bench *b, const double *times)
{
    double median = times[b->repeat / 2];
    clv_table_int(t, "m", b->m);
    clv_table_int(t, "n", b->n);
    clv_table_int(t, "k", b->k);
    clv_table_text(t, "dtype", clv_dtype_name(b->dtype));
    if (b->c_dtype)
        clv_table_text(t, "c_dtype", b->c_dtype);
    if (b->accumulate)
        clv_table_bool(t, "accumulate", true);
    clv_table_int(t, "threads", b->threads);
    clv_table_real(t, "median_ms", median * 1e3);
    clv_table_real(t, "min_ms", times[0] * 1e3);
    clv_table_real(t, "gflops", 2e-9 * (double)b->m * (double)b->n * (double)b->k / median);
}

clv_status bench_gemm(clv_invocation *run, clv_error *err)
{
    gemm_bench b = {.m = 1024, .n = 1024, .k = 1024, .threads = 1, .repeat = 20};
    double *times;
    const clv_option options[] = {
        CLV_OPT_INT("--m", &b.m, 1, 1 << 20, "N", "rows of A and C (1024)"),
        CLV_OPT_INT("--n", &b.n, 1, 1 << 20, "N", "columns of B and C (1024)"),
        CLV_OPT_INT("--k", &b.k, 1, 1 << 20, "N", "columns of A, rows of B (1024)"),
        CLV_DTYPE_ROW(&b.dtype, "f32|bf16|f16|f64", "of all three matrices (f32)"),
        CLV_OPT_CHOICE("--c-dtype", &b.c_dtype, "f32", "of C, when A and B have 16 bits (as --dtype)"),
        CLV_OPT_FLAG("--accumulate", &b.accumulate, "C += A B, in the same pass"),
        CLV_OPT_FLAG("--trans-a", &b.trans_a, "A is stored as [k, m], as for the gradient of weights"),
        CLV_OPT_FLAG("--transposed, --trans-b", &b.trans_b, "B is stored as [n, k], as Hugging Face stores weights"),
        CLV_OPT_INT("--threads", &b.threads, 1, 1024, "N", "threads of the rank (1)"),
        CLV_OPT_INT("--repeat", &b.repeat, 1, 100000, "N", "timed runs (20)"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    CLV_TRY(measure(&times, &b, err));
    run->table = clv_table_new(NULL);
    report(run->table, &b, times);
    free(times);
    return CLV_OK;
}
