/* test_random_faults.c - random small programs, of which one rank has a fault in one of its steps: it is late, stops,
 * is killed, a message of it is lost or damaged. No run hangs or gives another result: either the right one, or a
 * failure that names the culprit, as does what the flight recorders say. By threads, by messages in one process and
 * between several, and by MPI where a launcher started the test. A few seeds; 1,000 with CLV_SWEEP=all; CLV_SEED=N:
 * that one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleave/flight.h"
#include "cleave/session.h"
#include "cli_run.h"
#include "faults.h"
#include "launched.h"
#include "must.h"
#include "processes.h"

enum {
    MOST = 16, /* elements of a dimension */
    TIMEOUT_MS = 500,
    DELAY_MS = 60,
    FREEZE_MS = 1500,
    ENOUGH_S = 20, /* of a run, on a host that does much else */
    FEW = 24,
    FEW_MPI = 8,
    ALL = 850,
    ALL_MPI = 40
};

/* ---- random numbers ---- */

static uint64_t drawn;

static int draw(int n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (int)((drawn >> 33) % (uint64_t)n);
}

/* ---- a case ---- */

typedef struct a_case {
    int seed, ranks, processes;
    char mesh[16];
    const char *transport; /* of one process */
    int first[MOST_PROCESSES + 1];
    int64_t shape[2];
    clv_program *program;
    float x[MOST * MOST], right[MOST * MOST];
    fault fault;
} a_case;

static const char *const meshes[] = {"x=2", "x=3", "x=4", "x=5", "x=2,y=2", "x=3,y=2"};

static clv_layout random_layout(clv_graph *graph, bool has_y)
{
    static const char *const of_x[] = {"x,_", "_,x", "_,_"};
    static const char *const of_both[] = {"x,y", "y,x", "(x,y),_", "_,(y,x)", "x,_", "_,y", "_,_"};
    return clv_graph_layout(graph, 2, has_y ? of_both[draw(7)] : of_x[draw(3)]);
}

/* A chain of changes of layout, products and sums. */
static clv_program *random_program(const a_case *c)
{
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph(c->mesh);
    bool has_y = strchr(c->mesh, 'y') != NULL;
    clv_layout layout = random_layout(graph, has_y), whole = clv_graph_layout(graph, 2, "_,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, c->shape, &layout);
    int layers = 2 + draw(4);
    for (int i = 0; i < layers; i++) {
        clv_graph_push(graph, "layers.%d", i);
        layout = random_layout(graph, has_y);
        clv_value y = clv_constrain(graph, clv_add(graph, x, x), &layout);
        if (draw(2)) /* rows' sums, which ranks have addends of */
            y = clv_add(graph, y, clv_reduce(graph, CLV_SUM, y, (int[]){draw(2)}, 1, true));
        x = clv_constrain(graph, y, &whole);
        clv_graph_pop(graph);
    }
    clv_output(graph, "y", x, &whole);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_status run(clv_session *session, const a_case *c, float *y, clv_error *err)
{
    return clv_session_run(session, c->program, &(clv_input_binding){"x", c->x}, 1, &(clv_binding){"y", y}, 1, err);
}

static clv_session *session_on(const a_case *c, const char *transport, const clv_links *links, clv_flight *flight)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session = NULL;
    clv_session_options options = {.size = sizeof options,
                                   .no_pinning = 1,
                                   .timeout_ms = flight ? TIMEOUT_MS : 0,
                                   .seed = (uint64_t)c->seed,
                                   .transport = transport,
                                   .flight = flight};
    must(clv_mesh_parse(&mesh, c->mesh, &err), &err);
    clv_status status = clv_session_new_linked(&session, &mesh, &options, links, &err);
    if (status != CLV_OK)
        fprintf(stderr, "seed %d: a session: %s\n", c->seed, err.message);
    return status == CLV_OK ? session : NULL;
}

/* What is right, and the steps that the rank with the fault has in it. */
static int find_right(a_case *c)
{
    clv_error err = {0};
    int steps;
    clv_session *session = session_on(c, "threads", NULL, NULL);
    assert_non_null(session);
    must(clv_session_load(session, c->program, &err), &err);
    fault_arm(&(fault){.kind = FAULT_NONE});
    must(run(session, c, c->right, &err), &err);
    fault_disarm(&steps, c->fault.rank);
    clv_session_free(session);
    return steps;
}

static void make_case(a_case *c, int seed, const fault_kind *kinds, int n_kinds, int processes)
{
    drawn = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
    (void)draw(2);
    *c = (a_case){.seed = seed, .processes = processes};
    do
        snprintf(c->mesh, sizeof c->mesh, "%s", meshes[draw((int)(sizeof meshes / sizeof *meshes))]);
    while ((c->ranks = strchr(c->mesh, 'y') ? 2 * (c->mesh[2] - '0') : c->mesh[2] - '0') < processes);
    for (int p = 0; p <= processes; p++)
        c->first[p] = p * c->ranks / processes;
    c->transport = draw(2) ? "threads" : "copying";
    for (int d = 0; d < 2; d++)
        c->shape[d] = 4 + draw(MOST - 3);
    for (int i = 0; i < MOST * MOST; i++)
        c->x[i] = (float)draw(1000) / 8;
    c->program = random_program(c);
    c->fault = (fault){.kind = kinds[draw(n_kinds)], .rank = draw(c->ranks), .which = draw(8), .ms = DELAY_MS};
    c->fault.ms = c->fault.kind == FAULT_FREEZE ? FREEZE_MS : DELAY_MS;
    int steps = find_right(c);
    c->fault.step = steps > 0 ? draw(steps) : 0;
}

/* ---- what is to come of it ---- */

/* Where results of processes are seen. */
typedef struct outcome {
    clv_status status;
    clv_error error;
    bool done, struck, wrong;
    int peer; /* that the message was for */
    double seconds;
} outcome;

static outcome *seen; /* [MOST_PROCESSES], shared with children */

/* "rank 3", and not "rank 31". */
static bool names(const char *text, int rank)
{
    char name[16];
    int n = snprintf(name, sizeof name, "rank %d", rank);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n)
        if (at[n] < '0' || at[n] > '9')
            return true;
    return false;
}

