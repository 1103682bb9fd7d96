/* bench_profile.c - cleave bench profile: what this host can do, measured by tracing training steps of small blocks. Every op and
 * collective that a transformer runs is timed where it runs, so the figures include what a rank's neighbours take from
 * the caches and the memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/nn.h"
#include "cleave/session.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "program/predict.h"

typedef struct profile_args {
    const char *out;
    bool json;
} profile_args;

/* A traced block: forward and backward. */
typedef struct traced {
    int64_t batch, seq, hidden;
    bool gated;
    clv_dtype dtype;
} traced;

enum { WARM_UPS = 2, RUNS = 5, MAX_SAMPLES = 4096 };

/* Time per unit of work, gathered by op, dtype and size (powers of two). */
typedef struct sample {
    const char *op; /* of a def or a step kind: lasts */
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

static clv_status compile(clv_program **out, const traced *t, const clv_mesh *mesh, const char *preset, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_axis_rules rules = clv_graph_rules(graph, preset);
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    clv_value x = clv_state(graph, "x", t->dtype, 3, (int64_t[]){t->batch, t->seq, t->hidden}, &layout,
                            (clv_init){CLV_INIT_NORMAL, 1});
    clv_block_options o =
        clv_block_defaults(t->gated ? CLV_BLOCK_LLAMA : CLV_BLOCK_GPT, t->hidden / 64, t->hidden / 64, 4 * t->hidden);
    clv_value y = clv_transformer_block(graph, x, &rules, &o), wrt[64], d[64];
    int n = clv_parameters(graph, wrt, 64);
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

static void collect(samples *all, const clv_session *session, const clv_program *program)
{
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        double seconds = clv_session_instruction_seconds(session, program, i), work;
        const char *name;
        if (instruction->op) {
            clv_op_cost cost = clv_instruction_cost(program, i);
            name = instruction->op->def->name;
            work = clv_op_counts_flops(instruction->op->def) ? cost.flops : cost.bytes;
        } else {
            name = clv_step_name(instruction->step->kind);
            work = instruction->step->bytes;
        }
        if (work >= 1 && seconds > 0)
            add_sample(all, name, clv_instruction_dtype(program, i), work, seconds);
        if (seconds > 0 && seconds < all->overhead)
            all->overhead = seconds;
    }
}

/* Traces one block on `ranks` ranks, laid out by a preset. */
static clv_status trace(samples *all, const traced *t, const char *mesh_text, const char *preset, clv_error *err)
{
    clv_mesh mesh;
    clv_program *program = NULL;
    clv_session *session = NULL;
    CLV_TRY(clv_mesh_parse(&mesh, mesh_text, err));
    CLV_TRY(compile(&program, t, &mesh, preset, err));
    clv_session_options options = {.seed = 1, .trace = 1};
    float lr = 1e-4f;
    int32_t step = 1;
    clv_binding inputs[] = {{"lr", &lr}, {"step", &step}};
    clv_status status = clv_session_new(&session, &mesh, &options, err);
    for (int run = 0; status == CLV_OK && run < WARM_UPS + RUNS; run++) {
        if (run == WARM_UPS)
            clv_session_take_stats(session, NULL, NULL);
        status = clv_session_run(session, program, inputs, 2, NULL, 0, err);
    }
    if (status == CLV_OK)
        collect(all, session, program);
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
                return;
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
}

static const clv_rate *find_rate(const clv_rates *rates, const char *op, clv_dtype dtype)
{
    for (int i = 0; i < rates->n; i++)
        if (rates->item[i].dtype == dtype && strcmp(rates->item[i].op, op) == 0)
            return &rates->item[i];
    return NULL;
}

static double best_rate(const clv_rates *rates, const char *op, clv_dtype dtype)
{
    const clv_rate *r = find_rate(rates, op, dtype);
    double best = 0;
    for (int i = 0; r && i < r->n; i++)
        best = r->rate[i] > best ? r->rate[i] : best;
    return best;
}

static clv_status measure(clv_machine *p, samples *busy, samples *alone, int64_t cores, clv_error *err)
{
    static const traced blocks[] = {{4, 128, 128, true, CLV_F32},  {2, 256, 256, false, CLV_F32},
                                    {4, 256, 512, true, CLV_F32},  {4, 512, 512, false, CLV_F32},
                                    {2, 512, 1024, true, CLV_F32}, {2, 256, 256, true, CLV_BF16},
                                    {4, 256, 512, true, CLV_BF16}};
    const int n = sizeof blocks / sizeof blocks[0];
    char tp[32], dp[32];
    clv_progress progress;
    snprintf(tp, sizeof tp, "model=%lld", (long long)cores);
    snprintf(dp, sizeof dp, "data=%lld", (long long)cores);
    clv_progress_begin(&progress, "profile", n);
    for (int i = 0; i < n; i++) {
        CLV_TRY(trace(alone, &blocks[i], "model=1", "megatron", err));
        if (cores > 1) {
            CLV_TRY(trace(busy, &blocks[i], tp, "megatron", err));
            CLV_TRY(trace(busy, &blocks[i], tp, "megatron-sp", err));
            CLV_TRY(trace(busy, &blocks[i], dp, "dp", err));
        }
        clv_progress_update(&progress, i + 1, "");
    }
    clv_progress_end(&progress);
    p->instruction_s = fmin(alone->overhead, busy->overhead);
    make_rates(&p->alone, alone, p->instruction_s);
    make_rates(&p->busy, busy, p->instruction_s);
    return CLV_OK;
}

/* The figures for what was not measured, from those that were. */
static void fill_rest(clv_machine *p, int64_t cores)
{
    const clv_rates *rates = cores > 1 ? &p->busy : &p->alone;
    const clv_rate *reduce = find_rate(rates, "all_reduce", CLV_F32);
    snprintf(p->name, sizeof p->name, "this host");
    p->ranks_per_host = cores;
    p->hosts = 1;
    p->efficiency = 0.8;
    p->memory_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)cores;
    p->memory_bytes_per_s = best_rate(rates, "combine", CLV_F32);
    p->host =
        (clv_machine_link){.alpha_s = p->instruction_s + 1e-6, .bytes_per_s = best_rate(rates, "all_reduce", CLV_F32)};
    if (reduce && reduce->n > 0) /* the smallest is nearly all latency */
        p->host.alpha_s = fmax(1e-7, fmin(1e-4, reduce->work[0] / reduce->rate[0]));
    if (!(p->host.bytes_per_s > 0))
        p->host.bytes_per_s = p->memory_bytes_per_s;
    for (int d = 0; d < CLV_DTYPE_COUNT; d++) {
        double rate = best_rate(&p->alone, "dot_general", (clv_dtype)d);
        p->flops_per_s[d] = rate > 0 ? rate : best_rate(&p->alone, "dot_general", CLV_F32);
    }
}

