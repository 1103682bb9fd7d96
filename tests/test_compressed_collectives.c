/* test_compressed_collectives.c - steps that carry their tensors rounded: which do, how many bytes they move, how far
 * results are off at most, that all who hold an element hold the same bits, and what becomes of NaN and infinity. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/model.h"
#include "cleave/plan.h"
#include "gpt_block.h"
#include "mpi_test_job.h"
#include "program/program.h"
#include "random_layout.h"
#include "runtime/session/executor.h"
#include "runtime/session/session_internal.h"
#include "unit_test.h"

enum { MOST = 16, BATCH = 4, SEQ = 12, WIDTH = 64, FFN = 96, HEADS = 6, ROOM = 4 * WIDTH * FFN };

typedef struct carried {
    clv_comm_dtype as;
    clv_dtype dtype;
    double off;      /* of an element, at most, relative to it ... */
    bool by_largest; /* ... or to the largest */
} carried;

static const carried ways[] = {{CLV_COMM_BF16, CLV_BF16, 0x1p-8, false},
                               {CLV_COMM_F16, CLV_F16, 0x1p-11, false},
                               {CLV_COMM_Q8, CLV_U8, 1.0 / 251, true}};

enum { N_WAYS = sizeof ways / sizeof *ways };

static clv_program *must_compile(clv_graph *graph, clv_comm_dtype as)
{
    clv_error err = {0};
    clv_program *program;
    clv_compile_options options = {.size = sizeof options, .comm_dtype = as, .keep_decisions = true};
    must(clv_compile(&program, graph, &options, &err), &err);
    must(clv_program_verify(program, &err), &err);
    return program;
}

static clv_session *must_open(const clv_program *program)
{
    clv_error err = {0};
    clv_session *session;
    const clv_session_options options = {.size = sizeof options, .seed = 3, .check = 1};
    must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
    return session;
}

static clv_collective step_at(const clv_program *program, int i)
{
    clv_error err = {0};
    clv_collective step = {.size = sizeof step};
    must(clv_program_collective(program, i, &step, &err), &err);
    return step;
}

/* ---- which steps, and their bytes ---- */

typedef struct split {
    const char *mesh, *rules;
} split;

static const split splits[] = {{"model=2", "megatron"},    {"model=3", "megatron-sp"},
                               {"model=5", "megatron-sp"}, {"data=2,model=2", "fsdp+megatron-sp"},
                               {"data=3", "fsdp"},         {"data=4", "zero1"}};

enum { N_SPLITS = sizeof splits / sizeof *splits };

static clv_graph *must_block(const split *s)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    must(clv_mesh_parse(&mesh, s->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, s->rules, &mesh, &err), &err);
    return must_block_with_gradients(&mesh, &rules, (int64_t[]){BATCH, SEQ, WIDTH}, 4, FFN);
}

/* The same steps but for what they carry; those that carry it rounded move as much less. *returns how many do. */
static int compare_steps(const clv_program *full, const clv_program *rounded, const carried *way)
{
    int n = clv_program_collective_count(full), found = 0;
    double less = (double)clv_dtype_size(way->dtype) / 4;
    assert_int_equal(clv_program_collective_count(rounded), n);
    for (int i = 0; i < n; i++) {
        clv_collective a = step_at(full, i), b = step_at(rounded, i);
        assert_string_equal(a.kind, b.kind);
        assert_string_equal(a.tensor, b.tensor);
        assert_true(clv_layout_equal(&a.from, &b.from) && clv_layout_equal(&a.to, &b.to));
        if (b.type.dtype == a.type.dtype) {
            assert_true(a.bytes == b.bytes);
            assert_string_equal(a.cause, b.cause);
            continue;
        }
        assert_int_equal(a.type.dtype, CLV_F32);
        assert_int_equal(b.type.dtype, way->dtype);
        assert_true(b.bytes == a.bytes * less);
        assert_non_null(strstr(b.cause, clv_comm_dtype_name(way->as)));
        found++;
    }
    return found;
}

static double total_bytes(const clv_program *program)
{
    double bytes = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++)
        bytes += step_at(program, i).bytes;
    return bytes;
}

