/* test_job.c - joining a job of MPI, what is refused without one, and sessions of it; under a launcher (ctest -L mpi)
 * all processes run the second part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cleave/session.h"
#include "launched.h"
#include "must.h"

/* ---- without a launcher ---- */

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_FD"};

static void forget_launchers(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static void test_launcher(void **state)
{
    (void)state;
    forget_launchers();
    assert_null(clv_job_launcher());
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i], "0", 1);
        assert_string_equal(clv_job_launcher(), i < 2 ? "openmpi" : "mpich");
        forget_launchers();
    }
}

static void expect_refused(clv_status status, const char *says, const clv_job_options *options)
{
    clv_job *job = NULL;
    clv_error err = {0};
    assert_int_equal(clv_job_join(&job, options, &err), status);
    if (!strstr(err.message, says))
        fail_msg("'%s' is not in: %s", says, err.message);
    assert_null(job);
}

static void test_refusals(void **state)
{
    clv_job_options options = {.size = sizeof options, .modules = "/nowhere"};
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session = NULL;
    (void)state;
    forget_launchers();
    assert_int_equal(clv_job_join(NULL, NULL, NULL), CLV_EINVAL);
    expect_refused(CLV_ENOTFOUND, "mpirun", NULL);
    options.mpi = "pigeons";
    expect_refused(CLV_EINVAL, "valid: openmpi, mpich", &options);
    options.mpi = "openmpi";
    expect_refused(CLV_ENOTFOUND, "/nowhere/cleave_mpi_openmpi.so", &options);
    setenv("PMI_RANK", "0", 1);
    options.mpi = NULL;
    expect_refused(CLV_ENOTFOUND, "/nowhere/cleave_mpi_mpich.so", &options);
    forget_launchers();
    options.timeout_ms = -1;
    expect_refused(CLV_EINVAL, "timeout_ms is -1", &options);
    assert_int_equal(clv_job_leave(NULL, NULL), CLV_OK);
    assert_int_equal(clv_job_process(NULL), -1);
    assert_int_equal(clv_job_processes(NULL), 0);

    must(clv_mesh_parse(&mesh, "x=2", &err), &err);
    const clv_session_options alone = {.size = sizeof alone, .transport = "mpi"};
    assert_int_equal(clv_session_new(&session, &mesh, &alone, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "clv_session_options.job"));
}

/* ---- in a job ---- */

enum { N = 11 };

static clv_mesh ranks_of(int ranks)
{
    char text[32];
    clv_error err = {0};
    clv_mesh mesh;
    snprintf(text, sizeof text, "x=%d", ranks);
    must(clv_mesh_parse(&mesh, text, &err), &err);
    return mesh;
}

static clv_status new_session(clv_session **out, int ranks, int64_t timeout_ms, clv_error *err)
{
    const clv_mesh mesh = ranks_of(ranks);
    const clv_session_options options = {
        .size = sizeof options, .timeout_ms = timeout_ms, .check = 1, .job = launched_job()};
    return clv_session_new(out, &mesh, &options, err);
}