/* Whether the fault is this rank's: its own, or, where its process is gone or stands, all of the process. */
static bool is_culprit(const a_case *c, int rank)
{
    bool whole = c->fault.kind == FAULT_KILL || c->fault.kind == FAULT_FREEZE;
    int p = 0;
    while (c->first[p + 1] <= c->fault.rank)
        p++;
    return rank == c->fault.rank || (whole && c->first[p] <= rank && rank < c->first[p + 1]);
}

static bool names_culprit(const outcome *o, const a_case *c)
{
    bool found = is_culprit(c, o->error.rank);
    for (int r = 0; r < c->ranks; r++)
        found = found || (is_culprit(c, r) && names(o->error.message, r));
    return found;
}

static void complain(const a_case *c, const char *what, const char *detail)
{
    fail_msg("seed %d (%s, %d processes, %s): %s of rank %d in step %d: %s: %s", c->seed, c->mesh, c->processes,
             c->processes > 1 ? "-" : c->transport, fault_name(c->fault.kind), c->fault.rank, c->fault.step, what,
             detail);
}

static bool is_message(fault_kind kind)
{
    return kind == FAULT_DROP || kind == FAULT_LENGTH || kind == FAULT_HEADER;
}

/* The first of what the recorders say is of the culprit; of a message, of one of its ends. */
static void check_verdict(const a_case *c, const clv_flight_report *report)
{
    clv_error err = {0};
    char all[2000] = "";
    clv_flight_finding f = {.size = sizeof f}, first = {.rank = -1, .peer = -1};
    for (int i = 0; clv_flight_report_finding(report, i, &f, &err) == CLV_OK && f.text; i++) {
        size_t used = strlen(all);
        if (i == 0)
            first = f;
        snprintf(all + used, sizeof all - used, "\n  %s %d: %s", clv_flight_kind_name(f.kind), f.rank, f.text);
    }
    bool ok = is_culprit(c, first.rank) || (is_message(c->fault.kind) && first.peer == c->fault.rank);
    if (!ok || first.kind >= CLV_FLIGHT_WAITS)
        complain(c, "the recorders say", all);
}

