/* test_session.c - sessions: bindings, state between programs and layouts, and what happens when a rank fails or is
 * late in the middle of a run. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "cleave/session.h"
#include "cleave/spmd.h"
#include "graph/graph.h"
#include "elementwise_op.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum { N = 12 };

static clv_program *compile(clv_graph *graph)
{
    clv_error err = {0};
    clv_program *program;
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_session *new_session(const char *mesh_text, int64_t timeout_ms)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_session_options options = {.timeout_ms = timeout_ms, .check = 1};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_session_new(&session, &mesh, &options, &err), &err);
    return session;
}

/* w := w + x, w kept in `layout`; output "sum" of the new w. */
static clv_program *adder_of(const char *mesh, const char *layout_text, int64_t n)
{
    clv_graph *graph = must_graph(mesh);
    clv_layout layout = clv_graph_layout(graph, 1, layout_text);
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){n}, NULL);
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){n}, &layout, (clv_init){CLV_INIT_ONES, 0});
    clv_value next = clv_add(graph, w, x);
    clv_assign(graph, w, next);
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, next, (int[]){0}, 1, false), NULL);
    return compile(graph);
}

static clv_program *adder(const char *mesh, const char *layout_text)
{
    return adder_of(mesh, layout_text, N);
}

static void test_state_between_layouts(void **state)
{
    clv_error err = {0};
    clv_program *whole = adder("x=3", "_"), *cut = adder("x=3", "x");
    clv_session *session = new_session("x=3", 0);
    float x[N], w[N], part[4], sum;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    clv_input_binding in = {"x", x};
    clv_output_binding out = {"sum", &sum};
    const clv_program *order[] = {whole, cut, cut, whole, cut};
    for (int run = 0; run < 5; run++) {
        must(clv_session_run(session, order[run], &in, 1, &out, 1, &err), &err);
        assert_true(sum == N + (float)(run + 1) * (N * (N - 1) / 2));
    }
    must(clv_session_read(session, "w", NULL, w, &err), &err);
    for (int i = 0; i < N; i++)
        assert_true(w[i] == 1 + 5 * (float)i);
    clv_shard box = {.rank = 1, .lo = {3}, .hi = {7}};
    must(clv_session_write(session, "w", &box, (float[]){-1, -2, -3, -4}, &err), &err);
    must(clv_session_read(session, "w", &box, part, &err), &err);
    assert_true(part[0] == -1 && part[3] == -4);
    clv_state_info info = {.size = sizeof info};
    must(clv_session_state(session, 0, &info, &err), &err);
    assert_string_equal(info.name, "w");
    must(clv_session_state(session, 1, &info, &err), &err);
    assert_null(info.name);
    clv_session_free(session);
    clv_program_free(whole);
    clv_program_free(cut);
}

/* State without dimensions has a first value, too. */
static void test_scalar_state(void **state)
{
    clv_error err = {0};
    float value = 0;
    clv_graph *graph = must_graph("x=3");
    clv_value w = clv_state(graph, "w", CLV_F32, 0, NULL, NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_output(graph, "twice", clv_add(graph, w, w), NULL);
    clv_program *program = compile(graph);
    clv_session *session = new_session("x=3", 0);
    clv_output_binding out = {"twice", &value};
    must(clv_session_run(session, program, NULL, 0, &out, 1, &err), &err);
    assert_true(value == 2);
    clv_session_free(session);
    clv_program_free(program);
}

static void expect(clv_status got, clv_status want, clv_error *err, const char *part)
{
    if (got != want || !strstr(err->message, part))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(want), part, clv_status_name(got),
                 err->message);
    *err = (clv_error){0};
}

