/* bench_allreduce.c - cleave bench allreduce: how long the ranks take to sum one buffer, all of them. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"
#include "runtime/team.h"

enum { MAX_REPEATS = 200, MIN_REPEATS = 10, WARM_UPS = 5 };

typedef struct measurement {
    int set;
    int64_t bytes;
    int repeats;
    int64_t took_ns[MAX_REPEATS]; /* by rank 0: from a barrier until its result is there */
} measurement;

typedef struct result {
    int64_t bytes;
    double median_ns, min_ns;
} result;

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Every rank fills its buffer with its number + 1. Checked, because a fast wrong sum is no result. */
static clv_status check_sum(const float *sum, int64_t count, int ranks, clv_error *err)
{
    float want = (float)ranks * (float)(ranks + 1) / 2;

    for (int64_t i = 0; i < count; i++)
        if (!(sum[i] == want))
            return clv_fail(err, CLV_EPEER, "element %lld of the sum is %g, not %g", (long long)i, (double)sum[i],
                            (double)want);
    return CLV_OK;
}

/* In place, on values written anew each time: a buffer that stays the same would sit in both cores' caches. */
static clv_status repeat(measurement *m, int rank, clv_comm *comm, float *buffer, clv_error *err)
{
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    const clv_group *group = clv_comm_group(comm, m->set);
    int64_t count = m->bytes / 4;

    for (int k = -WARM_UPS; k < m->repeats; k++) {
        for (int64_t i = 0; i < count; i++)
            buffer[i] = (float)(rank + 1);
        CLV_TRY(backend->barrier(comm, group, err));
        int64_t began = clv_now_ns();
        CLV_TRY(backend->all_reduce(comm, group, buffer, buffer, count, CLV_F32, CLV_REDUCE_SUM, err));
        if (rank == 0 && k >= 0)
            m->took_ns[k] = clv_now_ns() - began;
    }
    return check_sum(buffer, count, group->n, err);
}

static clv_status measure_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    measurement *m = arg;
    size_t bytes = ((size_t)m->bytes + 63) / 64 * 64;
    float *buffer = aligned_alloc(64, bytes);

    if (!buffer)
        return clv_fail_memory(err, "a buffer to sum", bytes);
    clv_status status = repeat(m, rank, comm, buffer, err);
    if (status == CLV_OK) /* after a failure a late peer may still hold it: left to the end of the process */
        free(buffer);
    return status;
}

static clv_status measure(result *out, clv_team *team, int set, int64_t bytes, clv_error *err)
{
    static measurement m;

    m = (measurement){.set = set, .bytes = bytes / 4 * 4};
    m.repeats = bytes <= 1 << 20 ? MAX_REPEATS : MIN_REPEATS;
    CLV_TRY(clv_team_run(team, measure_rank, &m, err));
    qsort(m.took_ns, (size_t)m.repeats, sizeof m.took_ns[0], by_size);
    out->bytes = m.bytes;
    out->min_ns = (double)m.took_ns[0];
    int64_t above = m.repeats / 2, below = (m.repeats - 1) / 2;
    out->median_ns = 0.5 * (double)(m.took_ns[above] + m.took_ns[below]);
    return CLV_OK;
}

static clv_status measure_all(result *out, int ranks, const clv_sizes *sizes, clv_error *err)
{
    int *whole = calloc((size_t)ranks, sizeof *whole); /* all in group 0 */
    clv_team *team = NULL;
    clv_status status = whole ? clv_team_new(&team, ranks, NULL, err)
                              : clv_fail_memory(err, "the ranks", (size_t)ranks * sizeof *whole);
    int set = 0;

    if (status == CLV_OK)
        status = clv_world_add_groups(&set, clv_team_world(team), whole, NULL, err);
    for (int i = 0; status == CLV_OK && i < sizes->n; i++)
        status = measure(&out[i], team, set, sizes->item[i], err);
    free(whole);
    clv_status freed = clv_team_free(team, err);
    return status != CLV_OK ? status : freed;
}

static int print(const result *results, int n, bool json)
{
    clv_table *table = clv_table_new("allreduce");

    for (int i = 0; i < n; i++) {
        clv_table_row(table);
        clv_table_bytes(table, "bytes", (double)results[i].bytes);
        clv_table_real(table, "median_us", results[i].median_ns / 1e3);
        clv_table_real(table, "min_us", results[i].min_ns / 1e3);
        clv_table_real(table, "gb_per_s", (double)results[i].bytes / results[i].median_ns);
    }
    return clv_table_finish(table, json);
}

int bench_allreduce(int argc, char **argv)
{
    int64_t ranks = 2;
    clv_sizes sizes = {.n = 4, .item = {16 << 10, 256 << 10, 4 << 20, 64 << 20}};
    bool json = false;
    const clv_option options[] = {
        {.names = "-tp, --tensor-parallel-size",
         .kind = CLV_OPTION_INT,
         .out = &ranks,
         .min = 1,
         .max = 4096,
         .value = "N",
         .help = "ranks (2)"},
        {.names = "--bytes",
         .kind = CLV_OPTION_SIZES,
         .out = &sizes,
         .value = "LIST",
         .help = "sizes of the buffer, f32 (16K,256K,4M,64M)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &json, .help = "print JSON"},
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    result results[CLV_SIZES_MAX];
    clv_error err = {0};

    if (code != CLV_OPTIONS_RUN)
        return code;
    for (int i = 0; i < sizes.n; i++)
        if (sizes.item[i] < 4) {
            clv_fail(&err, CLV_EINVAL, "--bytes %lld: a size is at least 4, one f32", (long long)sizes.item[i]);
            return clv_command_report(argv[0], &err);
        }
    if (measure_all(results, (int)ranks, &sizes, &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    return print(results, sizes.n, json);
}
