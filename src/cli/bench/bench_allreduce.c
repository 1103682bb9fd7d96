/* bench_allreduce.c - the `cleave bench allreduce` benchmark: latency of an all-reduce of one buffer. */
#include <math.h>

#include "cli/timing/clock.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/bench/allreduce_program.h"
#include "cli/bench/bench_session.h"

enum { RUNS = 20, FEW_RUNS = 2, WARM_UPS = 2, MOST = CLV_ALLREDUCE_ROUNDS * RUNS };

typedef struct result {
    int64_t bytes;
    double median_s, min_s;
} result;

/* Each sum is `ranks` times the last. Checked, because a fast wrong sum is no result. */
static clv_status check_sum(const float *sum, int64_t count, int ranks, clv_error *err)
{
    double want = pow(ranks, CLV_ALLREDUCE_ROUNDS);

    for (int64_t i = 0; i < count; i++)
        if (!(fabs(sum[i] - want) <= 1e-5 * want))
            return clv_fail(err, CLV_EPEER, "element %lld of the sum is %g, not %g", (long long)i, (double)sum[i],
                            want);
    return CLV_OK;
}

static clv_status time_runs(result *out, clv_session *session, const clv_program *program, clv_error *err)
{
    static double took[MOST];
    int64_t count = out->bytes / 4;
    int runs = out->bytes <= 1 << 20 ? RUNS : FEW_RUNS, n = 0;
    float *sum = malloc((size_t)out->bytes);
    clv_output_binding output = {"sum", sum};
    clv_status status = sum ? CLV_OK : clv_fail_memory(err, "a sum", (size_t)out->bytes);

    for (int k = -WARM_UPS; status == CLV_OK && k < runs; k++) {
        status = clv_session_run(session, program, NULL, 0, &output, k == runs - 1, err);
        if (status == CLV_OK && !clv_allreduce_take_seconds(took + n, session, program))
            status = clv_fail(err, CLV_EUNSUPPORTED, "the sums are not carried out by all_reduce");
        n += k >= 0 ? CLV_ALLREDUCE_ROUNDS : 0;
    }
    if (status == CLV_OK)
        status = check_sum(sum, count, (int)clv_mesh_rank_count(clv_program_mesh(program)), err);
    free(sum);
    if (status != CLV_OK)
        return status;
    clv_times_sort(took, n);
    out->min_s = took[0];
    out->median_s = 0.5 * (took[n / 2] + took[(n - 1) / 2]);
    return CLV_OK;
}

static clv_status measure(result *out, int ranks, const clv_comm_option *comm, int64_t bytes, clv_error *err)
{
    clv_program *program = NULL;
    clv_session *session = NULL;
    *out = (result){.bytes = bytes / 4 * 4};
    clv_status status = clv_allreduce_program(&program, ranks, bytes / 4, err);
    if (status == CLV_OK)
        status =
            clv_bench_session_new(&session, clv_program_mesh(program), (clv_session_options){.trace = 1}, comm, err);
    if (status == CLV_OK)
        status = time_runs(out, session, program, err);
    clv_session_free(session);
    clv_program_free(program);
    return status;
}

static void add_row(clv_table *t, const result *r)
{
    clv_table_begin_row(t);
    clv_table_bytes(t, "bytes", (double)r->bytes);
    clv_table_real(t, "median_us", 1e6 * r->median_s);
    clv_table_real(t, "min_us", 1e6 * r->min_s);
    clv_table_real(t, "gb_per_s", 1e-9 * (double)r->bytes / r->median_s);
}

clv_status bench_allreduce(clv_invocation *run, clv_error *err)
{
    int64_t ranks = 2;
    clv_sizes sizes = {.n = 4, .item = {16 << 10, 256 << 10, 4 << 20, 64 << 20}};
    clv_comm_option comm = {0};
    const clv_option options[] = {
        CLV_TP_ROW(&ranks, 2, 4096, NULL, "ranks (2)"),
        CLV_OPT_VALUE(SIZES, "--bytes", &sizes, "LIST", "sizes of the f32 buffer (16K,256K,4M,64M)"),
        CLV_COMM_OPTIONS(&comm),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    for (int i = 0; i < sizes.n; i++)
        if (sizes.item[i] < 4)
            return clv_fail(err, CLV_EINVAL, "--bytes %lld; valid: at least 4, one f32", (long long)sizes.item[i]);
    run->table = clv_table_new("allreduce");
    for (int i = 0; i < sizes.n; i++) {
        result r;
        CLV_TRY(measure(&r, (int)ranks, &comm, sizes.item[i], err));
        add_row(run->table, &r);
    }
    return CLV_OK;
}
