/* test_fault_injection.c - random small programs, with and without overlap, compressed collectives, rows that are sent
 * to their experts, and state that runs change, in which one rank has a fault in one of its collectives: it is late,
 * stops, is killed, or a message of it is lost or damaged. No run hangs or gives another result: either the right one,
 * or a failure that names the culprit, as the flight recorders do. With threads, with messages in one process and
 * between several, and under MPI's launchers (CLV_TEST_LAUNCHERS, as in test_lost_process.c). A few seeds; 1,000 with
 * CLV_SWEEP=all; CLV_SEED=N: that one; CLV_FILTER=NAME: of that test alone.
 *
 * The culprit of a message that is lost or has another length is its sender, as the receiver only follows the plan; of
 * a mismatched collective it is the member that differs from the majority. Of two members neither is: both must be
 * named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleave/flight.h"
#include "cleave/session.h"
#include "cli_run.h"
#include "fault_injection.h"
#include "forked_ranks.h"
#include "mpi_test_job.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum {
    MOST = 16, /* elements of a dimension */
    TIMEOUT_MS = 500,
    DELAY_MS = 60,
    FREEZE_MS = 1500,
    ENOUGH_S = 20, /* of a run, on a host that does much else */
    FEW = 24,
    FEW_MPI = 6,
    ALL = 500, /* in one process */
    ALL_BETWEEN = 350,
    ALL_MPI = 75, /* by each launcher */
    RUNS = 3,     /* of what has state */
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
    bool has_state, has_experts;
    clv_compile_options how;
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

/* Rows of x [N,M], split over x, are sent to experts, and back: row i to experts i and i + 1, modulo E. */
static clv_value mixture(clv_graph *graph, clv_value x)
{
    enum { EXPERTS = 5, TOP = 2, FFN = 3 };
    const clv_init ones = {CLV_INIT_ONES, 0};
    const clv_type type = clv_graph_type(graph, x);
    const int64_t n = type.shape[0], m = type.shape[1];
    const clv_layout apart = clv_graph_layout(graph, 2, "x,_"), together = clv_graph_layout(graph, 2, "_,_"),
                     of_up = clv_graph_layout(graph, 4, "x,_,_,_"), of_down = clv_graph_layout(graph, 3, "x,_,_");
    const clv_value experts = clv_fill(graph, CLV_I32, 0, NULL, EXPERTS);
    clv_value choice[TOP];
    for (int k = 0; k < TOP; k++) {
        const clv_value i = clv_iota(graph, n, clv_fill(graph, CLV_I32, 0, NULL, k));
        choice[k] = clv_sub(graph, i, clv_mul(graph, clv_div(graph, i, experts), experts));
        choice[k] = clv_reshape(graph, choice[k], 2, (int64_t[]){n, 1});
    }
    const clv_value ids = clv_concat(graph, choice, TOP, 1);
    const clv_value weights = clv_fill(graph, CLV_F32, 2, (int64_t[]){n, TOP}, 0.5);
    const clv_value up = clv_state(graph, "up", CLV_F32, 4, (int64_t[]){EXPERTS, m, 2, FFN}, &of_up, ones);
    const clv_value down = clv_state(graph, "down", CLV_F32, 3, (int64_t[]){EXPERTS, FFN, m}, &of_down, ones);
    clv_keep_stationary(graph, up, "x");
    clv_keep_stationary(graph, down, "x");
    x = clv_constrain(graph, clv_constrain(graph, x, &apart), &together);
    return clv_constrain(graph, clv_experts(graph, x, ids, weights, up, down, CLV_RELU), &apart);
}

