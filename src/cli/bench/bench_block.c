/* bench_block.c - the `cleave bench block` benchmark: a stack of transformer blocks, forward or forward and backward,
 * no optimizer. The work is that of usual tensor-parallel benchmarks: RMSNorm, causal attention without rotary
 * embedding, no biases; the loss is the mean of y^2, its gradients are taken for all weights and the input; there is
 * no optimizer.
 */
#include <math.h>

#include "cleave/nn.h"
#include "cli/bench/bench_matmuls.h"
#include "cli/bench/bench_session.h"
#include "cli/timing/clock.h"
#include "cli/command.h"
#include "cli/options/model_options.h"
#include "cli/timing/op_times.h"
#include "cli/reports/collective_tables.h"
#include "cli/reports/program_text.h"
#include "cli/bench/resident_memory.h"
#include "cli/options/size_options.h"

typedef struct block_args {
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, batch, seq, threads, iterations;
    clv_mesh_option mesh;
    clv_dtype dtype;
    clv_compile_options compile;
    bool gated, train, products, program;
    clv_comm_option comm;
    const char *hardware, *trace_out;
    clv_machine *machine;
} block_args;

static bool parse(block_args *a, clv_invocation *run)
{
    const int64_t most = 1 << 20;
    const clv_option options[] = {
        CLV_HIDDEN_OPTION(&a->hidden, 1, most, "N", "width (512)"),
        CLV_LAYERS_OPTION(&a->layers, 1, 10000, "N", "blocks (4)"),
        CLV_HEADS_OPTION(&a->heads, 1, most, "N", "query heads (8)"),
        CLV_KV_HEADS_OPTION(&a->kv_heads, 0, most, "N", "key and value heads; 0: as many as query heads (0)"),
        CLV_HEAD_DIM_OPTION(&a->head_dim, 0, most, "N", "width of a head; 0: width / heads (0)"),
        CLV_FFN_OPTION(&a->ffn, 1, most, "N", "feed-forward width (2048)"),
        CLV_OPT_FLAG("--gated", &a->gated, "SiLU-gated MLP instead of GELU"),
        CLV_BATCH_OPTION(&a->batch, 1, most, "N", "sequences (4)"),
        CLV_SEQ_OPTION(&a->seq, 1, most, "N", "tokens a sequence (512)"),
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        CLV_OPT_FLAG("--train", &a->train, "forward and backward"),
        CLV_OPT_FLAG("--products", &a->products,
                     "after each timed run, run its matrix products alone on all ranks: a lower bound of its time",
                     .conflicts_with = "--program"),
        CLV_DTYPE_OPTION(&a->dtype),
        CLV_OVERLAP_OPTION(&a->compile),
        CLV_COMM_DTYPE_OPTION(&a->compile),
        CLV_THREADS_OPTION(&a->threads, "--program"),
        CLV_COMM_OPTIONS(&a->comm),
        CLV_ITERATIONS_OPTION(&a->iterations, "--program"),
        CLV_OPT_FLAG("--program", &a->program, "print the compiled program instead of running it"),
        CLV_TRACE_OUT_OPTION(&a->trace_out, "--program", "write a trace of the timed runs to FILE, for cleave trace"),
        CLV_HARDWARE_OPTION(&a->hardware, NULL),
        CLV_FORMAT_OPTIONS(&run->format, "--program", "print JSON"),
    };
    return CLV_PARSE(run, options);
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

/* --rules auto finds rules for a block of the size. */
static clv_status read_mesh(block_args *a, clv_error *err)
{
    const clv_plan_options workload = {.size = sizeof workload,
                                       .block = a->gated ? CLV_PLAN_BLOCK_LLAMA : CLV_PLAN_BLOCK_GPT,
                                       .mode = a->train ? CLV_PLAN_MODE_GRAD : CLV_PLAN_MODE_FORWARD,
                                       .batch = a->batch,
                                       .seq = a->seq,
                                       .hidden = a->hidden,
                                       .heads = a->heads,
                                       .kv_heads = a->kv_heads,
                                       .head_dim = a->head_dim,
                                       .ffn = a->ffn,
                                       .dtype = a->dtype,
                                       .compile = a->compile};
    a->mesh.workload = &workload;
    clv_status status = clv_mesh_option_resolve(&a->mesh, err);
    a->mesh.workload = NULL;
    return status;
}

static clv_status compile(clv_program **out, block_args *a, clv_error *err)
{
    clv_graph *graph;
    const clv_axis_rules *rules = &a->mesh.axis_rules;
    CLV_TRY(clv_hardware_option_open(&a->machine, a->hardware, NULL, err));
    a->compile.size = sizeof a->compile;
    a->compile.machine = a->machine;
    CLV_TRY(read_mesh(a, err));
    CLV_TRY(clv_graph_new(&graph, &a->mesh.mesh, err));
    clv_layout layout = clv_residual_layout(graph, rules, 3);
    clv_value x = clv_state(graph, "x", a->dtype, 3, (int64_t[]){a->batch, a->seq, a->hidden}, &layout,
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
    clv_status status = clv_compile(out, graph, &a->compile, err);
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

typedef struct measured {
    const clv_program *program;
    clv_session *session;
    double *seconds; /* [iterations], sorted */
    clv_session_stats stats;
    clv_bench_matmuls *products; /* NULL: not measured */
    int64_t resident;
} measured;

/* A timed run is traced: 50 ns an instruction, which take milliseconds. */
static clv_status time_run(void *arg, int64_t i, double *seconds, clv_error *err)
{
    measured *m = arg;
    float loss;
    clv_output_binding output = {"loss", &loss};
    clv_session_stats run = {.size = sizeof run};
    if (i == 0)
        CLV_TRY(clv_trace_begin(m->session, err));
    if (i >= 0)
        CLV_TRY(clv_trace_step(m->session, i, err));
    CLV_TRY(clv_session_run(m->session, m->program, NULL, 0, &output, 1, err));
    if (i >= 0)
        CLV_TRY(clv_trace_step(m->session, -1, err));
    if (m->products && i >= 0)
        CLV_TRY(clv_bench_matmuls_run(m->products, m->session, &run, err));
    else
        CLV_TRY(clv_session_take_stats(m->session, &run, err));
    if (!isfinite(loss))
        return clv_fail(err, CLV_EINVAL, "the result is not a number");
    *seconds = run.seconds;
    if (i < 0)
        return CLV_OK;
    m->stats.seconds += run.seconds;
    m->stats.comm_seconds += run.comm_seconds;
    m->stats.overlapped_seconds += run.overlapped_seconds;
    return CLV_OK;
}

static clv_status report(clv_table *t, const block_args *a, const measured *m, clv_error *err)
{
    const clv_program *program = m->program;
    const clv_session_stats *stats = &m->stats;
    double median = m->seconds[a->iterations / 2];
    clv_memory memory = {.size = sizeof memory};
    clv_program_memory(program, &memory, NULL);
    clv_table_real(t, "median_ms", 1e3 * median);
    clv_table_real(t, "min_ms", 1e3 * m->seconds[0]);
    clv_table_real(t, "gflops", 1e-9 * work(a) / median);
    clv_table_fraction(t, "comm_share", stats->comm_seconds / stats->seconds);
    clv_table_real(t, "overlapped_ms", 1e3 * stats->overlapped_seconds / (double)a->iterations);
    clv_table_fraction(t, "overlapped_share", clv_overlapped_fraction(stats->overlapped_seconds, stats->comm_seconds));
    clv_table_real(t, "tokens_per_s", (double)(a->batch * a->seq) / median);
    clv_table_bytes(t, "region_bytes_per_rank", (double)clv_program_region_bytes(program));
    clv_table_bytes(t, "planned_bytes_per_rank", (double)memory.total);
    clv_table_bytes(t, "resident_bytes", (double)m->resident);
    if (a->hardware) {
        clv_prediction predicted = {.size = sizeof predicted};
        clv_program_predict(program, a->machine, &predicted, NULL);
        clv_table_real(t, "predicted_ms", 1e3 * predicted.seconds);
        clv_table_fraction(t, "predicted_comm_share", predicted.communication / predicted.seconds);
        clv_table_real(t, "predicted_overlapped_ms", 1e3 * predicted.overlapped);
        clv_table_fraction(t, "predicted_overlapped_share",
                           clv_overlapped_fraction(predicted.overlapped, predicted.communication));
        clv_table_real(t, "predicted_over_measured", predicted.seconds / median);
    }
    if (m->products)
        clv_bench_matmuls_add(t, m->products);
    return clv_op_times_add_and_end_trace(t, m->session, a->trace_out, a->machine, err);
}

/* Opens a session, times the program in it, and reports. */
static clv_status run_program(clv_invocation *run, const block_args *a, clv_auto_parallelism chosen, measured *m,
                              clv_error *err)
{
    enum { WARM_UPS = 2 };
    const clv_session_options options = {.threads_per_rank = (int)a->threads, .seed = 1, .trace = a->products};
    int64_t before = clv_resident_bytes();
    CLV_TRY(clv_bench_session_new(&m->session, &a->mesh.mesh, options, &a->comm, err));
    clv_auto_parallelism_print(chosen, run->name);
    clv_mesh_option_warn_oversubscribed(&a->mesh.mesh, run->name);
    if (a->products)
        CLV_TRY(clv_bench_matmuls_new(&m->products, m->program, a->iterations, err));
    CLV_TRY(clv_times_measure(&m->seconds, WARM_UPS, a->iterations, time_run, m, err));
    m->resident = clv_resident_bytes() - before;
    run->table = clv_table_new(NULL);
    return report(run->table, a, m, err);
}

clv_status bench_block(clv_invocation *run, clv_error *err)
{
    block_args a = {.hidden = 512, .layers = 4, .heads = 8, .ffn = 2048, .batch = 4, .seq = 512, .iterations = 7};
    clv_program *program = NULL;
    measured m = {0};
    if (!parse(&a, run))
        return CLV_OK;
    clv_auto_parallelism chosen = clv_auto_parallelism_fill(&a.mesh, &a.threads, a.kv_heads ? a.kv_heads : a.heads);
    clv_status status = compile(&program, &a, err);
    m.program = program;
    if (status == CLV_OK && a.program)
        run->code = clv_print_program(program, clv_program_print);
    else if (status == CLV_OK)
        status = run_program(run, &a, chosen, &m, err);
    clv_session_free(m.session);
    clv_program_free(program);
    clv_bench_matmuls_free(m.products);
    free(m.seconds);
    clv_machine_free(a.machine);
    return status;
}
