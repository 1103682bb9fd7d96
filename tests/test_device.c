/* test_device.c - sessions on a device that is not the host (mock_device.c): its names, what it refuses, which ops run
 * on the host for it and are counted, failures that come late; and what kernels may ask of the rank that runs them.
 * Other tests run on it as they are (ctest -L device). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/cleave.h"
#include "device/device.h"
#include "elementwise_op.h"
#include "mock_device.h"
#include "must.h"
#include "unit_test.h"

enum { RANKS = 3, N = 10 };

static clv_error err;

static void assert_says(clv_status status, clv_status want, const char *text)
{
    if (status != want || !strstr(err.message, text))
        fail_msg("expected %s with '%s', got %s: '%s'", clv_status_name(want), text, clv_status_name(status),
                 err.message);
    err = (clv_error){0};
}

static clv_session *open_session(const char *device, const clv_cancel *cancel)
{
    clv_mesh mesh;
    clv_session *session = NULL;
    clv_session_options options = {
        .size = sizeof options, .device = device, .threads_per_rank = 2, .timeout_ms = 20000, .cancel = cancel};
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    must(clv_session_new(&session, &mesh, &options, &err), &err);
    return session;
}

/* ---- an op that does what a test says ---- */

typedef enum act { ADD, CANCEL, FAIL_ONE, FAIL_ONE_ALONE } act;

static act what;
static clv_cancel cancel;
static _Atomic int inside, stopped, behind;
static _Atomic int threads_of[RANKS];

static size_t act_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return (size_t)clv_view_elems(&in[0]) * sizeof(float);
}

/* y = x + 10 * rank, through the workspace. */
static clv_status add_rank(const clv_call *call)
{
    int64_t n = clv_view_elems(&call->in[0]);
    float *through = call->workspace, *y = call->out[0].data;
    memcpy(through, call->in[0].data, (size_t)n * sizeof *through);
    for (int64_t i = 0; i < n; i++)
        y[i] = through[i] + 10 * (float)clv_call_rank(call);
    atomic_store(&threads_of[clv_call_rank(call)], clv_call_threads(call));
    return CLV_OK;
}

static clv_status act_run(const clv_call *call, clv_error *e)
{
    if (what == ADD && clv_call_cancelled(call))
        return clv_fail(e, CLV_EINVAL, "cancelled before anybody asked");
    if (what == ADD)
        return add_rank(call);
    atomic_fetch_add(&inside, 1);
    while (clv_call_rank(call) == 1 && atomic_load(&inside) < RANKS)
        continue;
    if (what == CANCEL && clv_call_rank(call) == 1)
        clv_cancel_request(&cancel);
    if (what >= FAIL_ONE && clv_call_rank(call) == 1)
        return clv_fail(e, CLV_EINVAL, "it was told to");
    while (!clv_call_cancelled(call))
        continue;
    atomic_fetch_add(&stopped, 1);
    return what == FAIL_ONE_ALONE ? CLV_OK : clv_fail(e, CLV_ECANCELLED, "it stopped early");
}

static clv_status count_run(const clv_call *call, clv_error *e)
{
    atomic_fetch_add(&behind, 1);
    return CLV_OK;
}

/* Of the same fields; the mock device has a kernel for one of them. */
#define ACT(called)                                                                                                    \
    {                                                                                                                  \
        .size = sizeof(clv_op_def), .name = called, .min_in = 1, .max_in = 1, .n_out = 1, .in_place = {1},             \
        .shape = same_shape, .rule = by_elements, .workspace = act_workspace, .run = act_run                           \
    }
static const clv_op_def host_op = ACT("test.on_host"), device_op = ACT("test.on_device");
static const clv_op_def count_op = {.size = sizeof(clv_op_def),
                                    .name = "test.count",
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .shape = same_shape,
                                    .rule = by_elements,
                                    .run = count_run};

/* out = act(x * 2), all of it over the axis. */
static clv_program *build(const clv_op_def *def)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program = NULL;
    clv_value y;
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){N}, &cut), twice = clv_mul(graph, x, x);
    clv_emit(graph, def, NULL, &twice, 1, &y);
    clv_output(graph, "y", y, &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_status run(clv_session *session, const clv_program *program, float *y)
{
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    err = (clv_error){0};
    return clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err);
}

/* ---- names ---- */