/* In 8 bits a sum is two steps or one, and no step moves sums. */
static void compare_totals(clv_graph *graph, const clv_program *packed)
{
    clv_program *halved = must_compile(graph, CLV_COMM_BF16);
    int found = 0;
    for (int i = 0; i < clv_program_collective_count(packed); i++) {
        clv_collective step = step_at(packed, i);
        found += step.type.dtype == CLV_U8;
        assert_true(step.type.dtype != CLV_U8 || strstr(step.kind, "reduce") == NULL);
    }
    assert_true(found >= 2);
    assert_true(total_bytes(packed) < 0.8 * total_bytes(halved));
    clv_program_free(halved);
}

static void test_bytes(void **state)
{
    for (int s = 0; s < N_SPLITS; s++)
        for (int w = 0; w < N_WAYS; w++) {
            clv_graph *graph = must_block(&splits[s]);
            clv_program *full = must_compile(graph, CLV_COMM_F32), *rounded = must_compile(graph, ways[w].as);
            if (ways[w].as == CLV_COMM_Q8)
                compare_totals(graph, rounded);
            else if (compare_steps(full, rounded, &ways[w]) < 2)
                fail_msg("%s on %s: next to nothing is carried rounded", splits[s].rules, splits[s].mesh);
            assert_true(clv_program_digest(full) != clv_program_digest(rounded));
            clv_program_free(full);
            clv_program_free(rounded);
            clv_graph_free(graph);
        }
}

/* Predicted where the network is slow: casts cost less than they save. */
static void test_prediction(void **state)
{
    clv_error err = {0};
    clv_machine *machine;
    clv_prediction full = {.size = sizeof full}, rounded = {.size = sizeof rounded};
    clv_mesh mesh;
    const clv_plan_block block = CLV_PLAN_BLOCK_GPT;
    clv_plan_options o = {.size = sizeof o, .block = block, .mode = CLV_PLAN_MODE_GRAD, .hidden = 4096, .mesh = &mesh};
    clv_program *program;
    (void)state;
    must(clv_machine_open(&machine, "h100-nvlink-ib", NULL, &err), &err);
    must(clv_mesh_parse(&mesh, "model=16", &err), &err);
    o.heads = 32;
    o.compile.machine = machine;
    must(clv_plan_compile(&program, &o, &err), &err);
    must(clv_program_predict(program, machine, &full, &err), &err);
    clv_program_free(program);
    o.compile.comm_dtype = CLV_COMM_BF16;
    must(clv_plan_compile(&program, &o, &err), &err);
    must(clv_program_predict(program, machine, &rounded, &err), &err);
    clv_program_free(program);
    assert_true(rounded.communication < 0.65 * full.communication);
    assert_true(rounded.seconds < full.seconds);
    clv_machine_free(machine);
}

/* The report of a program lists each of its instructions, casts too. */
static void test_tellings(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_block(&splits[3]);
    clv_program *program = must_compile(graph, CLV_COMM_BF16);
    int casts = 0;
    assert_int_equal(clv_program_decision_count(program), clv_program_instruction_count(program));
    for (int i = 0; i < clv_program_decision_count(program); i++) {
        clv_partition_decision row = {.size = sizeof row};
        must(clv_program_decision(program, i, &row, &err), &err);
        assert_int_equal(row.instruction, i);
        assert_non_null(row.why);
        casts += strcmp(row.kind, "cast") == 0 && strstr(row.why, "sends it as bf16") && row.seconds > 0;
    }
    assert_true(casts > 10);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* ---- what is left as it is ---- */

static clv_program *training_step(const split *s, clv_comm_dtype as)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_program *program;
    clv_graph *graph;
    const clv_model_info sizes = {.size = sizeof sizes,
                                  .hidden = 64,
                                  .layers = 1,
                                  .heads = 4,
                                  .ffn = 128,
                                  .vocab = 256,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_mesh_parse(&mesh, s->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, s->rules, &mesh, &err), &err);
    const clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules};
    must(clv_model_new(&model, &sizes, &options, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_model_train_step(
        graph, model, &(clv_model_graph_options){.size = sizeof(clv_model_graph_options), .batch = 4, .seq = 64}, NULL);
    program = must_compile(graph, as);
    clv_graph_free(graph);
    clv_model_close(model);
    return program;
}

/* The cross-entropy's maximum and sums, the loss, and weights as they are updated. */
static void test_left_as_they_are(void **state)
{
    int statistics = 0, states = 0, rounded = 0;
    for (int s = 0; s < N_SPLITS; s++) {
        clv_program *program = training_step(&splits[s], CLV_COMM_BF16);
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective step = step_at(program, i);
            bool statistic = strstr(step.tensor, "xent") || strstr(step.tensor, "count_labels") ||
                             strstr(step.tensor, "loss") || strstr(step.tensor, "moments");
            bool of_state = strstr(step.tensor, "adamw") != NULL;
            statistics += statistic && strcmp(step.kind, "slice") != 0;
            states += of_state && step.bytes > 0;
            rounded += step.type.dtype == CLV_BF16;
            if ((statistic || of_state) && step.type.dtype == CLV_BF16)
                fail_msg("%s of %s is carried as bf16", step.kind, step.tensor);
        }
        clv_program_free(program);
    }
    assert_true(statistics > 3);
    assert_true(states > 0);
    assert_true(rounded > 30);
}