static void test_refusals(void **state)
{
    clv_error err = {0};
    clv_program *program = adder("x=2", "x"), *other = adder("x=3", "x");
    clv_session *session = new_session("x=2", 0);
    float x[N] = {0};
    clv_input_binding in[] = {{"x", x}, {"y", x}};
    clv_output_binding out = {"nothing", x};
    clv_shard outside = {.rank = 1, .lo = {3}, .hi = {N + 1}};
    expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ENOTFOUND, &err, "'x' is not bound");
    expect(clv_session_run(session, program, in, 2, NULL, 0, &err), CLV_ENOTFOUND, &err, "no input 'y'");
    expect(clv_session_run(session, program, in, 1, &out, 1, &err), CLV_ENOTFOUND, &err, "no output 'nothing'");
    expect(clv_session_run(session, other, in, 1, NULL, 0, &err), CLV_EINVAL, &err, "x=3");
    expect(clv_session_read(session, "v", NULL, x, &err), CLV_ENOTFOUND, &err, "'v'");
    expect(clv_session_read(session, "w", &outside, x, &err), CLV_ESHAPE, &err, "] is not inside the state 'w', f32[");
    clv_graph *graph = must_graph("x=2");
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){N + 1}, NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_output(graph, "w", w, NULL);
    clv_program *larger = compile(graph);
    expect(clv_session_load(session, larger, &err), CLV_ESHAPE, &err, "'w' as f32[12], the program has it as f32[13]");
    clv_session_free(session);
    clv_program_free(program);
    clv_program_free(other);
    clv_program_free(larger);
}

/* ---- boxes in place of whole tensors ---- */

enum { ROWS = 7, COLUMNS = 5 };

/* y = 2 x, x laid out one way and y another. */
static clv_program *doubler(const char *mesh, const char *in, const char *out)
{
    clv_graph *graph = must_graph(mesh);
    clv_layout from = clv_graph_layout(graph, 2, in), to = clv_graph_layout(graph, 2, out);
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){ROWS, COLUMNS}, &from);
    clv_output(graph, "y", clv_add(graph, x, x), &to);
    return compile(graph);
}

static clv_layout layout_of(const clv_program *program, const char *text)
{
    clv_error err = {0};
    clv_layout layout;
    must(clv_layout_parse(&layout, text, clv_program_mesh(program), 2, &err), &err);
    return layout;
}

static float at(int64_t row, int64_t column)
{
    return (float)(row * COLUMNS + column);
}

/* Fills a box with x; or expects y there. */
static void fill_box(float *data, const clv_shard *box)
{
    for (int64_t r = box->lo[0]; r < box->hi[0]; r++)
        for (int64_t c = box->lo[1]; c < box->hi[1]; c++)
            *data++ = at(r, c);
}

static void expect_box(const float *data, const clv_shard *box)
{
    for (int64_t r = box->lo[0]; r < box->hi[0]; r++)
        for (int64_t c = box->lo[1]; c < box->hi[1]; c++)
            assert_true(*data++ == 2 * at(r, c));
}

/* Each rank's own shards, uneven and replicated ones too; or boxes that have nothing to do with the layouts and
 * overlap. */
