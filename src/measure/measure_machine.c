/* measure_machine.c - machine profile measurement: traces training steps of small blocks to get op and collective
 * rates of these hosts. Every op and collective that a transformer runs is timed where it runs, so the figures
 * include what a rank's neighbours take from the caches and the memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cleave/nn.h"
#include "cleave/session.h"
#include "measure/measure_network.h"
#include "measure/machine_broadcast.h"
#include "program/cost/machine.h"
#include "program/reshard_step.h"

/* A traced block: forward and backward. Llama's is gated; GPT's has a GELU, which is fused with a bias. Some sizes are
 * odd: kernels run them slower. */
typedef struct traced {
    int64_t batch, seq, hidden, heads, ffn;
    bool gated, bias;
    clv_dtype dtype;
} traced;

static const traced blocks[] = {
    {4, 128, 128, 2, 512, true, false, CLV_F32},    {2, 256, 256, 4, 1024, false, true, CLV_F32},
    {2, 256, 256, 4, 1024, false, false, CLV_F32},  {4, 256, 512, 8, 2048, true, false, CLV_F32},
    {4, 250, 470, 10, 1881, false, false, CLV_F32}, {4, 512, 512, 8, 2048, false, true, CLV_F32},
    {2, 512, 1024, 16, 4096, true, false, CLV_F32}, {2, 256, 256, 4, 1024, true, false, CLV_BF16},
    {2, 256, 256, 4, 1024, false, false, CLV_BF16}, {4, 256, 512, 8, 2048, true, false, CLV_BF16},
    {4, 250, 470, 10, 1881, false, false, CLV_BF16}};

enum { BLOCKS = sizeof blocks / sizeof blocks[0], WARM_UPS = 2, RUNS = 5, MAX_SAMPLES = 4096, MAX_RANKS = 4096 };

/* Time per unit of work, gathered by op, dtype and size (powers of two). */
typedef struct sample {
    const char *op; /* of clv_instruction_info: of a table, so it lasts */
    clv_dtype dtype;
    int size; /* log2 of work */
    double work, seconds;
    int count;
} sample;

typedef struct samples {
    int n;
    sample item[MAX_SAMPLES];
    double overhead; /* the least time of an instruction */
} samples;

/* A preset's rules for the axes behind the first, `hosts`, over which every host does the same. */
static clv_status find_rules(clv_axis_rules *out, const clv_mesh *mesh, const char *preset, clv_error *err)
{
    clv_mesh beside = {.n_axes = mesh->n_axes - 1};
    memcpy(beside.axis, mesh->axis + 1, (size_t)beside.n_axes * sizeof *mesh->axis);
    CLV_TRY(clv_axis_rules_preset(out, preset, &beside, err));
    for (int r = 0; r < out->n; r++)
        for (int a = 0; a < out->rule[r].n_axes; a++)
            out->rule[r].axis[a]++;
    return CLV_OK;
}