/* Gradients of a maximum go to the elements that equal it, wherever they are looked for. */
static void test_operand_of_a_maximum(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("a=2");
    clv_layout cut = clv_graph_layout(graph, 2, "a,_"), other = clv_graph_layout(graph, 2, "_,a");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){32, 32}, &cut), d;
    clv_value most = clv_reduce(graph, CLV_MAX, clv_constrain(graph, x, &other), (int[]){1}, 1, false);
    static float values[1024], gradient[1024];
    clv_gradients(graph, clv_reduce(graph, CLV_SUM, most, (int[]){0}, 1, false), CLV_NONE, &x, 1, &d);
    clv_output(graph, "d", d, &cut);
    clv_program *program = must_compile(graph, CLV_COMM_BF16);
    clv_session *session = must_open(program);
    clv_random_normal(values, clv_key_seed(7), 0, 1024);
    must(clv_session_run(session, program, &(clv_input_binding){"x", values}, 1, &(clv_output_binding){"d", gradient},
                         1, &err),
         &err);
    for (int row = 0; row < 32; row++) {
        float sum = 0;
        for (int c = 0; c < 32; c++)
            sum += gradient[32 * row + c];
        assert_true(sum == 1);
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

static void test_refused(void **state)
{
    clv_error err = {0};
    clv_comm_dtype as = CLV_COMM_F16;
    clv_graph *graph = must_graph("a=2");
    clv_program *program = NULL;
    assert_int_equal(clv_compile(&program, graph,
                                 &(clv_compile_options){.size = sizeof(clv_compile_options), .comm_dtype = 77}, &err),
                     CLV_EDTYPE);
    err = (clv_error){0};
    assert_int_equal(clv_comm_dtype_parse(&as, "f64", &err), CLV_EDTYPE);
    assert_int_equal(as, CLV_COMM_F16);
    assert_non_null(strstr(err.message, "bf16"));
    assert_string_equal(clv_comm_dtype_name((clv_comm_dtype)-1), "unknown");
    clv_graph_free(graph);
}

/* ---- how far a step is off, and that all have the same ---- */

enum { ELEMS = 4096 };

/* What each rank of this process holds of the output is, bit for bit, what the caller was given. */
static void check_holders(const clv_session *session, const clv_program *program, const float *given)
{
    for (int r = session->first_local_rank; r < session->first_local_rank + session->n_local_ranks; r++) {
        const clv_view *held = clv_loaded_program_view(session->loaded[0], r, program->outputs[0].buffer);
        const float *at = held->data;
        for (int64_t i = 0; i < held->shape[0]; i++)
            for (int64_t j = 0; j < held->shape[1]; j++, at++)
                if (memcmp(at, &given[(held->lo[0] + i) * held->global[1] + held->lo[1] + j], sizeof *at) != 0)
                    fail_msg("rank %d holds %g where the caller got another value", r, (double)*at);
    }
}

static void run_checked(clv_graph *graph, clv_comm_dtype as, const clv_input_binding *inputs, int n, float *y)
{
    clv_error err = {0};
    clv_program *program = must_compile(graph, as);
    clv_session *session = must_open(program);
    must(clv_session_run(session, program, inputs, n, &(clv_output_binding){"y", y}, 1, &err), &err);
    check_holders(session, program, y);
    clv_session_free(session);
    clv_program_free(program);
}

static double largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* From any layout to any other. */
static void move_case(const carried *way, uint64_t seed)
{
    static float x[ELEMS], y[ELEMS];
    clv_error err = {0};
    any_seed(seed);
    clv_mesh mesh = any_mesh(6);
    int64_t shape[] = {any_size(40), any_size(40)};
    clv_layout from = any_layout(&mesh, 2, shape, NULL), to = any_layout(&mesh, 2, shape, NULL);
    clv_graph *graph;
    int64_t n = shape[0] * shape[1];
    assert_true(n <= ELEMS);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_random_normal(x, clv_key_seed(seed), 0, ELEMS);
    clv_value moved = clv_constrain(graph, clv_input(graph, "x", CLV_F32, 2, shape, &from), &to);
    clv_output(graph, "y", moved, &to);
    run_checked(graph, way->as, &(clv_input_binding){"x", x}, 1, y);
    double most = largest(x, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)y[i] - (double)x[i]) <= way->off * (way->by_largest ? most : fabs((double)x[i]))))
            fail_msg("seed %llu: %g became %g", (unsigned long long)seed, (double)x[i], (double)y[i]);
    clv_graph_free(graph);
}