static void test_parts(void **state)
{
    static const char *const cases[][3] = {{"x=3", "x,_", "_,x"},     {"x=3", "_,_", "x,_"},
                                           {"x=2,y=3", "y,x", "_,_"}, {"x=2,y=3", "_,(x,y)", "x,_"},
                                           {"x=5,y=2", "x,_", "_,y"}, {"x=1", "_,_", "_,_"}};
    static const clv_shard any[] = {{2, {0, 0}, {3, 5}}, {2, {2, 0}, {7, 3}}, {2, {3, 2}, {7, 5}}, {2, {7, 0}, {7, 5}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int own = 0; own < 2; own++) {
            static float in[12][ROWS * COLUMNS], out[12][ROWS * COLUMNS];
            clv_error err = {0};
            clv_session *session;
            clv_input_box in_parts[12];
            clv_output_box out_parts[12];
            clv_program *program = doubler(cases[c][0], cases[c][1], cases[c][2]);
            const clv_mesh *mesh = clv_program_mesh(program);
            const int64_t shape[] = {ROWS, COLUMNS};
            clv_layout from = layout_of(program, cases[c][1]), to = layout_of(program, cases[c][2]);
            int n = own ? (int)clv_mesh_rank_count(mesh) : 4;
            memset(out, 0xff, sizeof out);
            for (int p = 0; p < n; p++) {
                in_parts[p] = (clv_input_box){"x", own ? clv_layout_shard(&from, mesh, shape, p) : any[p], in[p]};
                out_parts[p] = (clv_output_box){"y", own ? clv_layout_shard(&to, mesh, shape, p) : any[3 - p], out[p]};
                fill_box(in[p], &in_parts[p].box);
                in_parts[p].data = clv_shard_elems(&in_parts[p].box) ? in[p] : NULL; /* nothing needs no memory */
                out_parts[p].data = clv_shard_elems(&out_parts[p].box) ? out[p] : NULL;
            }
            clv_run run = {.size = sizeof run,
                           .n_input_boxes = n,
                           .input_boxes = in_parts,
                           .n_output_boxes = n,
                           .output_boxes = out_parts};
            must(clv_session_new(&session, mesh, NULL, &err), &err);
            must(clv_session_run_boxes(session, program, &run, &err), &err);
            for (int p = 0; p < n; p++) {
                expect_box(out[p], &out_parts[p].box);
                int64_t elems = clv_shard_elems(&out_parts[p].box);
                if (elems < ROWS * COLUMNS) /* nothing after the box was written */
                    assert_true(out[p][elems] != out[p][elems]);
            }
            clv_session_free(session);
            clv_program_free(program);
        }
}

static clv_status return_late(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                              clv_error *err)
{
    if (clv_spmd_rank(spmd) == 1)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return CLV_OK;
}

/* As many boxes as there are elements, the last first; a missing one is found among them. */
static void test_many_parts(void **state)
{
    enum { MANY = 50000 };
    static float in[MANY], out[MANY];
    const int64_t shape[] = {MANY};
    clv_error err = {0};
    clv_session *session;
    clv_program *program;
    clv_input_box *parts = calloc(MANY, sizeof *parts);
    clv_graph *graph = must_graph("x=2");
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    assert_non_null(parts);
    for (int i = 0; i < MANY; i++) {
        in[i] = (float)i;
        parts[i] = (clv_input_box){"x", {1, {MANY - 1 - i}, {MANY - i}}, &in[MANY - 1 - i]};
    }
    clv_output(graph, "y", clv_scale(graph, clv_input(graph, "x", CLV_F32, 1, shape, &cut), 2), &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_run run = {.size = sizeof run,
                   .n_input_boxes = MANY,
                   .input_boxes = parts,
                   .n_outputs = 1,
                   .outputs = &(clv_output_binding){"y", out}};
    must(clv_session_new(&session, clv_program_mesh(program), NULL, &err), &err);
    must(clv_session_run_boxes(session, program, &run, &err), &err);
    for (int i = 0; i < MANY; i++)
        assert_true(out[i] == 2 * in[i]);
    parts[MANY - 1 - 7] = parts[0];
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "no box contains [7:8]");
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    free(parts);
}

/* Longer than anything that adds up nanoseconds can hold: for ever. */
static void test_endless_timeout(void **state)
{
    const int64_t long_ms[] = {INT64_MAX, INT64_MAX / 1000000, INT64_MAX / 2000000};
    for (int i = 0; i < 3; i++) {
        clv_error err = {0};
        clv_session *session;
        float x[ROWS * COLUMNS] = {0}, y[ROWS * COLUMNS];
        clv_program *program = doubler("x=3", "x,_", "_,x");
        must(clv_session_new(&session, clv_program_mesh(program), &(clv_session_options){.timeout_ms = long_ms[i]},
                             &err),
             &err);
        must(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err),
             &err);
        must(clv_spmd_run(session, return_late, NULL, NULL, 0, NULL, 0, NULL, &err), &err);
        clv_session_free(session);
        clv_program_free(program);
    }
}

static void test_threads_refused(void **state)
{
    clv_error err = {0};
    clv_mesh one = {0};
    clv_session *session;
    expect(clv_session_new(&session, &one, &(clv_session_options){.threads_per_rank = -1}, &err), CLV_EINVAL, &err,
           "threads_per_rank is -1; valid: 0 (which is 1) to 1024");
    expect(clv_session_new(&session, &one, &(clv_session_options){.threads_per_rank = 1025}, &err), CLV_ELIMIT, &err,
           "threads_per_rank is 1025; at most 1024");
}

/* Sums are in the order of the group's ranks: (1e8 - 1e8) + 1, which no other order of f32 comes to. */
static void test_order_of_sums(void **state)
{
    clv_error err = {0};
    clv_graph *graph = must_graph("x=3");
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){3}, &cut);
    float sum = 0;
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, x, (int[]){0}, 1, false), NULL);
    clv_program *program = compile(graph);
    clv_session *session = new_session("x=3", 0);
    const float data[] = {1e8f, -1e8f, 1};
    must(clv_session_run(session, program, &(clv_input_binding){"x", data}, 1, &(clv_output_binding){"sum", &sum}, 1,
                         &err),
         &err);
    assert_true(sum == 1);
    clv_session_free(session);
    clv_program_free(program);
}

/* A collective writes straight into state, by slices, where all ranks look for it; then comes another, which wants less
 * staging. */