static void read_recorders(const a_case *c, const char *path, int processes)
{
    clv_error err = {0};
    clv_flight_report *report;
    char names_of[MOST_PROCESSES][600];
    const char *paths[MOST_PROCESSES];
    int n = 0;
    for (int p = 0; p < processes; p++) {
        snprintf(names_of[n], sizeof names_of[n], processes > 1 ? "%s.%d" : "%s", path, p);
        if (access(names_of[n], R_OK) == 0) {
            paths[n] = names_of[n];
            n++;
        }
    }
    if (n == 0)
        complain(c, "no recorder was written", path);
    if (clv_flight_read(&report, paths, n, &err) != CLV_OK)
        complain(c, "recorders", err.message);
    check_verdict(c, report);
    clv_flight_report_free(report);
    for (int i = 0; i < n; i++)
        unlink(paths[i]);
}

/* Of one process: one that was done before the others met the fault has the right result. */
static void check_outcome(const a_case *c, const outcome *o, bool struck, int peer)
{
    if (!o->done)
        return;
    if (o->seconds > ENOUGH_S)
        complain(c, "it took long", o->error.message);
    if (o->wrong)
        complain(c, "a wrong result", "");
    bool fails = struck && c->fault.kind != FAULT_DELAY;
    if (!fails && o->status != CLV_OK)
        complain(c, "it failed", o->error.message);
    if (fails && o->status != CLV_OK && !names_culprit(o, c) && !(peer >= 0 && names(o->error.message, peer)))
        complain(c, "the culprit is not named", o->error.message);
}

/* But some process has met it. */
static void check_failed(const a_case *c, bool struck, bool failed)
{
    if (struck && c->fault.kind != FAULT_DELAY && !failed)
        complain(c, "nothing failed", "");
}

/* Runs the case in this process; all ranks, or those of the links. */
static void run_case(const a_case *c, const char *transport, const clv_links *links, const char *path, outcome *o)
{
    float y[MOST * MOST] = {0};
    clv_error err = {0};
    clv_flight *flight = NULL;
    clv_flight_options where = {.size = sizeof where, .path = path, .only_when_stuck = 1};
    *o = (outcome){.status = CLV_ENOMEM};
    if (clv_flight_new(&flight, &where, &err) != CLV_OK)
        return;
    clv_session *session = session_on(c, transport, links, flight);
    o->status = session ? clv_session_load(session, c->program, &err) : CLV_EPEER;
    if (o->status == CLV_OK) {
        fault_arm(&c->fault);
        double began = seconds_now();
        o->status = run(session, c, y, &err);
        o->seconds = seconds_now() - began;
        fault met = fault_disarm(NULL, 0);
        o->struck = met.struck;
        o->peer = met.peer;
        o->wrong = o->status == CLV_OK && memcmp(y, c->right, sizeof(float) * (size_t)(c->shape[0] * c->shape[1])) != 0;
    }
    o->error = err;
    o->done = session != NULL;
    clv_session_free(session);
    clv_flight_free(flight);
}

/* ---- one process ---- */

static int seeds(int few, int all)
{
    const char *sweep = getenv("CLV_SWEEP");
    return sweep && strcmp(sweep, "all") == 0 ? all : few;
}

/* The seeds of a test: [*from, *to). */
static void find_seeds(int *from, int *to, int few, int all)
{
    const char *one = getenv("CLV_SEED");
    *from = one ? atoi(one) : 0;
    *to = one ? *from + 1 : seeds(few, all);
}

static const char *dump_path(void)
{
    static char path[512];
    if (launched_job())
        snprintf(path, sizeof path, "/tmp/cleave-test-faults-%ld", (long)getppid());
    else
        snprintf(path, sizeof path, "%s/dump", cli_folder());
    return path;
}

static void test_in_one_process(void **state)
{
    static const fault_kind kinds[] = {FAULT_DELAY, FAULT_STOP, FAULT_HEADER, FAULT_DROP, FAULT_LENGTH};
    int from, to, struck = 0;
    (void)state;
    find_seeds(&from, &to, FEW, ALL * 6 / 10);
    for (int seed = from; seed < to && !launched_job(); seed++) {
        static a_case c;
        outcome o;
        make_case(&c, seed, kinds, 5, 1);
        run_case(&c, c.transport, NULL, dump_path(), &o);
        check_outcome(&c, &o, o.struck, o.peer);
        check_failed(&c, o.struck, o.status != CLV_OK);
        if (o.status != CLV_OK)
            read_recorders(&c, dump_path(), 1);
        struck += o.struck;
        clv_program_free(c.program);
    }
    printf("%d of %d faults\n", struck, to - from);
}

