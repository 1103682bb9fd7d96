/* test_lost_process.c - a process of a job is killed or stopped during collectives, between them, in the middle of a
 * pipeline's schedule, and at rendezvous: the others return in time and name it. CLV_TEST_LAUNCHERS: as in
 * test_cli_mpi.c; the program starts itself with these launchers, under a shell that lives on, so that the launcher
 * does not end the survivors.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/threads/wait.h"
#include "cleave/job.h"
#include "cleave/session.h"
#include "cli_run.h"
#include "elementwise_op.h"
#include "graph/graph.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

enum {
    PROCESSES = 3,
    RANKS = 4, /* 0, 1, 2 and 3 */
    VICTIM = 1,
    N = 64,
    TIMEOUT_MS = 1500,
    KILLED_MS = 200, /* until all others return */
    LATE_MS = 100,   /* beyond the deadline */
    EARLY_MS = 250,  /* before it: nothing may have come for a while when it strikes */
    A_RUN_MS = 1000, /* so much later than the deadline who is late goes on */
    TRIES = 3,       /* as other programs may have the cores when it counts */
    LEAVE_MS = 4000, /* until what failed is cleaned up */
    ENOUGH_MS = 20000,
};

typedef enum act { IN_STEPS, IN_SCHEDULE, BETWEEN_RUNS, OUTSIDE, WITH_CHILD, MEETING, LEAVING, ACTS } act;
static const char *const act_names[ACTS] = {"in steps",         "in a schedule", "between runs", "others outside",
                                            "between, a child", "meeting",       "leaving"};

/* What the processes write where the test reads it. */
typedef struct record {
    _Atomic int64_t struck_ns; /* when it was; 0: not yet */
    _Atomic int64_t pid;
    struct {
        _Atomic int done;
        int64_t waited_ns; /* from when the others had struck, or it waited if that was later */
        int64_t left_ns;   /* until session and job were freed */
        clv_error error;
    } of[PROCESSES];
} record;

static int64_t ms(int64_t n)
{
    return n * 1000000;
}

static void sleep_ms(int64_t n)
{
    nanosleep(&(struct timespec){.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000}, NULL);
}

/* ---- a process of the job ---- */

static record *shared;
static int told; /* the signal; 0: none, it is only late */

static void strike(void)
{
    atomic_store(&shared->pid, getpid());
    atomic_store(&shared->struck_ns, clv_now_ns());
    if (told)
        raise(told);
    else
        sleep_ms(TIMEOUT_MS + A_RUN_MS);
}

static void *strike_soon(void *arg)
{
    sleep_ms(83);
    strike();
    return NULL;
}

static void expect(clv_status status, const clv_error *err, const char *what)
{
    if (status == CLV_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err->message);
    _exit(1);
}

/* What waits does not wait for this. */
static void hear_of_loss(void *arg, const clv_error *error)
{
    const act *a = arg;
    if (*a != LEAVING) /* who leaves waits for what is said */
        sleep_ms(2 * KILLED_MS);
}

static clv_program *summer(void)
{
    clv_error err = {0};
    clv_program *program;
    clv_mesh mesh;
    clv_graph *graph;
    expect(clv_mesh_parse(&mesh, "x=4", &err), &err, "a mesh");
    expect(clv_graph_new(&graph, &mesh, &err), &err, "a graph");
    clv_layout rows = clv_graph_layout(graph, 2, "x,_"), columns = clv_graph_layout(graph, 2, "_,x");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){N, N}, &rows);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){N, N}, &columns, (clv_init){CLV_INIT_ONES, 0});
    clv_value sum = clv_add(graph, w, x);
    clv_output(graph, "y", clv_reduce(graph, CLV_SUM, sum, (int[]){1}, 1, false), NULL);
    expect(clv_compile(&program, graph, NULL, &err), &err, "a program");
    clv_graph_free(graph);
    return program;
}