static void test_names(void **state)
{
    static const clv_device_backend other = {.name = "other"};
    const clv_device_backend *found;
    clv_mesh mesh;
    clv_session *session = NULL;
    clv_session_options options = {.size = sizeof options, .device = "gpu"};
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    assert_says(clv_session_new(&session, &mesh, &options, &err), CLV_EINVAL, "there is no device 'gpu'; valid: cpu, ");
    assert_says(clv_session_new(&session, &mesh, &options, &err), CLV_EINVAL, ", mock");
    assert_null(session);
    must(clv_device_find(&found, NULL, &err), &err);
    assert_ptr_equal(found, &clv_device_cpu);
    must(clv_device_find(&found, "cpu", &err), &err);
    assert_ptr_equal(found, &clv_device_cpu);
    assert_says(clv_device_register(&(clv_device_backend){.name = "cpu"}, &err), CLV_EEXIST, "device 'cpu'");
    must(clv_device_register(&other, &err), &err);
    must(clv_device_find(&found, "other", &err), &err);
    assert_ptr_equal(found, &other);
    assert_says(clv_device_register(&other, &err), CLV_EEXIST, "device 'other'");
    static clv_device_backend more[8];
    static char names[8][8];
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "more%d", i);
        more[i].name = names[i];
        if (i < 6)
            must(clv_device_register(&more[i], &err), &err);
        else
            assert_says(clv_device_register(&more[i], &err), CLV_ELIMIT, "at most 8");
    }
}

static void test_refused(void **state)
{
    clv_mesh mesh;
    clv_session *session = NULL;
    clv_session_options check = {.size = sizeof check, .device = "mock", .check = 1};
    clv_session_options finite = {.size = sizeof finite, .device = "mock", .find_nonfinite = 1};
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    assert_says(clv_session_new(&session, &mesh, &check, &err), CLV_EUNSUPPORTED, "'mock' cannot check");
    assert_says(clv_session_new(&session, &mesh, &finite, &err), CLV_EUNSUPPORTED, "'mock' cannot find_nonfinite");
    assert_null(session);
}

/* ---- kernels ---- */

static void assert_result(const float *y)
{
    for (int i = 0; i < N; i++) {
        int rank = i < 3 ? 0 : i < 6 ? 1 : 2;
        assert_true(y[i] == (float)(i * i) + 10 * (float)rank);
    }
}

static void test_fallbacks(void **state)
{
    what = ADD;
    const struct {
        const char *device;
        const clv_op_def *def;
        int fallbacks;
    } cases[] = {{"cpu", &host_op, 0}, {"mock", &host_op, RANKS}, {"mock", &device_op, 0}};
    for (int c = 0; c < 3; c++) {
        clv_session *session = open_session(cases[c].device, NULL);
        clv_program *program = build(cases[c].def);
        clv_session_stats stats = {.size = sizeof stats};
        float y[N] = {0};
        int64_t before = mock_device_kernels();
        must(run(session, program, y), &err);
        assert_result(y);
        must(run(session, program, y), &err);
        assert_result(y);
        must(clv_session_take_stats(session, &stats, &err), &err);
        assert_int_equal(stats.fallbacks, 2 * cases[c].fallbacks);
        /* of each rank's elements, there and back */
        assert_int_equal(stats.fallback_bytes, cases[c].fallbacks ? 2 * 2 * N * (int)sizeof(float) : 0);
        /* the product, and the op */
        assert_int_equal(mock_device_kernels() - before, c == 0 ? 0 : c == 1 ? 2 * RANKS : 2 * 2 * RANKS);
        must(clv_session_take_stats(session, &stats, &err), &err);
        assert_int_equal(stats.fallbacks, 0);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(atomic_exchange(&threads_of[r], 0), 2);
        clv_session_free(session);
        clv_program_free(program);
    }
}

/* A kernel that does not take what a call has leaves it to the host. */
static void test_not_taken(void **state)
{
    clv_graph *graph;
    clv_mesh mesh;
    clv_program *program;
    clv_session_stats stats = {.size = sizeof stats};
    double x[N], y[N];
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_value in = clv_input(graph, "x", CLV_F64, 1, (int64_t[]){N}, NULL);
    clv_output(graph, "y", clv_mul(graph, in, in), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_session *session = open_session("mock", NULL);
    int64_t before = mock_device_kernels();
    for (int i = 0; i < N; i++)
        x[i] = i;
    must(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err),
         &err);
    must(clv_session_take_stats(session, &stats, &err), &err);
    assert_int_equal(stats.fallbacks, RANKS);
    assert_int_equal(mock_device_kernels(), before);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (double)i * i);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* What was queued fails when it is finished, and the run with it. */