static void test_state_that_a_collective_makes(void **state)
{
    enum { SIDE = 128, INNER = 1536 };
    clv_error err = {0};
    clv_graph *graph = must_graph("x=3");
    clv_layout columns = clv_graph_layout(graph, 2, "_,x"), rows = clv_graph_layout(graph, 2, "x,_"),
               whole = clv_layout_replicated(2);
    clv_value a = clv_input(graph, "a", CLV_F32, 2, (int64_t[]){SIDE, INNER}, &columns),
              b = clv_input(graph, "b", CLV_F32, 2, (int64_t[]){INNER, SIDE}, &rows);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){SIDE, SIDE}, &whole, (clv_init){CLV_INIT_ZEROS, 0});
    float *data = malloc(2 * SIDE * INNER * sizeof *data), *made = malloc(SIDE * SIDE * sizeof *made), most = 0;
    clv_assign(graph, w, clv_constrain(graph, clv_einsum(graph, "ij,jk->ik", a, b), &whole));
    clv_output(graph, "most", clv_reduce(graph, CLV_MAX, b, (int[]){0, 1}, 2, false), NULL);
    clv_program *program = compile(graph);
    clv_session *session = new_session("x=3", 0);
    for (int i = 0; i < SIDE * INNER; i++) { /* ones; and columns of their own numbers */
        data[i] = 1;
        data[SIDE * INNER + i] = (float)(i % SIDE);
    }
    clv_input_binding in[] = {{"a", data}, {"b", data + SIDE * INNER}};
    must(clv_session_run(session, program, in, 2, &(clv_output_binding){"most", &most}, 1, &err), &err);
    must(clv_session_read(session, "w", NULL, made, &err), &err);
    assert_true(most == SIDE - 1);
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(made[i] == (float)INNER * (float)(i % SIDE));
    free(data);
    free(made);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_parts_refused(void **state)
{
    clv_error err = {0};
    clv_session *session;
    float x[ROWS * COLUMNS] = {0};
    clv_program *program = doubler("x=3", "x,_", "x,_");
    const clv_input_binding whole = {"x", x};
    clv_input_box part = {"x", {2, {0, 0}, {4, 5}}, x}, unknown = {"z", part.box, x};
    clv_output_box outside = {"y", {2, {0, 0}, {8, 5}}, x}, flat = {"y", {1, {0}, {4}}, x},
                   nowhere = {"y", part.box, NULL}, backward = {"y", {2, {5, 0}, {3, 5}}, x};
    clv_run run = {.size = sizeof run, .n_input_boxes = 1, .input_boxes = &part};
    must(clv_session_new(&session, clv_program_mesh(program), NULL, &err), &err);
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err,
           "input 'x': rank 2 needs [4:7, 0:5], and no box contains [4:7, 0:5]");
    clv_input_box above = {"x", {2, {1, 0}, {7, 5}}, x}, narrow = {"x", {2, {0, 0}, {7, 4}}, x};
    run.input_boxes = &above;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "no box contains [0:1, 0:5]");
    run.input_boxes = &narrow;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "no box contains [0:2, 4:5]");
    run.input_boxes = &part;
    run.inputs = &whole;
    run.n_inputs = 1;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_EINVAL, &err, "bound both whole and in boxes");
    run.input_boxes = &unknown;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ENOTFOUND, &err, "no input 'z'");
    run.n_inputs = 0; /* x is not bound, except for a part with a misspelt name */
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ENOTFOUND, &err, "no input 'z'");
    run.inputs = (clv_input_binding[]){whole, whole};
    run.n_inputs = 2;
    run.n_input_boxes = 0;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_EINVAL, &err, "input 'x' is bound twice");
    expect(clv_session_run(session, program, run.inputs, 2, NULL, 0, &err), CLV_EINVAL, &err, "'x' is bound twice");
    run.inputs = &whole;
    run.n_inputs = 1;
    run.n_input_boxes = 0;
    run.n_output_boxes = 1;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_EINVAL, &err, "all of its bindings");
    run.output_boxes = &outside;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "[0:8, 0:5] is not inside f32[7,5]");
    run.output_boxes = &flat;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "is not inside");
    run.output_boxes = &backward;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_ESHAPE, &err, "[5:3, 0:5] is not inside f32[7,5]");
    run.output_boxes = &nowhere;
    expect(clv_session_run_boxes(session, program, &run, &err), CLV_EINVAL, &err,
           "output 'y': NULL was given for the data of [0:4, 0:5]");
    expect(clv_session_run_boxes(session, program, NULL, &err), CLV_EINVAL, &err, "a run");
    run.n_output_boxes = 0;
    must(clv_session_run_boxes(session, program, &run, &err), &err);
    float first[ROWS * COLUMNS], second[ROWS * COLUMNS]; /* an output may be wanted twice */
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)i;
    run.outputs = (clv_output_binding[]){{"y", first}, {"y", second}};
    run.n_outputs = 2;
    must(clv_session_run_boxes(session, program, &run, &err), &err);
    assert_true(first[34] == 68);
    assert_memory_equal(first, second, sizeof first);
    clv_session_free(session);
    clv_program_free(program);
}