static int parse(profile_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "--out",
         .kind = CLV_OPTION_STRING,
         .out = &a->out,
         .value = "FILE",
         .use = CLV_OPTION_WRITES,
         .help = "where the profile goes (profile.json)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print the summary as JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static int report(const profile_args *a, const clv_machine *p)
{
    clv_table *t = clv_table_new(NULL);
    clv_table_text(t, "profile", a->out);
    clv_table_int(t, "ranks", p->ranks_per_host);
    clv_table_real(t, "f32_gflops_per_rank", 1e-9 * p->flops_per_s[CLV_F32]);
    clv_table_real(t, "bf16_gflops_per_rank", 1e-9 * p->flops_per_s[CLV_BF16]);
    clv_table_real(t, "memory_gb_per_s", 1e-9 * p->memory_bytes_per_s);
    clv_table_real(t, "collective_us", 1e6 * p->host.alpha_s);
    clv_table_real(t, "collective_gb_per_s", 1e-9 * p->host.bytes_per_s);
    clv_table_real(t, "instruction_us", 1e6 * p->instruction_s);
    return clv_table_finish(t, a->json);
}

int bench_profile(int argc, char **argv)
{
    profile_args a = {.out = "profile.json"};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    clv_machine *p = calloc(1, sizeof *p);
    samples *busy = calloc(1, sizeof *busy), *alone = calloc(1, sizeof *alone);
    clv_status status = p && busy && alone ? CLV_OK : clv_fail_memory(&err, "a profile", sizeof *busy);
    if (status == CLV_OK) {
        busy->overhead = alone->overhead = 1e-3;
        status = measure(p, busy, alone, cores, &err);
    }
    if (status == CLV_OK) {
        fill_rest(p, cores);
        status = clv_machine_write(p, a.out, &err);
    }
    code = status == CLV_OK ? report(&a, p) : clv_command_report(argv[0], &err);
    clv_machine_free(p);
    free(busy);
    free(alone);
    return code;
}