static void test_late_failure(void **state)
{
    what = FAIL_ONE;
    clv_program *program = build(&device_op);
    float x[N] = {0}, y[N];
    for (int asks = 0; asks < 2; asks++) { /* for the output, or for nothing */
        clv_session *session = open_session("mock", NULL);
        atomic_store(&inside, 0);
        assert_says(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y},
                                    asks, &err),
                    CLV_EINVAL, "it was told to");
        clv_session_free(session);
    }
    clv_program_free(program);
    atomic_store(&stopped, 0);
}

/* ---- what kernels may ask ---- */

static void test_cancelled(void **state)
{
    const char *const devices[] = {"cpu", "mock"};
    for (int d = 0; d < 2; d++) {
        clv_program *program = build(&host_op);
        float y[N];
        for (what = CANCEL; what <= FAIL_ONE; what++) {
            clv_session *session = open_session(devices[d], &cancel);
            atomic_store(&inside, 0);
            clv_status status = run(session, program, y);
            if (what == CANCEL)
                assert_says(status, CLV_ECANCELLED, "test.on_host: it stopped early");
            else
                assert_says(status, CLV_EINVAL, "rank 1, test.on_host: it was told to");
            clv_session_free(session);
            assert_int_equal(atomic_exchange(&stopped, 0), what == CANCEL ? RANKS : RANKS - 1);
            clv_cancel_reset(&cancel);
        }
        clv_program_free(program);
    }
}

/* Once a rank has failed, others begin no further op, even if they wait for no rank. */
static void test_no_op_behind_a_failure(void **state)
{
    clv_graph *graph = must_graph("x=3");
    clv_program *program;
    float x[N] = {0}, y[N];
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    clv_value in = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){N}, &cut), acted, counted;
    clv_emit(graph, &host_op, NULL, &in, 1, &acted);
    clv_emit(graph, &count_op, NULL, &acted, 1, &counted);
    clv_output(graph, "y", counted, &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    what = FAIL_ONE_ALONE;
    atomic_store(&inside, 0);
    clv_session *session = open_session("cpu", NULL);
    assert_says(
        clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, &err),
        CLV_EINVAL, "rank 1, test.on_host: it was told to");
    clv_session_free(session);
    clv_program_free(program);
    assert_int_equal(atomic_exchange(&stopped, 0), RANKS - 1);
    assert_int_equal(atomic_load(&behind), 0);
}

/* A kernel that is called by hand has no rank. */
static void test_no_context(void **state)
{
    const clv_call call = {0};
    assert_int_equal(clv_call_rank(&call), 0);
    assert_int_equal(clv_call_threads(&call), 1);
    assert_int_equal(clv_call_cancelled(&call), 0);
    assert_int_equal(clv_call_rank(NULL), 0);
    assert_int_equal(clv_call_threads(NULL), 1);
    assert_int_equal(clv_call_cancelled(NULL), 0);
}

/* ---- functions by hand ---- */

static clv_status add_up(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *e)
{
    return clv_spmd_all_reduce(&out[0], spmd, &in[0], CLV_REDUCTION_SUM, "x", e);
}

static clv_status read_state(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *e)
{
    clv_local_tensor w;
    return clv_spmd_state(&w, spmd, "w", e);
}

static clv_program *build_state(void)
{
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program = NULL;
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout cut = clv_graph_layout(graph, 1, "x");
    clv_value w = clv_state(graph, "w", CLV_F32, 1, (int64_t[]){N}, &cut, (clv_init){CLV_INIT_NORMAL, 1});
    clv_output(graph, "w2", clv_mul(graph, w, w), &cut);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* Their memory is the host's on any device; state is not. */
static void test_by_hand(void **state)
{
    clv_session *session = open_session("mock", NULL);
    clv_program *program = build_state();
    float x[N], y[N] = {0};
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    clv_spmd_input input = {.type = {CLV_F32, 1, {N}}, .layout = "_", .data = x};
    clv_spmd_output output = {.type = {CLV_F32, 1, {N}}, .layout = "_", .data = y};
    must(clv_session_load(session, program, &err), &err);
    must(clv_spmd_run(session, add_up, NULL, &input, 1, &output, 1, NULL, &err), &err);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 3 * x[i]);
    assert_says(clv_spmd_run(session, read_state, NULL, NULL, 0, NULL, 0, NULL, &err), CLV_EUNSUPPORTED,
                "in the memory of the device 'mock'");
    clv_session_free(session);
    clv_program_free(program);
}

static int add_mock(void **state)
{
    mock_device_add();
    mock_device_add();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_not_taken),
        cmocka_unit_test(test_late_failure),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_no_op_behind_a_failure),
        cmocka_unit_test(test_no_context),
        cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests(tests, add_mock, NULL);
}