/* ---- a rank that fails, or is late, in the middle of a run ---- */

/* The rank that holds the tensor's end. */
static bool is_last(const clv_call *call)
{
    return call->in[0].lo[0] + call->in[0].shape[0] == call->in[0].global[0];
}

static void copy(const clv_call *call)
{
    memcpy(call->out[0].data, call->in[0].data,
           (size_t)clv_view_elems(&call->out[0]) * clv_dtype_size(call->out[0].dtype));
}

static clv_status fail_on_last(const clv_call *call, clv_error *err)
{
    copy(call);
    return is_last(call) ? clv_fail(err, CLV_ELIMIT, "on purpose") : CLV_OK;
}

static clv_status late_on_last(const clv_call *call, clv_error *err)
{
    copy(call);
    struct timespec t = {.tv_nsec = 600 * 1000000L};
    if (is_last(call))
        nanosleep(&t, NULL);
    return CLV_OK;
}

static const clv_op_def failing = {.name = "failing",
                                   .min_in = 1,
                                   .max_in = 1,
                                   .n_out = 1,
                                   .shape = same_shape,
                                   .rule = by_elements,
                                   .run = fail_on_last};
static const clv_op_def late = {.name = "late",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .shape = same_shape,
                                .rule = by_elements,
                                .run = late_on_last};

/* The op, then a sum over all ranks that waits for it. */
static clv_program *with_op(const clv_op_def *def)
{
    clv_graph *graph = must_graph("x=4");
    clv_layout layout = clv_graph_layout(graph, 1, "x");
    clv_value x = clv_state(graph, "x", CLV_F32, 1, (int64_t[]){N}, &layout, (clv_init){CLV_INIT_ONES, 0});
    clv_graph_push_scope(graph, "layers.%d", 3);
    clv_value y = clv_graph_emit_one(graph, def, NULL, &x, 1);
    clv_graph_pop_scope(graph);
    clv_output(graph, "sum", clv_reduce(graph, CLV_SUM, y, (int[]){0}, 1, false), NULL);
    return compile(graph);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_failing_rank(void **state)
{
    clv_error err = {0};
    clv_program *program = with_op(&failing);
    clv_session *session = new_session("x=4", 5000);
    double start = now();
    expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ELIMIT, &err,
           "rank 3, layers.3.failing: on purpose");
    assert_true(now() - start < 2);
    /* Poisoned: the first failure again, at once. */
    expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ELIMIT, &err, "on purpose");
    clv_session_free(session);
    clv_program_free(program);
}

static clv_cancel cancel;

static clv_status ask_to_end(const clv_call *call, clv_error *err)
{
    copy(call);
    clv_cancel_request(&cancel);
    return CLV_OK;
}

static const clv_op_def asking = {.name = "asking",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .n_out = 1,
                                  .shape = same_shape,
                                  .rule = by_elements,
                                  .run = ask_to_end};

static clv_session *cancellable(const clv_session_options *given)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_session_options options = *given;
    options.cancel = &cancel;
    clv_cancel_reset(&cancel);
    must(clv_mesh_parse(&mesh, "x=4", &err), &err);
    must(clv_session_new(&session, &mesh, &options, &err), &err);
    return session;
}

/* In the middle of a run: what comes after is not run, and the session has failed. */
static void test_cancelled_in_a_run(void **state)
{
    clv_error err = {0};
    clv_program *program = with_op(&asking);
    clv_session *session = cancellable(&(clv_session_options){.check = 1});
    expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ECANCELLED, &err,
           "the run was cancelled before");
    clv_cancel_reset(&cancel);
    expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ECANCELLED, &err,
           "the run was cancelled before");
    clv_session_free(session);
    clv_program_free(program);
}