/* w := w + x, and y, the sums of its rows. x and w are cut in two ways, so each rank needs parts of all others. */
static clv_program *adder(int ranks)
{
    char text[32];
    clv_error err = {0};
    clv_program *program;
    snprintf(text, sizeof text, "x=%d", ranks);
    clv_graph *graph = must_graph(text);
    clv_layout rows = clv_graph_layout(graph, 2, "x,_"), columns = clv_graph_layout(graph, 2, "_,x");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){N, N}, &rows);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){N, N}, &columns, (clv_init){CLV_INIT_ONES, 0});
    clv_value sum = clv_add(graph, w, x);
    clv_assign(graph, w, sum);
    clv_output(graph, "y", clv_reduce(graph, CLV_SUM, sum, (int[]){1}, 1, false), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static void run_adder(int ranks)
{
    clv_error err = {0};
    clv_session *session;
    clv_program *program = adder(ranks);
    float x[N * N], y[N], w[N * N];
    for (int i = 0; i < N * N; i++)
        x[i] = (float)(i % 7);
    must(new_session(&session, ranks, 20000, &err), &err);
    assert_int_equal(clv_job_leave(launched_job(), &err), CLV_EINVAL); /* a session is there */
    assert_non_null(strstr(err.message, "free them"));
    err = (clv_error){0};
    for (int run = 1; run <= 3; run++) {
        must(clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_binding){"y", y}, 1, &err), &err);
        for (int r = 0; r < N; r++) {
            float want = N;
            for (int c = 0; c < N; c++)
                want += (float)run * x[r * N + c];
            assert_true(y[r] == want);
        }
    }
    must(clv_session_read(session, "w", NULL, w, &err), &err);
    for (int i = 0; i < N * N; i++)
        assert_true(w[i] == 1 + 3 * x[i]);
    clv_session_free(session);
    clv_program_free(program);
}

static void test_sessions(void **state)
{
    int n = clv_job_processes(launched_job());
    (void)state;
    assert_true(clv_job_process(launched_job()) >= 0 && clv_job_process(launched_job()) < n);
    for (int ranks = n; ranks <= n + 2; ranks++)
        run_adder(ranks);
    run_adder(2 * n);
}

/* Two sessions at a time keep their messages apart. */
static void test_two_sessions(void **state)
{
    int n = clv_job_processes(launched_job());
    clv_error err = {0};
    clv_session *other;
    (void)state;
    must(new_session(&other, n, 20000, &err), &err);
    run_adder(n);
    clv_session_free(other);
}

static void test_refused_in_a_job(void **state)
{
    int n = clv_job_processes(launched_job());
    clv_error err = {0};
    clv_job *again = NULL;
    clv_session *session = NULL;
    const clv_mesh mesh = ranks_of(n);
    const clv_job_options here = {.size = sizeof here, .modules = getenv("CLV_BUILD_DIR")};
    clv_session_options options = {.size = sizeof options, .job = launched_job(), .transport = "threads"};
    (void)state;
    assert_int_equal(clv_job_join(&again, &here, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "already"));
    err = (clv_error){0};
    assert_int_equal(clv_session_new(&session, &mesh, &options, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "valid: 'mpi'"));
    err = (clv_error){0};
    if (n > 1) {
        assert_int_equal(new_session(&session, n - 1, 20000, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "a rank for each"));
    }
    assert_null(session);
}

/* Process 0 makes another session than the others, or one that they come too late for; then all go on. */
static void test_out_of_step(void **state)
{
    int n = clv_job_processes(launched_job()), me = clv_job_process(launched_job());
    clv_error err = {0};
    clv_session *session = NULL;
    (void)state;
    if (n == 1)
        skip();
    assert_int_equal(new_session(&session, me == 0 ? 2 * n : n, 20000, &err), CLV_EPEER);
    assert_non_null(strstr(err.message, "all processes make the same sessions"));
    err = (clv_error){0};
    if (me != 0)
        nanosleep(&(struct timespec){.tv_nsec = 900000000}, NULL);
    assert_int_equal(new_session(&session, n, 300, &err), CLV_ETIMEOUT);
    assert_non_null(strstr(err.message, me == 0 ? "missing: process 1" : "missing: process 0"));
    assert_null(session);
    run_adder(n);
}

int main(void)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_launcher), cmocka_unit_test(test_refusals)};
    const struct CMUnitTest launched[] = {cmocka_unit_test(test_refused_in_a_job), cmocka_unit_test(test_sessions),
                                          cmocka_unit_test(test_two_sessions), cmocka_unit_test(test_out_of_step)};
    if (launched_job())
        return cmocka_run_group_tests_name("in a job", launched, NULL, NULL);
    return cmocka_run_group_tests_name("alone", alone, NULL, NULL);
}