/* Processes of a launcher are slow to meet. */
static uint64_t cases(void)
{
    return launched_job() ? 5 : 30;
}

static void test_transfer_boxes(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (uint64_t seed = 1; seed <= cases(); seed++)
            move_case(&ways[w], seed);
}

/* y[i,j] = sum over k of a[i,k] b[k,j], an addend a rank, brought to any layout. */
static void sum_case(const carried *way, int ranks, uint64_t seed)
{
    static float a[ELEMS], b[ELEMS], y[ELEMS];
    clv_error err = {0};
    clv_mesh mesh = {.n_axes = 2, .axis = {{"x", ranks}, {"z", ranks < 3 ? 2 : 1}}};
    clv_graph *graph;
    any_seed(seed);
    int64_t rows = any_size(40), columns = any_size(40);
    int64_t shape[] = {rows, columns};
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout by_k = clv_graph_layout(graph, 2, "_,x"), k_by = clv_graph_layout(graph, 2, "x,_");
    clv_layout to = any_layout(&mesh, 2, shape, NULL);
    clv_value in[] = {clv_input(graph, "a", CLV_F32, 2, (int64_t[]){rows, ranks}, &by_k),
                      clv_input(graph, "b", CLV_F32, 2, (int64_t[]){ranks, columns}, &k_by)};
    clv_keep_stationary(graph, in[0], "x");
    clv_keep_stationary(graph, in[1], "x");
    clv_output(graph, "y", clv_constrain(graph, clv_einsum(graph, "ik,kj->ij", in[0], in[1]), &to), &to);
    clv_random_normal(a, clv_key_seed(seed), 0, ELEMS);
    clv_random_normal(b, clv_key_seed(seed + 1), 0, ELEMS);
    run_checked(graph, way->as, (clv_input_binding[]){{"a", a}, {"b", b}}, 2, y);
    double most = ranks * largest(a, rows * ranks) * largest(b, ranks * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < ranks; k++) {
                double addend = (double)a[i * ranks + k] * (double)b[k * columns + j];
                sum += addend;
                size += fabs(addend);
            }
            /* each addend, the sum, and once more where it is gathered or moved on */
            double off = 3 * way->off * (way->by_largest ? most : size) + 1e-6 * size;
            if (!(fabs((double)y[i * columns + j] - sum) <= off))
                fail_msg("seed %llu: %g became %g", (unsigned long long)seed, sum, (double)y[i * columns + j]);
        }
    clv_graph_free(graph);
}

static void test_sums(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (uint64_t seed = 1; seed <= cases(); seed++)
            sum_case(&ways[w], 2 + (int)(seed % 4), seed);
}

/* ---- what does not fit ---- */