/* Before a run nothing is lost: state is as it was, and the session goes on. */
static void test_cancelled_before(void **state)
{
    clv_error err = {0};
    clv_program *program = adder("x=4", "x");
    clv_session *session = cancellable(&(clv_session_options){0});
    float x[N] = {1}, w[N];
    clv_input_binding in = {"x", x};
    must(clv_session_run(session, program, &in, 1, NULL, 0, &err), &err);
    clv_cancel_request(&cancel);
    assert_true(clv_cancel_requested(&cancel));
    expect(clv_session_run(session, program, &in, 1, NULL, 0, &err), CLV_ECANCELLED, &err, "before it began");
    expect(clv_session_load(session, program, &err), CLV_ECANCELLED, &err, "before it began");
    clv_cancel_reset(&cancel);
    must(clv_session_run(session, program, &in, 1, NULL, 0, &err), &err);
    must(clv_session_read(session, "w", NULL, w, &err), &err);
    assert_true(w[0] == 3 && w[1] == 1);
    clv_session_free(session);
    clv_program_free(program);
}

static clv_status ask_in_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                int *known, clv_error *err)
{
    *(const char **)arg = strcmp(name, "first") == 0 ? "first" : "another";
    *known = 0;
    clv_cancel_request(&cancel);
    return CLV_OK;
}

/* While state is loaded: the next tensor is not. One rank, so that the order is known. */
static void test_cancelled_while_loading(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_graph *graph = must_graph("");
    const char *asked = NULL;
    clv_session_options options = {.source = ask_in_source, .source_arg = &asked, .cancel = &cancel};
    clv_value a = clv_state(graph, "first", CLV_F32, 1, (int64_t[]){N}, NULL, (clv_init){CLV_INIT_ONES, 0}),
              b = clv_state(graph, "second", CLV_F32, 1, (int64_t[]){N}, NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_output(graph, "sum", clv_add(graph, a, b), NULL);
    clv_program *program = compile(graph);
    clv_cancel_reset(&cancel);
    must(clv_mesh_parse(&mesh, "", &err), &err);
    must(clv_session_new(&session, &mesh, &options, &err), &err);
    expect(clv_session_load(session, program, &err), CLV_ECANCELLED, &err, "loading was cancelled before second");
    assert_string_equal(asked, "first");
    clv_session_free(session);
    clv_program_free(program);
}

static clv_status no_disk(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                          int *known, clv_error *err)
{
    if (*(const int *)arg == 0 || strcmp(name, "second") != 0)
        return CLV_OK;
    return clv_fail(err, CLV_EIO, "the disk is gone");
}

/* State that could not be brought is not there, to be read as whatever memory holds; what was brought before is. */
static void test_state_not_brought(void **state)
{
    static const char *const meshes[] = {"", "x=3"};
    for (int m = 0; m < 2; m++) {
        clv_error err = {0};
        clv_session *session;
        clv_state_info info = {.size = sizeof info};
        int gone = 1;
        float w[N];
        clv_session_options options = {.source = no_disk, .source_arg = &gone};
        clv_graph *graph = must_graph(meshes[m]);
        clv_value a = clv_state(graph, "first", CLV_F32, 1, (int64_t[]){N}, NULL, (clv_init){CLV_INIT_ONES, 0}),
                  b = clv_state(graph, "second", CLV_F32, 1, (int64_t[]){N}, NULL, (clv_init){CLV_INIT_ONES, 0});
        clv_output(graph, "sum", clv_add(graph, a, b), NULL);
        clv_program *program = compile(graph);
        must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
        expect(clv_session_load(session, program, &err), CLV_EIO, &err, "the disk is gone");
        gone = 0;
        expect(clv_session_load(session, program, &err), CLV_EIO, &err, "the disk is gone");
        expect(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_EIO, &err, "the disk is gone");
        expect(clv_session_read(session, "second", NULL, w, &err), CLV_EIO, &err, "no state named 'second', after a");
        expect(clv_session_write(session, "second", NULL, w, &err), CLV_EIO, &err, "the disk is gone");
        must(clv_session_read(session, "first", NULL, w, &err), &err);
        assert_true(w[0] == 1 && w[N - 1] == 1);
        must(clv_session_state(session, 1, &info, &err), &err);
        assert_null(info.name);
        expect(clv_session_state(session, -1, &info, &err), CLV_EINVAL, &err,
               "clv_session_state: -1 as the number of a state; valid: 0 and above");
        clv_session_free(session);
        clv_program_free(program);
    }
}

/* w := w + w: the second operand lies in the same memory, which the result must not take over while it is read. */
static void test_state_read_twice(void **state)
{
    for (int twice = 0; twice < 2; twice++) {
        clv_graph *graph = must_graph("x=2");
        clv_layout layout = clv_graph_layout(graph, 1, "x");
        clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){N}, &layout, (clv_init){CLV_INIT_ONES, 0}),
                  x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){N}, &layout);
        clv_assign(graph, w, clv_add(graph, w, twice ? w : x));
        clv_program *program = compile(graph);
        int made = -1;
        for (int i = 0; i < program->n_instructions; i++)
            if (program->instructions[i].op)
                made = program->instructions[i].out[0];
        int root = clv_program_owning_buffer(program, made);
        assert_int_equal(program->buffers[root].kind, twice ? CLV_BUFFER_TEMP : CLV_BUFFER_STATE);
        clv_program_free(program);
    }
}