static int until_strike; /* how often the op still passes on; 0: it always does */

static clv_status pass_on_or_strike(const clv_call *call, clv_error *err)
{
    memcpy(call->out[0].data, call->in[0].data, (size_t)clv_view_elems(&call->out[0]) * sizeof(float));
    if (until_strike > 0 && --until_strike == 0)
        strike();
    return CLV_OK;
}

static void pass_back(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = d_out[0];
}

static const clv_op_def striking = {.name = "strike",
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .shape = same_shape,
                                    .rule = by_elements,
                                    .gradient = pass_back,
                                    .run = pass_on_or_strike};

/* A training step of four stages, of which the victim's passes on by the op above. */
static clv_program *pipeline(void)
{
    enum { MICROBATCHES = 4 };
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph("pipe=4");
    clv_value w[RANKS], d[RANKS], sums[RANKS], y = CLV_NONE,
                                               x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){N, N}, NULL);
    for (int s = 0; s < RANKS; s++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", s);
        w[s] = clv_state(graph, name, CLV_F32, 2, (int64_t[]){N, N}, NULL, (clv_init){CLV_INIT_NORMAL, 0.1});
    }
    for (int m = 0; m < MICROBATCHES; m++) {
        graph->microbatch = m + 1;
        clv_value h = clv_scale(graph, x, 1.0 / (m + 1));
        for (int s = 0; s < RANKS; s++) {
            clv_graph_set_stage(graph, "pipe", s);
            h = clv_unary(graph, CLV_TANH, clv_einsum(graph, "ik,kj->ij", h, w[s]));
            if (s == VICTIM)
                h = clv_graph_emit_one(graph, &striking, NULL, &h, 1);
        }
        h = clv_reduce(graph, CLV_SUM, h, (int[]){1}, 1, false);
        clv_gradients(graph, h, h, w, RANKS, d);
        y = m == 0 ? h : clv_add(graph, y, h);
        for (int s = 0; s < RANKS; s++)
            sums[s] = m == 0 ? d[s] : clv_add(graph, sums[s], d[s]);
    }
    graph->microbatch = 0;
    clv_graph_set_stage(graph, "pipe", -1);
    for (int s = 0; s < RANKS; s++)
        clv_sgd(graph, w[s], sums[s], clv_fill(graph, CLV_F32, 0, NULL, 1e-3), NULL);
    clv_output(graph, "y", y, NULL);
    expect(clv_compile(&program, graph, NULL, &err), &err, "a pipeline");
    clv_graph_free(graph);
    return program;
}

static clv_status run_once(clv_session *session, const clv_program *program, clv_error *err)
{
    static float x[N * N], y[N];
    return clv_session_run(session, program, &(clv_input_binding){"x", x}, 1, &(clv_output_binding){"y", y}, 1, err);
}

static clv_status act_out(act a, bool is_victim, clv_job *job, clv_session *session, const clv_program *program,
                          int64_t *began, clv_error *err)
{
    pthread_t striker;
    clv_status status = CLV_OK;
    int64_t end = clv_now_ns() + ms(ENOUGH_MS);
    *began = clv_now_ns();
    if (is_victim && a == IN_STEPS)
        pthread_create(&striker, NULL, strike_soon, NULL);
    else if (is_victim && a == IN_SCHEDULE)
        until_strike = 2;
    else if (is_victim) {
        sleep_ms(50);
        if (a == WITH_CHILD && fork() == 0) { /* which lives on */
            sleep_ms(TIMEOUT_MS);
            _exit(clv_job_leave(job, NULL) != CLV_OK);
        }
        strike();
    }
    if (a == OUTSIDE)
        sleep_ms(300);
    if (a == MEETING)
        return clv_job_agree(job, CLV_OK, err);
    if (a == LEAVING) {
        clv_session_free(session);
        return clv_job_leave(job, err);
    }
    do {
        *began = clv_now_ns();
        status = run_once(session, program, err);
    } while (status == CLV_OK && clv_now_ns() < end);
    return status;
}