static void test_nonfinite_propagation(void **state)
{
    clv_error err = {0};
    static float x[1024], y[1024];
    for (int w = 0; w < N_WAYS; w++) {
        clv_graph *graph = must_graph("a=2");
        clv_layout cut = clv_graph_layout(graph, 2, "a,_"), whole = clv_layout_replicated(2);
        clv_value in = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){32, 32}, &cut);
        clv_output(graph, "y", clv_constrain(graph, in, &whole), &whole);
        clv_random_normal(x, clv_key_seed(1), 0, 1024);
        x[5] = NAN, x[600] = INFINITY, x[700] = -INFINITY;
        run_checked(graph, ways[w].as, &(clv_input_binding){"x", x}, 1, y);
        for (int i = 0; i < 1024; i++)
            assert_true(isnan(x[i]) ? isnan(y[i]) : isinf(x[i]) ? y[i] == x[i] : isfinite(y[i]));
        clv_graph_free(graph);
    }
    assert_int_equal(err.code, CLV_OK);
}

/* A number that the narrow dtype does not hold is infinite there: found where it becomes so. */
static void test_overflow_is_found(void **state)
{
    clv_error err = {0};
    static float x[1024], y[1024];
    clv_graph *graph = must_graph("a=2");
    clv_layout cut = clv_graph_layout(graph, 2, "a,_"), whole = clv_layout_replicated(2);
    clv_value in = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){32, 32}, &cut);
    clv_session *session;
    const clv_session_options options = {.size = sizeof options, .find_nonfinite = 1};
    clv_output(graph, "y", clv_constrain(graph, in, &whole), &whole);
    clv_program *program = must_compile(graph, CLV_COMM_F16);
    x[77] = 70000;
    must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
    assert_int_equal(
        clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err),
        CLV_ENONFINITE);
    assert_non_null(strstr(err.message, "cast"));
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* ---- a block and its gradients ---- */

typedef struct gradients {
    int n;
    float *d[MOST];
} gradients;

static void run_block(gradients *out, clv_graph *graph, clv_comm_dtype as)
{
    static char names[MOST][16];
    static float x[BATCH * SEQ * WIDTH];
    clv_error err = {0};
    clv_output_binding outputs[MOST];
    clv_program *program = must_compile(graph, as);
    clv_session *session = must_open(program);
    clv_random_normal(x, clv_key_seed(9), 0, BATCH * SEQ * WIDTH);
    out->n = program->n_outputs;
    for (int i = 0; i < out->n; i++) {
        snprintf(names[i], sizeof names[i], "d%d", i);
        out->d[i] = calloc(ROOM, sizeof(float));
        outputs[i] = (clv_output_binding){names[i], out->d[i]};
    }
    must(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, outputs, out->n, &err), &err);
    clv_session_free(session);
    clv_program_free(program);
}

/* How far gradients are off, relative to the largest of each; they must be off at all. */
static void test_blocks(void **state)
{
    for (int s = 0; s < N_SPLITS; s++)
        for (int w = 0; w < N_WAYS; w++) {
            clv_graph *graph = must_block(&splits[s]);
            gradients full, rounded;
            double most = 0;
            run_block(&full, graph, CLV_COMM_F32);
            run_block(&rounded, graph, ways[w].as);
            for (int i = 0; i < full.n; i++) {
                double scale = largest(full.d[i], ROOM);
                for (int k = 0; k < ROOM; k++)
                    most = fmax(most, fabs((double)full.d[i][k] - (double)rounded.d[i][k]) / scale);
                free(full.d[i]);
                free(rounded.d[i]);
            }
            if (!(most > 0 && most <= 8 * ways[w].off))
                fail_msg("%s on %s as %s: off by %g", splits[s].rules, splits[s].mesh, clv_comm_dtype_name(ways[w].as),
                         most);
            clv_graph_free(graph);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_tellings),
        cmocka_unit_test(test_left_as_they_are),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_operand_of_a_maximum),
        cmocka_unit_test(test_transfer_boxes),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_nonfinite_propagation),
        cmocka_unit_test(test_overflow_is_found),
        cmocka_unit_test(test_blocks),
    };
    const struct CMUnitTest launched[] = {cmocka_unit_test(test_transfer_boxes), cmocka_unit_test(test_sums),
                                          cmocka_unit_test(test_nonfinite_propagation), cmocka_unit_test(test_blocks)};
    return launched_job() ? cmocka_run_group_tests(launched, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