/* w = w w is made from the old w, element by element of the new: neither in place of it, nor after it is overwritten.
 */
static void test_state_made_of_itself(void **state)
{
    static const double w[4] = {1, 2, 3, 4}, once[4] = {7, 10, 15, 22}, twice[4] = {199, 290, 435, 634};
    static const char *const layouts[] = {"_,_", "x,_", "_,x"};
    for (int l = 0; l < 3; l++) {
        clv_error err = {0};
        double got[4];
        clv_session *session;
        clv_graph *graph = must_graph("x=2");
        clv_layout layout = clv_graph_layout(graph, 2, layouts[l]);
        clv_value v = clv_state(graph, "w", CLV_F64, 2, (int64_t[]){2, 2}, &layout, (clv_init){0});
        clv_assign(graph, v, clv_einsum(graph, "ab,bc->ac", v, v));
        clv_program *program = compile(graph);
        must(clv_session_new(&session, clv_program_mesh(program), NULL, &err), &err);
        must(clv_session_load(session, program, &err), &err);
        must(clv_session_write(session, "w", NULL, w, &err), &err);
        for (int run = 0; run < 2; run++) {
            must(clv_session_run(session, program, NULL, 0, NULL, 0, &err), &err);
            must(clv_session_read(session, "w", NULL, got, &err), &err);
            assert_memory_equal(got, run ? twice : once, sizeof got);
        }
        clv_session_free(session);
        clv_program_free(program);
    }
}

/* What the session holds for a rank follows state that moves and programs that come and go; times are of runs since
 * last asked. */
static void test_accounts(void **state)
{
    enum { MANY = 600 };
    clv_error err = {0};
    clv_program *whole = adder_of("x=3", "_", MANY), *cut = adder_of("x=3", "x", MANY);
    clv_session *session = new_session("x=3", 0);
    clv_memory w = {.size = sizeof w}, c = {.size = sizeof c};
    must(clv_program_memory(whole, &w, &err), &err);
    must(clv_program_memory(cut, &c, &err), &err);
    float x[MANY] = {0};
    clv_input_binding in = {.name = "x", .data = x};
    assert_true(w.parameters + w.other_state != c.parameters + c.other_state);
    must(clv_session_load(session, whole, &err), &err);
    assert_int_equal(clv_session_rank_bytes(session), w.total);
    clv_session_unload(session, whole);
    assert_int_equal(clv_session_rank_bytes(session), w.total - w.region);
    must(clv_session_load(session, cut, &err), &err);
    assert_int_equal(clv_session_rank_bytes(session), c.total);
    must(clv_session_load(session, whole, &err), &err);
    assert_int_equal(clv_session_rank_bytes(session), w.total + c.region);
    for (int runs = 1; runs <= 2; runs++) {
        for (int i = 0; i < runs; i++)
            must(clv_session_run(session, whole, &in, 1, NULL, 0, &err), &err);
        clv_session_stats stats = {.size = sizeof stats};
        clv_session_take_stats(session, &stats, NULL);
        assert_int_equal(stats.runs, runs);
        assert_true(stats.seconds > 0 && stats.comm_seconds <= stats.seconds &&
                    stats.wait_seconds <= stats.comm_seconds);
        clv_session_take_stats(session, &stats, NULL);
        assert_true(stats.runs == 0 && stats.seconds == 0 && stats.comm_seconds == 0 && stats.wait_seconds == 0);
    }
    clv_session_free(session);
    clv_program_free(whole);
    clv_program_free(cut);
}