static clv_status compile(clv_program **out, const traced *t, const clv_mesh *mesh, const char *preset, clv_error *err)
{
    clv_graph *graph;
    clv_axis_rules rules;
    CLV_TRY(find_rules(&rules, mesh, preset, err));
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    clv_value x = clv_state(graph, "x", t->dtype, 3, (int64_t[]){t->batch, t->seq, t->hidden}, &layout,
                            (clv_init){CLV_INIT_NORMAL, 1});
    clv_block_options o = clv_block_defaults(t->gated ? CLV_BLOCK_LLAMA : CLV_BLOCK_GPT, t->heads, t->heads, t->ffn);
    o.attention.bias = o.attention.output_bias = o.mlp.bias = o.norm_bias = t->bias;
    clv_value y = clv_transformer_block(graph, x, &rules, &o), wrt[64], d[64];
    int n = clv_graph_parameters(graph, wrt, 64);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_gradients(graph, y, y, wrt, n, d);
    for (int i = 0; i < n; i++)
        if (strcmp(clv_value_name(graph, wrt[i]), "x") != 0)
            clv_adamw(graph, wrt[i], d[i], lr, step, NULL);
    clv_status status = clv_compile(out, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

static void add_sample(samples *all, const char *op, clv_dtype dtype, double work, double seconds)
{
    int size = (int)floor(log2(work));
    int at = 0;
    while (at < all->n && !(all->item[at].op == op && all->item[at].dtype == dtype && all->item[at].size == size))
        at++;
    if (at == MAX_SAMPLES)
        return;
    if (at == all->n)
        all->item[all->n++] = (sample){.op = op, .dtype = dtype, .size = size};
    all->item[at].work += work;
    all->item[at].seconds += seconds;
    all->item[at].count++;
}

/* Seconds of instructions, [run][instruction]. */
typedef struct run_times {
    int n; /* instructions */
    double *seconds;
} run_times;

/* The median of the runs: what else ran on the host meanwhile slowed some of them. */
static double median(const run_times *times, int instruction)
{
    double sorted[RUNS];
    for (int run = 0; run < RUNS; run++) {
        double seconds = times->seconds[run * times->n + instruction];
        int at = run;
        for (; at > 0 && sorted[at - 1] > seconds; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = seconds;
    }
    return sorted[RUNS / 2];
}

static void collect(samples *all, const run_times *times, const clv_program *program)
{
    clv_instruction_info info = {.size = sizeof info};
    for (int i = 0; clv_program_instruction(program, i, &info, NULL) == CLV_OK; i++) {
        double seconds = median(times, i);
        if (info.work >= 1 && seconds > 0)
            add_sample(all, info.kind, info.dtype, info.work, seconds);
        if (seconds > 0 && seconds < all->overhead)
            all->overhead = seconds;
    }
}

static clv_status run(run_times *times, clv_session *session, const clv_program *program, clv_error *err)
{
    float lr = 1e-4f;
    int32_t step = 1;
    const clv_input_binding inputs[] = {{"lr", &lr}, {"step", &step}};
    for (int run = -WARM_UPS; run < RUNS; run++) {
        CLV_TRY(clv_session_take_stats(session, NULL, err));
        CLV_TRY(clv_session_run(session, program, inputs, 2, NULL, 0, err));
        for (int i = 0; run >= 0 && i < times->n; i++)
            times->seconds[run * times->n + i] = clv_session_instruction_seconds(session, program, i);
    }
    return CLV_OK;
}

/* Traces one block on a mesh, laid out by a preset. job: the mesh's ranks are in its processes; NULL: in this one. */
static clv_status trace(samples *all, const traced *t, const char *mesh_text, const char *preset, clv_job *job,
                        clv_error *err)
{
    clv_mesh mesh;
    clv_program *program = NULL;
    clv_session *session = NULL;
    CLV_TRY(clv_mesh_parse(&mesh, mesh_text, err));
    CLV_TRY(compile(&program, t, &mesh, preset, err));
    const clv_session_options options = {.size = sizeof options, .seed = 1, .trace = 1, .job = job};
    run_times times = {.n = clv_program_instruction_count(program)};
    times.seconds = calloc((size_t)times.n * RUNS, sizeof *times.seconds);
    clv_status status = times.seconds ? CLV_OK : clv_fail_memory(err, "times", (size_t)times.n * sizeof(double));
    status = clv_job_agree(job, status, err);
    if (status == CLV_OK)
        status = clv_session_new(&session, &mesh, &options, err);
    if (status == CLV_OK)
        status = run(&times, session, program, err);
    if (status == CLV_OK)
        collect(all, &times, program);
    free(times.seconds);
    clv_session_free(session);
    clv_program_free(program);
    return status;
}

static int by_op_and_size(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int names = strcmp(x->op, y->op);
    if (names != 0)
        return names;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* More work takes as long or longer: where less took longer, ranks waited for one that was late. */
static void order_times(clv_rate *rate)
{
    for (int i = rate->n - 2; i >= 0; i--)
        rate->rate[i] = fmax(rate->rate[i], rate->work[i] / rate->work[i + 1] * rate->rate[i + 1]);
}

/* Samples as rates: the overhead of an instruction is taken off first, as predictions add it. */
static void make_rates(clv_rates *out, samples *all, double overhead)
{
    qsort(all->item, (size_t)all->n, sizeof *all->item, by_op_and_size);
    for (int i = 0; i < all->n; i++) {
        const sample *s = &all->item[i];
        clv_rate *rate = out->n > 0 ? &out->item[out->n - 1] : NULL;
        if (!rate || strcmp(rate->op, s->op) != 0 || rate->dtype != s->dtype) {
            rate = clv_rates_add(out);
            if (!rate)
                break;
            *rate = (clv_rate){.dtype = s->dtype};
            snprintf(rate->op, sizeof rate->op, "%s", s->op);
        }
        double seconds = s->seconds / s->count - overhead, work = s->work / s->count;
        if (rate->n < CLV_MAX_RATE_POINTS && seconds > 0.1 * overhead) {
            rate->work[rate->n] = work;
            rate->rate[rate->n++] = work / seconds;
        }
        if (rate->n == 0)
            out->n--;
    }
    for (int i = 0; i < out->n; i++)
        order_times(&out->item[i]);
}

static double best_rate(const clv_rates *rates, const char *op, clv_dtype dtype)
{
    const clv_rate *r = clv_rates_find(rates, op, dtype);
    double best = 0;
    for (int i = 0; r && i < r->n; i++)
        best = r->rate[i] > best ? r->rate[i] : best;
    return best;
}

/* Latency and bandwidth of collectives, from all that were measured, of any kind and size. */
static clv_machine_link fit_collectives(const clv_rates *rates)
{
    enum { MOST = CLV_STEP_COUNT * CLV_DTYPE_COUNT * CLV_MAX_RATE_POINTS };
    double bytes[MOST], seconds[MOST];
    int n = 0;
    for (int k = 0; k < CLV_STEP_COUNT; k++)
        for (int d = 0; clv_step_moves((clv_step_kind)k) && d < CLV_DTYPE_COUNT; d++) {
            const clv_rate *r = clv_rates_find(rates, clv_step_name((clv_step_kind)k), (clv_dtype)d);
            for (int i = 0; r && i < r->n; i++, n++) {
                bytes[n] = r->work[i];
                seconds[n] = r->work[i] / r->rate[i];
            }
        }
    return clv_fit_link(bytes, seconds, n);
}

/* The figures for what was not measured, from those that were. */
static void fill_defaults(clv_machine *p, const clv_job_hosts *hosts)
{
    int64_t ranks = hosts->ranks;
    const clv_rates *rates = p->rates_shared.n > 0 ? &p->rates_shared : &p->rates_alone,
                    *best = p->rates_alone.n > 0 ? &p->rates_alone : &p->rates_shared;
    snprintf(p->name, sizeof p->name, hosts->hosts > 1 ? "these hosts" : "this host");
    p->ranks_per_host = ranks;
    p->hosts = hosts->hosts;
    p->overlap = CLV_OVERLAP_NETWORK;
    p->efficiency = 0.8;
    p->traffic_factor = 1;
    p->memory_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)ranks;
    p->memory_bytes_per_s = best_rate(rates, "combine", CLV_F32);
    p->host = ranks > 1 ? fit_collectives(rates)
                        : (clv_machine_link){.alpha_s = p->instruction_s + 1e-6, .bytes_per_s = p->memory_bytes_per_s};
    for (int d = 0; d < CLV_DTYPE_COUNT; d++) {
        double rate = best_rate(best, "dot_general", (clv_dtype)d);
        p->flops_per_s[d] = rate > 0 ? rate : best_rate(best, "dot_general", CLV_F32);
    }
}

/* ---- all of it ---- */

typedef struct measurement {
    clv_measure_options given;
    clv_job_hosts hosts; /* one, without a job */
    samples busy, alone;
} measurement;

/* A block on one rank of the job, while the others wait. */
static clv_status trace_one_rank(measurement *m, const traced *block, clv_error *err)
{
    clv_status status = CLV_OK;
    if (clv_job_process_index(m->given.job) <= 0)
        status = trace(&m->alone, block, "hosts=1,model=1", "megatron", NULL, err);
    return clv_job_agree(m->given.job, status, err);
}

/* A block on one rank, and in four layouts on all of a host: each host does the same. */
static clv_status trace_block(measurement *m, const traced *block, clv_error *err)
{
    char tp[64], dp[64];
    long long hosts = m->hosts.hosts, ranks = m->hosts.ranks;
    snprintf(tp, sizeof tp, "hosts=%lld,model=%lld", hosts, ranks);
    snprintf(dp, sizeof dp, "hosts=%lld,data=%lld", hosts, ranks);
    CLV_TRY(trace_one_rank(m, block, err));
    if (hosts * ranks == 1)
        return CLV_OK;
    CLV_TRY(trace(&m->busy, block, tp, "megatron", m->given.job, err));
    if (ranks == 1)
        return CLV_OK;
    CLV_TRY(trace(&m->busy, block, tp, "megatron-sp", m->given.job, err));
    CLV_TRY(trace(&m->busy, block, dp, "dp", m->given.job, err));
    return trace(&m->busy, block, dp, "fsdp", m->given.job, err);
}

static clv_status measure(clv_machine *p, measurement *m, clv_error *err)
{
    m->busy.overhead = m->alone.overhead = 1e-3;
    int steps = m->given.blocks + (m->hosts.hosts > 1);
    for (int i = 0; i <= steps; i++) {
        if (i > m->given.blocks)
            CLV_TRY(clv_measure_network(p, m->given.job, &m->hosts, err));
        else if (i > 0)
            CLV_TRY(trace_block(m, &blocks[i - 1], err));
        if (m->given.progress)
            m->given.progress(m->given.progress_arg, i, steps);
    }
    p->instruction_s = fmin(m->alone.overhead, m->busy.overhead);
    make_rates(&p->rates_alone, &m->alone, p->instruction_s);
    make_rates(&p->rates_shared, &m->busy, p->instruction_s);
    fill_defaults(p, &m->hosts);
    return clv_machine_broadcast(p, m->given.job, err);
}

static clv_status take_options(clv_measure_options *out, const clv_measure_options *given, clv_error *err)
{
    static const char call[] = "clv_machine_measure";
    clv_cpu_info cpu = {.size = sizeof cpu};
    CLV_TRY(clv_options_copy_in(out, sizeof *out, sizeof *out, given, call, err));
    CLV_TRY(clv_cpu_get_info(&cpu, err));
    if (out->ranks < 0 || out->ranks > MAX_RANKS || out->blocks < 0 || out->blocks > BLOCKS)
        return clv_fail(err, CLV_EINVAL, "%s: %lld ranks, %d blocks; valid: 1 to %d and 1 to %d, 0 for the usual ones",
                        call, (long long)out->ranks, out->blocks, MAX_RANKS, BLOCKS);
    out->ranks = out->ranks || out->job ? out->ranks : cpu.cores;
    out->blocks = out->blocks ? out->blocks : BLOCKS;
    return CLV_OK;
}

clv_status clv_machine_measure(clv_machine **out, const clv_measure_options *options, clv_error *err)
{
    clv_measure_options given;
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(take_options(&given, options, err));
    measurement *m = calloc(1, sizeof *m);
    clv_machine *p = calloc(1, sizeof *p);
    clv_status status = m && p ? CLV_OK : clv_fail_memory(err, "a machine", sizeof *m);
    if (status == CLV_OK) {
        m->given = given;
        m->hosts = (clv_job_hosts){.hosts = 1, .ranks = given.ranks};
    }
    status = clv_job_agree(given.job, status, err);
    if (status == CLV_OK && given.job)
        status = clv_job_hosts_find(&m->hosts, given.job, given.ranks, err);
    if (status == CLV_OK)
        status = measure(p, m, err);
    free(m);
    if (status == CLV_OK)
        *out = p;
    else
        clv_machine_free(p);
    return status;
}
