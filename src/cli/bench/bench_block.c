/* bench_block.c - the `cleave bench block` benchmark: a stack of transformer blocks, forward or forward and backward,
 * no optimizer. The work is that of usual tensor-parallel benchmarks: RMSNorm, causal attention without rotary
 * embedding, no biases; the loss is the mean of y^2, its gradients are taken for all weights and the input; there is
 * no optimizer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cleave/nn.h"
#include "cleave/session.h"
#include "cleave/status.h"
#include "cli/bench/bench_matmuls.h"
#include "cli/timing/clock.h"
#include "cli/command.h"
#include "cli/options/hardware_option.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/timing/op_times.h"
#include "cli/parser/option_parser.h"
#include "cli/job/job_processes.h"
#include "cli/reports/collective_tables.h"
#include "cli/options/output_options.h"
#include "cli/reports/print_program.h"
#include "cli/bench/resident_memory.h"
#include "cli/options/run_options.h"
#include "cli/options/size_options.h"
#include "cli/output/table.h"
#include "cli/options/trace_option.h"
#include "cli/options/auto_parallelism.h"

typedef struct block_args {
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, batch, seq, threads, iterations;
    clv_mesh_option mesh;
    bool gated, train, products, overlap, program;
    clv_table_format form;
    clv_comm_option comm;
    const char *dtype, *comm_dtype, *hardware, *trace_out;
} block_args;

static int parse(block_args *a, int argc, char **argv)
{
    const int64_t most = 1 << 20;
    const clv_option options[] = {
        CLV_HIDDEN_OPTION(&a->hidden, 1, most, "N", "width (512)"),
        CLV_LAYERS_OPTION(&a->layers, 1, 10000, "N", "blocks (4)"),
        CLV_HEADS_OPTION(&a->heads, 1, most, "N", "query heads (8)"),
        CLV_KV_HEADS_OPTION(&a->kv_heads, 0, most, "N", "key and value heads; 0: as many as query heads"),
        CLV_HEAD_DIM_OPTION(&a->head_dim, 0, most, "N", "width of a head; 0: the block's by its heads"),
        CLV_FFN_OPTION(&a->ffn, 1, most, "N", "feed-forward width (2048)"),
        {.names = "--gated", .kind = CLV_OPTION_FLAG, .out = &a->gated, .help = "silu-gated MLP instead of gelu"},
        CLV_BATCH_OPTION(&a->batch, 1, most, "N", "sequences (4)"),
        CLV_SEQ_OPTION(&a->seq, 1, most, "N", "tokens a sequence (512)"),
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        {.names = "--train", .kind = CLV_OPTION_FLAG, .out = &a->train, .help = "forward and backward"},
        {.names = "--products",
         .kind = CLV_OPTION_FLAG,
         .out = &a->products,
         .conflicts_with = "--program",
         .help = "after each timed run its products alone, on all ranks at once: what a run can take at the least"},
        CLV_DTYPE_OPTION(&a->dtype),
        CLV_OVERLAP_OPTION(&a->overlap),
        CLV_COMM_DTYPE_OPTION(&a->comm_dtype, NULL),
        CLV_THREADS_OPTION(&a->threads, "--program"),
        CLV_COMM_OPTIONS(&a->comm),
        {.names = "--iterations",
         .kind = CLV_OPTION_INT,
         .out = &a->iterations,
         .min = 1,
         .max = most,
         .value = "N",
         .conflicts_with = "--program",
         .help = "timed runs (7)"},
        {.names = "--program",
         .kind = CLV_OPTION_FLAG,
         .out = &a->program,
         .help = "print the compiled program instead of running it"},
        CLV_TRACE_OUT_OPTION(&a->trace_out, "--program", "write a trace of the timed runs there, for cleave trace"),
        CLV_HARDWARE_OPTION(&a->hardware, NULL),
        CLV_FORMAT_OPTIONS(&a->form, "--program", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* The mean of y^2, in f32. */
static clv_value mean_square(clv_graph *graph, clv_value y)
{
    clv_value wide = clv_cast(graph, y, CLV_F32);
    return clv_reduce(graph, CLV_MEAN, clv_mul(graph, wide, wide), (int[]){0, 1, 2}, 3, false);
}

/* Of all state, x among it. Gradients become state, so that they are computed and stay where a training step would keep
 * them. */
static void add_gradients(clv_graph *graph, clv_value loss)
{
    int n = clv_graph_parameters(graph, NULL, 0);
    clv_value *wrt = calloc((size_t)n + 1, sizeof *wrt), *d = calloc((size_t)n + 1, sizeof *d);
    if (wrt && d) {
        clv_graph_parameters(graph, wrt, n);
        clv_gradients(graph, loss, CLV_NONE, wrt, n, d);
        for (int i = 0; i < n; i++) {
            char name[256];
            clv_type type = clv_graph_type(graph, wrt[i]);
            clv_layout layout = clv_value_layout(graph, wrt[i]);
            snprintf(name, sizeof name, "d.%s", clv_value_name(graph, wrt[i]));
            clv_assign(
                graph,
                clv_state(graph, name, type.dtype, type.rank, type.shape, &layout, (clv_init){CLV_INIT_ZEROS, 0}),
                d[i]);
        }
    }
    free(wrt);
    free(d);
}