/* The one that was stopped is ended by the last of the others. */
static void end_victim(int me)
{
    atomic_store(&shared->of[me].done, 1);
    for (int64_t left = ENOUGH_MS; left > 0; left -= 5, sleep_ms(5))
        if (atomic_load(&shared->of[0].done) && atomic_load(&shared->of[2].done))
            break;
    if (me == 0)
        kill((pid_t)atomic_load(&shared->pid), SIGKILL);
}

static int take_part(act a, const char *path)
{
    FILE *file = fopen(path, "r+e");
    clv_error err = {0};
    clv_job *job;
    clv_session *session;
    clv_mesh mesh;
    int64_t began;
    if (!file)
        return 1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    const clv_job_options how = {.size = sizeof how,
                                 .modules = getenv("CLV_BUILD_DIR"),
                                 .timeout_ms = a == MEETING ? 1000 * ENOUGH_MS : TIMEOUT_MS,
                                 .heartbeat_timeout_ms = TIMEOUT_MS,
                                 .on_lost = hear_of_loss,
                                 .on_lost_arg = &a};
    expect(clv_job_join(&job, &how, &err), &err, "joining");
    const clv_session_options options = {.size = sizeof options, .job = job, .timeout_ms = TIMEOUT_MS};
    clv_program *program = a == IN_SCHEDULE ? pipeline() : summer();
    mesh = *clv_program_mesh(program);
    expect(clv_session_new(&session, &mesh, &options, &err), &err, "a session");
    for (int i = 0; i < 3; i++)
        expect(run_once(session, program, &err), &err, "a run");
    int me = clv_job_process_index(job);
    (void)act_out(a, me == VICTIM, job, session, program, &began, &err);
    int64_t now = clv_now_ns(), struck = atomic_load(&shared->struck_ns);
    shared->of[me].waited_ns = now - (began > struck ? began : struck);
    shared->of[me].error = err;
    if (a != LEAVING) {
        clv_session_free(session);
        (void)clv_job_leave(job, &(clv_error){0});
    }
    shared->of[me].left_ns = clv_now_ns() - now;
    end_victim(me);
    fclose(file);
    _exit(0);
}

/* ---- the test ---- */

static char program_path[1024];
static bool saw_bytes[2]; /* in a message: of all others, of whom one was killed; of one by another fault */

static bool is_in_time(const record *r, const char *how)
{
    int64_t most = strcmp(how, "KILL") == 0 ? KILLED_MS : TIMEOUT_MS + LATE_MS;
    for (int p = 0; p < PROCESSES; p++)
        if (p != VICTIM && r->of[p].waited_ns > ms(most))
            return false;
    return true;
}

static void check_survivor(const record *r, int p, const char *how, act a)
{
    const clv_error *e = &r->of[p].error;
    char pid[48], host[64] = "";
    bool killed = strcmp(how, "KILL") == 0, answers = strcmp(how, "LATE") == 0;
    int64_t waited_ms = r->of[p].waited_ns / 1000000;
    gethostname(host, sizeof host - 1);
    snprintf(pid, sizeof pid, "process %d of %d (host %.20s, pid %lld)", VICTIM, PROCESSES, host, (long long)r->pid);
    print_message("%s, %s, process %d: after %lld ms, freed in %lld ms: %s\n", how, act_names[a], p,
                  (long long)waited_ms, (long long)(r->of[p].left_ns / 1000000), e->message);
    assert_true(atomic_load(&r->of[p].done));
    assert_int_equal(e->code, killed ? CLV_EPEER : CLV_ETIMEOUT);
    if (!strstr(e->message, pid))
        fail_msg("'%s' is not in: %s", pid, e->message);
    if (a < MEETING)
        assert_int_equal(e->rank, 1);
    if (a == IN_SCHEDULE && !strstr(e->message, "; rank 1 has stage 1 of axis 'pipe'"))
        fail_msg("no stage is in: %s", e->message);
    assert_true(!answers || strstr(e->message, "rank 1 (last in "));
    assert_true((strstr(e->message, "stopped, or cut off") != NULL) == (!killed && !answers));
    if (a < MEETING && strstr(e->message, killed ? " of 3072 bytes came" : " of 1024 bytes came"))
        saw_bytes[!killed] = true;
    assert_true(killed || waited_ms >= TIMEOUT_MS - EARLY_MS);
    assert_true(r->of[p].left_ns < ms(LEAVE_MS));
}