/* A chain of changes of layout and sums. */
static clv_program *random_program(const a_case *c)
{
    clv_error err = {0};
    clv_program *program;
    clv_value w = {0};
    clv_graph *graph = must_graph(c->mesh);
    bool has_y = strchr(c->mesh, 'y') != NULL;
    clv_layout layout = random_layout(graph, has_y), whole = clv_graph_layout(graph, 2, "_,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, c->shape, &layout);
    int layers = 2 + draw(4);
    if (c->has_state) {
        layout = random_layout(graph, has_y);
        w = clv_state(graph, "w", CLV_F32, 2, c->shape, &layout, (clv_init){CLV_INIT_ONES, 0});
        clv_assign(graph, w, clv_add(graph, w, x));
        x = clv_add(graph, x, w);
    }
    for (int i = 0; i < layers; i++) {
        clv_graph_push_scope(graph, "layers.%d", i);
        if (c->has_experts && i == 0)
            x = mixture(graph, x);
        layout = random_layout(graph, has_y);
        clv_value y = clv_constrain(graph, clv_add(graph, x, x), &layout);
        if (draw(2)) /* rows' sums, which ranks have addends of */
            y = clv_add(graph, y, clv_reduce(graph, CLV_SUM, y, (int[]){draw(2)}, 1, true));
        x = clv_constrain(graph, y, &whole);
        clv_graph_pop_scope(graph);
    }
    clv_output(graph, "y", x, &whole);
    must(clv_compile(&program, graph, &c->how, &err), &err);
    if (c->has_experts)
        must(clv_program_check_expert_capacity(program, c->how.expert_rank_capacity_factor, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* What the last run makes, which earlier ones have a part in where there is state. */
static clv_status run(clv_session *session, const a_case *c, float *y, clv_error *err)
{
    for (int i = c->has_state ? 0 : RUNS - 1; i < RUNS; i++)
        CLV_TRY(clv_session_run(session, c->program, &(clv_input_binding){"x", c->x}, 1, &(clv_output_binding){"y", y},
                                1, err));
    return CLV_OK;
}

static clv_session *session_on(const a_case *c, const char *transport, const clv_process_links *links,
                               clv_flight *flight)
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
    clv_status status = clv_session_new_with_links(&session, &mesh, &options, links, &err);
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
    fault_arm(&(fault){.kind = FAULT_NONE, .in_rows = c->has_experts});
    must(run(session, c, c->right, &err), &err);
    fault_disarm(&steps, c->fault.rank);
    clv_session_free(session);
    return steps;
}

/* A program in which the rank has steps. */
static void make_program(a_case *c)
{
    int steps = 0;
    while (steps == 0) {
        clv_program_free(c->program);
        for (int d = 0; d < 2; d++)
            c->shape[d] = 4 + draw(MOST - 3);
        c->program = random_program(c);
        steps = find_right(c);
    }
    c->fault.step = draw(steps);
}

/* kinds: those that there are with messages, the first n_threads of them without. */
static void make_case(a_case *c, int seed, const fault_kind *kinds, int n_kinds, int n_threads, int processes)
{
    static const clv_comm_dtype dtypes[] = {CLV_COMM_F32, CLV_COMM_F32, CLV_COMM_BF16, CLV_COMM_Q8};
    drawn = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
    (void)draw(2);
    *c = (a_case){.seed = seed, .processes = processes};
    do
        snprintf(c->mesh, sizeof c->mesh, "%s", meshes[draw((int)(sizeof meshes / sizeof *meshes))]);
    while ((c->ranks = strchr(c->mesh, 'y') ? 2 * (c->mesh[2] - '0') : c->mesh[2] - '0') < processes);
    for (int p = 0; p <= processes; p++)
        c->first[p] = p * c->ranks / processes;
    c->transport = draw(2) ? "threads" : "mailbox";
    c->has_state = draw(2) == 1;
    c->how = (clv_compile_options){.size = sizeof c->how, .overlap = draw(2), .comm_dtype = dtypes[draw(4)]};
    for (int i = 0; i < MOST * MOST; i++)
        c->x[i] = (float)draw(1000) / 8;
    bool by_messages = processes > 1 || strcmp(c->transport, "mailbox") == 0;
    c->fault =
        (fault){.kind = kinds[draw(by_messages ? n_kinds : n_threads)], .rank = draw(c->ranks), .which = draw(8)};
    c->fault.ms = c->fault.kind == FAULT_FREEZE ? FREEZE_MS : DELAY_MS;
    c->has_experts = c->fault.in_rows = seed % 3 == 1;
    if (c->has_experts) {
        c->how.comm_dtype = CLV_COMM_F32;
        c->how.expert_rank_capacity_factor = 1e3; /* rows are sent, whatever it costs */
    }
    make_program(c);
}

/* ---- what is to come of it ---- */

/* Where results of processes are seen. */
typedef struct outcome {
    clv_status status;
    clv_error error;
    bool done, struck, wrong;
    int members; /* of the step that was struck */
    double seconds;
} outcome;

static outcome *seen; /* [MOST_PROCESSES], shared with children */

/* "rank 3", and not "rank 31"; or "ranks 3 to 4". */
static bool names(const char *text, int rank)
{
    char name[24];
    snprintf(name, sizeof name, "ranks %d to ", rank);
    if (strstr(text, name))
        return true;
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

/* Whether two members do different things: neither is in the right. */
static bool is_even(const a_case *c, const outcome *struck)
{
    return c->fault.kind == FAULT_HEADER && struck->members == 2;
}

static bool names_culprit(const outcome *o, const a_case *c, const outcome *struck)
{
    if (is_even(c, struck))
        return names(o->error.message, c->fault.rank);
    return is_culprit(c, o->error.rank) && names(o->error.message, o->error.rank);
}

static void complain(const a_case *c, const char *what, const char *detail)
{
    fail_msg("seed %d (%s, %d processes, %s%s%s, %s): %s of rank %d in step %d: %s: %s", c->seed, c->mesh, c->processes,
             c->processes > 1 ? "-" : c->transport, c->how.overlap ? ", overlap" : "", c->has_state ? ", state" : "",
             clv_comm_dtype_name(c->how.comm_dtype), fault_name(c->fault.kind), c->fault.rank, c->fault.step, what,
             detail);
}

/* The first of what the recorders say is of the culprit. */
static void check_verdict(const a_case *c, const clv_flight_report *report, const outcome *struck)
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
    bool ok = is_culprit(c, first.rank) || (is_even(c, struck) && first.peer == c->fault.rank);
    if (!ok || first.kind >= CLV_FLIGHT_WAITS)
        complain(c, "the recorders say", all);
}

static void read_recorders(const a_case *c, const char *path, int processes, const outcome *struck)
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
    check_verdict(c, report, struck);
    clv_flight_report_free(report);
    for (int i = 0; i < n; i++)
        unlink(paths[i]);
}

/* Of one process: one that was done before the others met the fault has the right result. */
static void check_outcome(const a_case *c, const outcome *o, const outcome *struck)
{
    if (!o->done)
        return;
    if (o->seconds > ENOUGH_S)
        complain(c, "it took long", o->error.message);
    if (o->wrong)
        complain(c, "a wrong result", "");
    bool fails = struck->struck && c->fault.kind != FAULT_DELAY;
    if (!fails && o->status != CLV_OK)
        complain(c, "it failed", o->error.message);
    if (fails && o->status != CLV_OK && !names_culprit(o, c, struck))
        complain(c, "the culprit is not named", o->error.message);
}

/* Of all processes, and what they wrote to path; returns whether the fault struck. A process that is killed says
 * nothing. */
static bool check_outcomes(const a_case *c, const outcome *of, const char *path)
{
    outcome struck = {0};
    bool failed = false;
    for (int p = 0; p < c->processes; p++) {
        bool ends = c->fault.kind == FAULT_KILL || c->fault.kind == FAULT_FREEZE; /* launchers may end who is stopped */
        bool ended = ends && is_culprit(c, c->first[p]) && !of[p].done;
        if (of[p].struck || ended)
            struck = (outcome){.struck = true, .members = of[p].members};
        failed = failed || (of[p].done && of[p].status != CLV_OK);
    }
    for (int p = 0; p < c->processes; p++)
        check_outcome(c, &of[p], &struck);
    if (struck.struck && c->fault.kind != FAULT_DELAY && !failed) /* but some process has met it */
        complain(c, "nothing failed", "");
    if (failed)
        read_recorders(c, path, c->processes, &struck);
    return struck.struck;
}

/* Runs the case in this process; all ranks, or those of the links. */
static void run_case(const a_case *c, const char *transport, const clv_process_links *links, const char *path,
                     outcome *o)
{
    float y[MOST * MOST] = {0};
    clv_error err = {0};
    clv_flight *flight = NULL;
    clv_flight_options where = {.size = sizeof where, .path = path, .only_on_timeout = 1};
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
        o->members = met.members;
        o->wrong = o->status == CLV_OK && memcmp(y, c->right, sizeof(float) * (size_t)(c->shape[0] * c->shape[1])) != 0;
    }
    o->error = err;
    o->done = session != NULL;
    clv_session_free(session);
    clv_flight_free(flight);
}

/* ---- seeds ---- */

/* The seeds of a test: [*from, *to). */
static void find_seeds(int *from, int *to, int few, int all)
{
    const char *one = getenv("CLV_SEED"), *sweep = getenv("CLV_SWEEP");
    *from = one ? atoi(one) : 0;
    *to = one ? *from + 1 : sweep && strcmp(sweep, "all") == 0 ? all : few;
}

/* A fault may find nothing to do in the steps that are left; few do. */
static void check_struck(int struck, int n)
{
    printf("%d of %d faults\n", struck, n);
    if (n > 1 && struck < n - 1 - n / 20)
        fail_msg("only %d of %d faults struck", struck, n);
}

static const char *dump_path(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/dump", cli_folder());
    return path;
}

/* ---- one process ---- */

static const fault_kind all_kinds[] = {FAULT_DELAY,  FAULT_STOP, FAULT_HEADER, FAULT_LENGTH,
                                       FAULT_FREEZE, FAULT_KILL, FAULT_KILL,   FAULT_DROP};
static const fault_kind here_kinds[] = {FAULT_DELAY, FAULT_STOP, FAULT_HEADER, FAULT_DROP, FAULT_LENGTH};
enum { OF_THREADS = 3, OF_MESSAGES = 5, OF_SHARED_MEMORY = 7, OF_PROCESSES = 8 }; /* how many of these there are */

static void test_in_one_process(void **state)
{
    int from, to, struck = 0;
    find_seeds(&from, &to, FEW, ALL);
    for (int seed = from; seed < to; seed++) {
        static a_case c;
        outcome o;
        make_case(&c, seed, here_kinds, OF_MESSAGES, OF_THREADS, 1);
        run_case(&c, c.transport, NULL, dump_path(), &o);
        struck += check_outcomes(&c, &o, dump_path());
        clv_program_free(c.program);
    }
    check_struck(struck, to - from);
}

/* ---- several, by sockets ---- */

static void in_child(const clv_process_links *links, void *arg)
{
    const a_case *c = arg;
    outcome o;
    run_case(c, "mailbox", links, dump_path(), &o);
    seen[links->me] = o;
    clv_program_free(c->program);
}

static void test_in_processes(void **state)
{
    int from, to, struck = 0;
    find_seeds(&from, &to, FEW / 2, ALL_BETWEEN);
    for (int seed = from; seed < to; seed++) {
        static a_case c;
        make_case(&c, seed, all_kinds, OF_PROCESSES, 0, 2 + seed % 3 % 2);
        int lost = -1;
        for (int p = 0; p < c.processes; p++)
            if (c.fault.kind == FAULT_KILL && is_culprit(&c, c.first[p]))
                lost = p;
        memset(seen, 0, MOST_PROCESSES * sizeof *seen);
        in_processes(c.first, c.processes, in_child, &c, lost);
        struck += check_outcomes(&c, seen, dump_path());
        clv_program_free(c.program);
    }
    check_struck(struck, to - from);
}

/* ---- several, by MPI ---- */

/* Seeds of a launch, and what came of them: a file that the processes have in memory. */
enum { BATCH = 3 };
typedef struct batch {
    outcome of[BATCH][MOST_PROCESSES];
} batch;

static int processes_of(int seed)
{
    return 2 + seed / BATCH / 2 % 2;
}

/* Whether the processes are to send messages, though they could share memory. */
static bool by_messages(int seed)
{
    return seed / BATCH % 2 == 1;
}

static void make_mpi_case(a_case *c, int seed)
{
    make_case(c, seed, all_kinds, by_messages(seed) ? OF_PROCESSES : OF_SHARED_MEMORY, 0, processes_of(seed));
}

static void name_dump(char *out, size_t size, const char *path, int seed)
{
    snprintf(out, size, "%s.%d", path, seed);
}

/* A process that a launcher started: seeds [from, to), as far as the job lets it. */
static int take_part(const char *path, int from, int to)
{
    FILE *file = fopen(path, "r+e");
    batch *b = file ? mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0) : MAP_FAILED;
    if (b == MAP_FAILED)
        return 1;
    for (int seed = from; seed < to; seed++) {
        static a_case c;
        char dump[600];
        outcome o;
        make_mpi_case(&c, seed);
        name_dump(dump, sizeof dump, path, seed);
        run_case(&c, "mpi", launched_links(c.ranks), dump, &o);
        b->of[seed - from][clv_job_process_index(launched_job())] = o;
        clv_program_free(c.program);
        if (!o.done) /* messages were stuck, or a process is gone: the job is poisoned */
            break;
    }
    (void)clv_job_leave(launched_job(), &(clv_error){0});
    _exit(0);
}