/* ---- several, by sockets ---- */

static void in_child(const clv_links *links, void *arg)
{
    const a_case *c = arg;
    outcome o;
    run_case(c, "copying", links, dump_path(), &o);
    seen[links->me] = o;
    clv_program_free(c->program);
}

static void test_in_processes(void **state)
{
    static const fault_kind kinds[] = {FAULT_KILL,   FAULT_FREEZE, FAULT_DELAY,  FAULT_STOP,
                                       FAULT_HEADER, FAULT_DROP,   FAULT_LENGTH, FAULT_KILL};
    int from, to, struck = 0;
    (void)state;
    find_seeds(&from, &to, FEW / 2, ALL * 4 / 10);
    for (int seed = from; seed < to && !launched_job(); seed++) {
        static a_case c;
        make_case(&c, seed, kinds, 8, 2 + seed % 3 % 2);
        int lost = -1;
        for (int p = 0; p < c.processes; p++)
            if (c.fault.kind == FAULT_KILL && c.first[p] <= c.fault.rank && c.fault.rank < c.first[p + 1])
                lost = p;
        memset(seen, 0, MOST_PROCESSES * sizeof *seen);
        in_processes(c.first, c.processes, in_child, &c, lost);
        bool hit = lost >= 0 && !seen[lost].done, failed = false;
        int peer = -1;
        for (int p = 0; p < c.processes; p++) {
            hit = hit || seen[p].struck;
            peer = seen[p].struck ? seen[p].peer : peer;
        }
        for (int p = 0; p < c.processes; p++) {
            check_outcome(&c, &seen[p], hit, peer);
            failed = failed || seen[p].status != CLV_OK;
        }
        check_failed(&c, hit, failed);
        if (failed)
            read_recorders(&c, dump_path(), c.processes);
        struck += hit;
        clv_program_free(c.program);
    }
    printf("%d of %d faults\n", struck, to - from);
}

/* ---- several, by MPI ---- */

/* Whether any process has met the fault, and whom its message was for: said by the one that did. */
static bool any_struck(const outcome *o, int *peer)
{
    clv_error said = {0}, none = {0};
    if (o->struck)
        (void)clv_fail(&said, CLV_ECHECK, "for %d", o->peer);
    *peer = o->peer;
    if (clv_job_agree(launched_job(), said.code, o->struck ? &said : &none) == CLV_OK)
        return false;
    const char *at = strstr(none.message, "for ");
    if (at)
        *peer = atoi(at + 4);
    return true;
}

static void test_by_mpi(void **state)
{
    static const fault_kind kinds[] = {FAULT_DELAY, FAULT_STOP, FAULT_HEADER, FAULT_DROP, FAULT_LENGTH};
    int from, to, struck = 0, runs = 0;
    clv_error err = {0};
    (void)state;
    find_seeds(&from, &to, launched_job() ? FEW_MPI : 0, launched_job() ? ALL_MPI : 0);
    for (int seed = from; seed < to && launched_job(); seed++) {
        static a_case c;
        outcome o;
        make_case(&c, seed, kinds, 5, clv_job_processes(launched_job()));
        run_case(&c, "mpi", launched_links(c.ranks), dump_path(), &o);
        if (!o.done) { /* messages were stuck: the job is poisoned */
            clv_program_free(c.program);
            break;
        }
        int peer;
        bool hit = any_struck(&o, &peer);
        check_outcome(&c, &o, hit, peer);
        if (o.status != CLV_OK && clv_job_process(launched_job()) == 0)
            read_recorders(&c, dump_path(), c.processes);
        (void)clv_job_agree(launched_job(), CLV_OK, &err);
        struck += hit;
        runs++;
        clv_program_free(c.program);
    }
    printf("%d of %d faults\n", struck, runs);
    if (launched_job() && runs == 0)
        fail_msg("no run");
}

static int set_up(void **state)
{
    (void)state;
    seen = mmap(NULL, MOST_PROCESSES * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_one_process), cmocka_unit_test(test_in_processes),
                                       cmocka_unit_test(test_by_mpi)};
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