/* Returns whether all were in time. */
static bool try_to_strike(const char *launcher, const char *how, act a)
{
    char path[512];
    record r;
    snprintf(path, sizeof path, "%s/record", cli_folder());
    memset(&r, 0, sizeof r);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(&r, sizeof r, 1, file), 1);
    fclose(file);
    cli_shell(
        "timeout -s KILL 60 %s -np %d sh -c '\"$0\" \"$@\"; sleep 0.5; exit 0' %s %d %s %s >{d}/said 2>&1 || true",
        launcher, PROCESSES, program_path, (int)a, how, path);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fread(&r, sizeof r, 1, file), 1);
    fclose(file);
    if (!atomic_load(&r.of[0].done))
        cli_shell("cat {d}/said");
    for (int p = 0; p < PROCESSES; p++)
        if (p != VICTIM)
            check_survivor(&r, p, how, a);
    return is_in_time(&r, how);
}

static void strike_one(const char *launcher, const char *how, act a)
{
    bool in_time = false;
    for (int t = 0; t < TRIES && !in_time; t++)
        in_time = try_to_strike(launcher, how, a);
    if (!in_time)
        fail_msg("%s, %s: late %d times", how, act_names[a], TRIES);
}

/* In the middle of steps a launcher's MPI has the message; else losses are found by cleave's own means, and launchers
 * take turns: by memory that is shared the one, by messages the other. */
static void strike_all(const char *how, act from, act to)
{
    enum { LAUNCHERS = 4 };
    char launchers[LAUNCHERS][512];
    const char *left = getenv("CLV_TEST_LAUNCHERS");
    int n = 0, by_messages = getenv("CLEAVE_SHARED_MEMORY") != NULL;
    for (; left && *left && n < LAUNCHERS; n++) {
        size_t length = strcspn(left, "|");
        snprintf(launchers[n], sizeof launchers[n], "%.*s", (int)length, left);
        left += length + (left[length] == '|');
    }
    for (int l = 0; l < n; l++)
        for (act a = from; a <= to; a++)
            if (a == IN_STEPS || sweep_takes_turn(l, n, (int)a + by_messages))
                strike_one(launchers[l], how, a);
}

static void test_killed(void **state)
{
    strike_all("KILL", IN_STEPS, LEAVING);
    assert_true(saw_bytes[0]);
}

static void test_stopped(void **state)
{
    strike_all("STOP", IN_STEPS, LEAVING);
    assert_true(saw_bytes[1]);
}

/* A live process reports its progress. */
static void test_late(void **state)
{
    strike_all("LATE", BETWEEN_RUNS, BETWEEN_RUNS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped),
                                       cmocka_unit_test(test_late)};
    if (argc == 4) {
        told = strcmp(argv[2], "KILL") == 0 ? SIGKILL : strcmp(argv[2], "STOP") == 0 ? SIGSTOP : 0;
        return take_part((act)atoi(argv[1]), argv[3]);
    }
    if (!getenv("CLV_TEST_LAUNCHERS")) {
        puts("no MPI was found, or CLEAVE_MPI is off: no process of a job is lost");
        return 77;
    }
    if (!realpath(argv[0], program_path))
        return 1;
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