static char program_path[1024];

/* Behind a shell that lives on, so that the launcher leaves the others alone when one is killed. */
static void launch(batch *out, const char *launcher, const char *path, int from, int to)
{
    FILE *file = fopen(path, "we");
    memset(out, 0, sizeof *out);
    assert_non_null(file);
    assert_int_equal(fwrite(out, sizeof *out, 1, file), 1);
    fclose(file);
    cli_shell("CLV_TEST_TRANSPORT=mpi CLEAVE_SHARED_MEMORY=%s timeout -s KILL 120 %s -np %d sh -c '\"$0\" \"$@\"; "
              "sleep 0.3; exit 0' %s %s %d %d "
              ">{d}/said 2>&1 || true",
              by_messages(from) ? "off" : "on", launcher, processes_of(from), program_path, path, from, to);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fread(out, sizeof *out, 1, file), 1);
    fclose(file);
}

/* Whether a process made it to its end. */
static bool was_run(const outcome *of)
{
    for (int p = 0; p < MOST_PROCESSES; p++)
        if (of[p].done)
            return true;
    return false;
}

/* Runs as many as the job lets; returns how many. */
static int run_batch(int *struck, const char *launcher, int from, int to)
{
    static batch b;
    char path[512], dump[600];
    int n = 0;
    snprintf(path, sizeof path, "%s/batch", cli_folder());
    launch(&b, launcher, path, from, to);
    for (; from + n < to && was_run(b.of[n]); n++) {
        static a_case c;
        make_mpi_case(&c, from + n);
        name_dump(dump, sizeof dump, path, from + n);
        *struck += check_outcomes(&c, b.of[n], dump);
        clv_program_free(c.program);
    }
    if (n == 0) {
        cli_shell("cat {d}/said");
        fail_msg("seed %d: no process came to its end", from);
    }
    return n;
}

static void test_by_mpi(void **state)
{
    const char *left = getenv("CLV_TEST_LAUNCHERS");
    while (left && *left) {
        char launcher[512];
        size_t length = strcspn(left, "|");
        int from, to, struck = 0;
        snprintf(launcher, sizeof launcher, "%.*s", (int)length, left);
        left += length + (left[length] == '|');
        find_seeds(&from, &to, FEW_MPI, ALL_MPI);
        for (int seed = from; seed < to;) {
            int end = (seed / BATCH + 1) * BATCH;
            seed += run_batch(&struck, launcher, seed, end < to ? end : to);
        }
        printf("%s: ", launcher);
        check_struck(struck, to - from);
    }
}

static int set_up(void **state)
{
    seen = mmap(NULL, MOST_PROCESSES * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_one_process), cmocka_unit_test(test_in_processes),
                                       cmocka_unit_test(test_by_mpi)};
    cmocka_set_test_filter(getenv("CLV_FILTER"));
    if (argc == 4)
        return take_part(argv[1], atoi(argv[2]), atoi(argv[3]));
    if (!realpath(argv[0], program_path))
        return 1;
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
