/* bench_matmuls.c - matmul baseline: reruns only the matrix products of a program, alternating with whole runs, to
 * time the rest.
 */
#include "cli/bench/bench_matmuls.h"

#include <stdlib.h>

#include "cleave/status.h"
#include "cli/timing/clock.h"

/* Products of one shape. */
typedef struct shape {
    int64_t batch, m, n, k, calls;
    double within_s, alone_s; /* of all runs, mean over ranks */
} shape;

struct clv_bench_matmuls {
    const clv_program *program;
    int64_t n_runs, most_runs;
    double *alone_s, *ratio; /* [most_runs]; of a run to its products */
    int n_shapes;
    shape *shapes;
    int *shape_of; /* [instructions]; -1: no product */
};

void clv_bench_matmuls_free(clv_bench_matmuls *p)
{
    if (!p)
        return;
    free(p->alone_s);
    free(p->ratio);
    free(p->shapes);
    free(p->shape_of);
    free(p);
}

static int find_shape(clv_bench_matmuls *p, const clv_instruction_info *info)
{
    for (int s = 0; s < p->n_shapes; s++) {
        const shape *known = &p->shapes[s];
        if (known->batch == info->batch && known->m == info->m && known->n == info->n && known->k == info->k)
            return s;
    }
    p->shapes[p->n_shapes] = (shape){.batch = info->batch, .m = info->m, .n = info->n, .k = info->k};
    return p->n_shapes++;
}

static clv_status find_shapes(clv_bench_matmuls *p, int n, clv_error *err)
{
    for (int i = 0; i < n; i++) {
        clv_instruction_info info = {.size = sizeof info};
        CLV_TRY(clv_program_instruction(p->program, i, &info, err));
        p->shape_of[i] = info.batch > 0 ? find_shape(p, &info) : -1;
        if (info.batch > 0)
            p->shapes[p->shape_of[i]].calls++;
    }
    return CLV_OK;
}

clv_status clv_bench_matmuls_new(clv_bench_matmuls **out, const clv_program *program, int64_t runs, clv_error *err)
{
    size_t n = (size_t)clv_program_instruction_count(program);
    clv_bench_matmuls *p = calloc(1, sizeof *p);
    if (p) {
        *p = (clv_bench_matmuls){.program = program,
                                 .most_runs = runs,
                                 .alone_s = calloc((size_t)runs, sizeof(double)),
                                 .ratio = calloc((size_t)runs, sizeof(double)),
                                 .shapes = calloc(n + 1, sizeof(shape)),
                                 .shape_of = calloc(n + 1, sizeof(int))};
    }
    clv_status status = p && p->alone_s && p->ratio && p->shapes && p->shape_of
                            ? find_shapes(p, (int)n, err)
                            : clv_fail_memory(err, "the times of products", n * sizeof(shape));
    if (status == CLV_OK)
        *out = p;
    else
        clv_bench_matmuls_free(p);
    return status;
}

/* What the last run took in each shape. */
static void add_seconds(clv_bench_matmuls *p, clv_session *session, bool alone)
{
    for (int i = 0; i < clv_program_instruction_count(p->program); i++) {
        if (p->shape_of[i] < 0)
            continue;
        shape *s = &p->shapes[p->shape_of[i]];
        double seconds = clv_session_instruction_seconds(session, p->program, i);
        *(alone ? &s->alone_s : &s->within_s) += seconds;
    }
}

clv_status clv_bench_matmuls_run(clv_bench_matmuls *p, clv_session *session, clv_session_stats *run, clv_error *err)
{
    const clv_run products = {.size = sizeof products, .matmuls_only = 1};
    clv_session_stats alone = {.size = sizeof alone};
    add_seconds(p, session, false);
    CLV_TRY(clv_session_take_stats(session, run, err));
    CLV_TRY(clv_session_run_boxes(session, p->program, &products, err));
    add_seconds(p, session, true);
    CLV_TRY(clv_session_take_stats(session, &alone, err));
    if (p->n_runs < p->most_runs) {
        p->alone_s[p->n_runs] = alone.seconds;
        p->ratio[p->n_runs++] = run->seconds / alone.seconds;
    }
    return CLV_OK;
}

void clv_bench_matmuls_add(clv_table *t, clv_bench_matmuls *p)
{
    double runs = (double)p->n_runs;
    clv_times_sort(p->alone_s, p->n_runs);
    clv_times_sort(p->ratio, p->n_runs);
    clv_table_real(t, "products_ms", 1e3 * p->alone_s[p->n_runs / 2]);
    clv_table_real(t, "step_over_products", p->ratio[p->n_runs / 2]);
    clv_table_begin_list(t, "products");
    for (int i = 0; i < p->n_shapes; i++) {
        const shape *s = &p->shapes[i];
        double flops = 2 * (double)(s->batch * s->m) * (double)s->n * (double)s->k * (double)s->calls;
        clv_table_begin_row(t);
        clv_table_int(t, "batch", s->batch);
        clv_table_int(t, "m", s->m);
        clv_table_int(t, "n", s->n);
        clv_table_int(t, "k", s->k);
        clv_table_int(t, "calls", s->calls);
        clv_table_real(t, "ms", 1e3 * s->within_s / runs);
        clv_table_real(t, "alone_ms", 1e3 * s->alone_s / runs);
        clv_table_real(t, "gflops", 1e-9 * flops * runs / s->alone_s);
    }
}