static clv_status compile(clv_program **out, const block_args *a, const clv_mesh *mesh, const clv_axis_rules *rules,
                          const clv_machine *machine, clv_error *err)
{
    clv_graph *graph;
    clv_dtype dtype;
    clv_compile_options options = {.size = sizeof options, .machine = machine, .overlap = a->overlap};
    CLV_TRY(clv_dtype_parse(&dtype, a->dtype, err));
    CLV_TRY(clv_comm_dtype_parse(&options.comm_dtype, a->comm_dtype, err));
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_layout layout = clv_residual_layout(graph, rules, 3);
    clv_value x = clv_state(graph, "x", dtype, 3, (int64_t[]){a->batch, a->seq, a->hidden}, &layout,
                            (clv_init){CLV_INIT_NORMAL, 1});
    clv_value y = x;
    clv_block_options block = clv_block_defaults(CLV_BLOCK_LLAMA, a->heads, a->kv_heads, a->ffn);
    block.attention.rope.theta = 0;
    block.attention.head_dim = a->head_dim;
    block.mlp.gated = a->gated;
    block.mlp.activation = a->gated ? CLV_SILU : CLV_GELU;
    for (int64_t layer = 0; layer < a->layers; layer++) {
        clv_graph_push_scope(graph, "layers.%lld", (long long)layer);
        y = clv_transformer_block(graph, y, rules, &block);
        clv_graph_pop_scope(graph);
    }
    clv_value loss = mean_square(graph, y);
    if (a->train)
        add_gradients(graph, loss);
    clv_output(graph, "loss", loss, NULL);
    clv_status status = clv_compile(out, graph, &options, err);
    clv_graph_free(graph);
    return status;
}

/* Products and causal attention (half of its square), times three with the backward pass. */
static double work(const block_args *a)
{
    double rows = (double)(a->batch * a->seq), m = (double)a->hidden;
    double kv = a->kv_heads ? (double)a->kv_heads / (double)a->heads : 1;
    double heads = a->head_dim ? (double)(a->heads * a->head_dim) : m;
    double products = 2 * rows * (2 * m * heads * (1 + kv) + (a->gated ? 3 : 2) * m * (double)a->ffn);
    double attention = 2 * rows * (double)a->seq * heads;
    return (double)a->layers * (products + attention) * (a->train ? 3 : 1);
}

/* What was measured. */
typedef struct measured {
    double *seconds; /* [iterations], in order */
    clv_session_stats stats;
    clv_bench_matmuls *products; /* NULL: were not */
    int64_t resident;
} measured;

static clv_status measure_one(measured *m, int64_t i, clv_session *session, const clv_program *program,
                              clv_output_binding *output, clv_error *err)
{
    clv_session_stats run = {.size = sizeof run};
    CLV_TRY(clv_trace_step(session, i, err));
    CLV_TRY(clv_session_run(session, program, NULL, 0, output, 1, err));
    CLV_TRY(clv_trace_step(session, -1, err));
    if (m->products)
        CLV_TRY(clv_bench_matmuls_run(m->products, session, &run, err));
    else
        CLV_TRY(clv_session_take_stats(session, &run, err));
    m->seconds[i] = run.seconds;
    m->stats.seconds += run.seconds;
    m->stats.comm_seconds += run.comm_seconds;
    m->stats.overlapped_seconds += run.overlapped_seconds;
    return CLV_OK;
}

/* Timed runs are traced: 50 ns an instruction, of milliseconds. */
static clv_status measure(measured *m, clv_session *session, const clv_program *program, int64_t n, clv_error *err)
{
    float loss;
    clv_output_binding output = {"loss", &loss};
    for (int warm_up = 0; warm_up < 2; warm_up++)
        CLV_TRY(clv_session_run(session, program, NULL, 0, &output, 1, err));
    clv_session_take_stats(session, NULL, NULL);
    CLV_TRY(clv_trace_begin(session, err));
    for (int64_t i = 0; i < n; i++)
        CLV_TRY(measure_one(m, i, session, program, &output, err));
    if (!isfinite(loss))
        return clv_fail(err, CLV_EINVAL, "the result is not a number");
    clv_times_sort(m->seconds, n);
    return CLV_OK;
}