static void test_late_rank(void **state)
{
    clv_error err = {0};
    clv_program *program = with_op(&late);
    clv_session *session = new_session("x=4", 100);
    clv_status status = clv_session_run(session, program, NULL, 0, NULL, 0, &err);
    assert_int_equal(status, CLV_ETIMEOUT);
    if (!strstr(err.message, "3") || !strstr(err.message, "layers.3.late"))
        fail_msg("the late rank and its op are not named: '%s'", err.message);
    struct timespec t = {.tv_nsec = 700 * 1000000L}; /* so that the late thread is back and nothing need be leaked */
    nanosleep(&t, NULL);
    clv_session_free(session);
    clv_program_free(program);
}

/* c = a b over a contracted dimension that x splits, so that an all_reduce follows. */
static clv_program *split_product(void)
{
    clv_graph *graph = must_graph("x=2");
    clv_layout columns = clv_graph_layout(graph, 2, "_,x"), rows = clv_graph_layout(graph, 2, "x,_");
    clv_value a = clv_input(graph, "a", CLV_F32, 2, (int64_t[]){4, 6}, &columns);
    clv_value b = clv_input(graph, "b", CLV_F32, 2, (int64_t[]){6, 5}, &rows);
    clv_layout whole = clv_graph_layout(graph, 2, "_,_");
    clv_output(graph, "c", clv_scale(graph, clv_einsum(graph, "mk,kn->mn", a, b), 2), &whole);
    return compile(graph);
}

/* Whether each instruction took time in the last run as it ought to, and what the product is. */
static void check_times(clv_session *session, const clv_program *program, bool alone)
{
    int products = 0;
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_error err = {0};
        clv_instruction_info info = {.size = sizeof info};
        must(clv_program_instruction(program, i, &info, &err), &err);
        bool product = strcmp(info.kind, "dot_general") == 0;
        assert_int_equal(clv_session_instruction_seconds(session, program, i) > 0, product || !alone);
        const int64_t of[] = {info.batch, info.m, info.n, info.k}, want[] = {1, 4, 5, 3}, none[4] = {0};
        assert_memory_equal(of, product ? want : none, sizeof of);
        products += product;
    }
    assert_int_equal(products, 1);
    clv_session_take_stats(session, NULL, NULL);
}

static void test_products_alone(void **state)
{
    clv_error err = {0};
    clv_session *session;
    float a[4 * 6], b[6 * 5], c[4 * 5];
    clv_program *program = split_product();
    const clv_input_binding inputs[] = {{"a", a}, {"b", b}};
    const clv_output_binding output = {"c", c};
    const clv_run alone = {.size = sizeof alone, .n_inputs = 2, .inputs = inputs, .matmuls_only = 1};
    for (int i = 0; i < 30; i++)
        a[i % 24] = b[i] = 1;
    must(clv_session_new(&session, clv_program_mesh(program), &(clv_session_options){.trace = 1}, &err), &err);
    for (int round = 0; round < 2; round++) {
        must(clv_session_run(session, program, inputs, 2, &output, 1, &err), &err);
        for (int i = 0; i < 20; i++)
            assert_true(c[i] == 12);
        check_times(session, program, false);
        must(clv_session_run_boxes(session, program, &alone, &err), &err);
        check_times(session, program, true);
    }
    clv_session_free(session);
    session = new_session("x=2", 0); /* which checks */
    expect(clv_session_run_boxes(session, program, &alone, &err), CLV_EUNSUPPORTED, &err,
           "matmuls_only is not supported");
    clv_session_free(session);
    clv_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_alone),
        cmocka_unit_test(test_state_between_layouts),
        cmocka_unit_test(test_scalar_state),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_many_parts),
        cmocka_unit_test(test_endless_timeout),
        cmocka_unit_test(test_parts_refused),
        cmocka_unit_test(test_threads_refused),
        cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_state_that_a_collective_makes),
        cmocka_unit_test(test_failing_rank),
        cmocka_unit_test(test_state_read_twice),
        cmocka_unit_test(test_state_made_of_itself),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_late_rank),
        cmocka_unit_test(test_cancelled_in_a_run),
        cmocka_unit_test(test_cancelled_before),
        cmocka_unit_test(test_cancelled_while_loading),
        cmocka_unit_test(test_state_not_brought),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