static clv_status report(clv_table *t, const block_args *a, const clv_program *program, const measured *m,
                         const clv_machine *machine, clv_session *session, clv_error *err)
{
    const clv_session_stats *stats = &m->stats;
    double median = m->seconds[a->iterations / 2];
    clv_memory memory = {.size = sizeof memory};
    clv_program_memory(program, &memory, NULL);
    clv_table_real(t, "median_ms", 1e3 * median);
    clv_table_real(t, "min_ms", 1e3 * m->seconds[0]);
    clv_table_real(t, "gflops", 1e-9 * work(a) / median);
    clv_table_fraction(t, "comm_share", stats->comm_seconds / stats->seconds);
    clv_table_real(t, "hidden_ms", 1e3 * stats->overlapped_seconds / (double)a->iterations);
    clv_table_fraction(t, "hidden_share", clv_overlapped_fraction(stats->overlapped_seconds, stats->comm_seconds));
    clv_table_real(t, "tokens_per_s", (double)(a->batch * a->seq) / median);
    clv_table_bytes(t, "region_bytes_per_rank", (double)clv_program_region_bytes(program));
    clv_table_bytes(t, "planned_bytes_per_rank", (double)memory.total);
    clv_table_bytes(t, "resident_bytes", (double)m->resident);
    if (a->hardware) {
        clv_prediction predicted = {.size = sizeof predicted};
        clv_program_predict(program, machine, &predicted, NULL);
        clv_table_real(t, "predicted_ms", 1e3 * predicted.seconds);
        clv_table_fraction(t, "predicted_comm_share", predicted.communication / predicted.seconds);
        clv_table_real(t, "predicted_hidden_ms", 1e3 * predicted.overlapped_s);
        clv_table_fraction(t, "predicted_hidden_share",
                           clv_overlapped_fraction(predicted.overlapped_s, predicted.communication));
        clv_table_real(t, "predicted_over_measured", predicted.seconds / median);
    }
    if (m->products)
        clv_bench_matmuls_add(t, m->products);
    return clv_op_times_end_trace(t, session, a->trace_out, machine, err);
}

int bench_block(int argc, char **argv)
{
    block_args a = {.hidden = 512,
                    .layers = 4,
                    .heads = 8,
                    .ffn = 2048,
                    .batch = 4,
                    .seq = 512,
                    .iterations = 7,
                    .dtype = "f32",
                    .comm_dtype = "f32"};
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program = NULL;
    clv_session *session = NULL;
    measured m = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_auto_parallelism whole = clv_auto_parallelism_fill(&a.mesh, &a.threads, a.kv_heads ? a.kv_heads : a.heads);
    m.seconds = calloc((size_t)a.iterations, sizeof *m.seconds);
    clv_session_options options = {.size = sizeof options,
                                   .threads_per_rank = (int)a.threads,
                                   .seed = 1,
                                   .trace = a.products,
                                   .timeout_ms = clv_comm_option_timeout_ms(&a.comm)};
    clv_machine *machine = NULL;
    clv_status status = m.seconds ? CLV_OK : clv_fail_memory(&err, "timings", sizeof *m.seconds);
    if (status == CLV_OK)
        status = clv_hardware_option_open(&machine, a.hardware, &err);
    if (status == CLV_OK)
        status = clv_mesh_option_read(&mesh, &a.mesh, &err);
    if (status == CLV_OK)
        status = clv_mesh_option_rules(&rules, &a.mesh, &mesh, &err);
    if (status == CLV_OK)
        status = compile(&program, &a, &mesh, &rules, machine, &err);
    int64_t before = clv_resident_bytes();
    if (status == CLV_OK && !a.program)
        status = clv_processes_job_of_mesh(&options.job, &a.comm, &mesh, &err);
    if (status == CLV_OK)
        status = clv_flight_option_open(&options.flight, a.comm.flight, &err);
    if (status == CLV_OK && !a.program)
        status = clv_session_new(&session, &mesh, &options, &err);
    if (status == CLV_OK)
        clv_auto_parallelism_print(whole, argv[0]);
    if (status == CLV_OK && !a.program)
        clv_mesh_option_warn_oversubscribed(&mesh, argv[0]);
    if (status == CLV_OK && a.products)
        status = clv_bench_matmuls_new(&m.products, program, a.iterations, &err);
    if (status == CLV_OK && !a.program)
        status = measure(&m, session, program, a.iterations, &err);
    m.resident = clv_resident_bytes() - before;
    clv_table *t = clv_table_new(NULL);
    if (status == CLV_OK && !a.program)
        status = report(t, &a, program, &m, machine, session, &err);
    if (status != CLV_OK || a.program)
        clv_table_free(t);
    if (status != CLV_OK)
        code = clv_command_print_error(argv[0], &err);
    else
        code = a.program ? clv_print_program(program, clv_program_print) : clv_table_finish(t, &a.form);
    clv_session_free(session);
    clv_program_free(program);
    clv_bench_matmuls_free(m.products);
    free(m.seconds);
    clv_machine_free(machine);
    return code;
}
