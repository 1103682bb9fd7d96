/* test_flight_recorder.c - flight recorders: what they keep, how dumps of several processes are read together, and who
 * is blamed for what. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleave/flight.h"
#include "cleave/op.h"
#include "cleave/session.h"
#include "cli_run.h"
#include "graph/graph.h"
#include "io/diagnostics/flight_file.h"
#include "must.h"
#include "sleeping_op.h"
#include "unit_test.h"

enum { N = 16, LATE_MS = 900 };

static const char *folder;

static const char *in_folder(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* ---- programs ---- */

/* An op, then a sum that all ranks wait for. */
static clv_program *napping(void)
{
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph("x=3");
    clv_layout layout = clv_graph_layout(graph, 1, "x"), whole = clv_graph_layout(graph, 0, "");
    clv_value x = clv_state(graph, "x", CLV_F32, 1, (int64_t[]){N}, &layout, (clv_init){CLV_INIT_ONES, 0});
    clv_graph_push_scope(graph, "layers.%d", 7);
    clv_value y = clv_graph_emit_one(graph, &nap, NULL, &x, 1);
    clv_graph_pop_scope(graph);
    clv_output(graph, "sum", clv_constrain(graph, clv_reduce(graph, CLV_SUM, y, (int[]){0}, 1, false), &whole), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_session *session_of(clv_flight *flight, const char *transport)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_session_options options = {
        .size = sizeof options, .no_pinning = 1, .timeout_ms = 300, .transport = transport, .flight = flight};
    must(clv_mesh_parse(&mesh, "x=3", &err), &err);
    must(clv_session_new(&session, &mesh, &options, &err), &err);
    return session;
}

static clv_flight *flight_to(const char *name, int only_on_timeout)
{
    clv_error err = {0};
    clv_flight *flight;
    clv_flight_options options = {.size = sizeof options, .path = in_folder(name), .only_on_timeout = only_on_timeout};
    must(clv_flight_new(&flight, &options, &err), &err);
    return flight;
}

static clv_flight_report *report_of(const char *path)
{
    clv_error err = {0};
    clv_flight_report *report;
    must(clv_flight_read(&report, &path, 1, &err), &err);
    return report;
}

static clv_flight_finding finding(const clv_flight_report *report, int i)
{
    clv_error err = {0};
    clv_flight_finding f = {.size = sizeof f};
    must(clv_flight_report_finding(report, i, &f, &err), &err);
    return f;
}

/* The last 256 of many, and names that outlive their program. */
static void test_ring(void **state)
{
    clv_error err = {0};
    clv_program *program = napping();
    clv_session *session = session_of(NULL, NULL);
    for (int i = 0; i < 200; i++)
        must(clv_session_run(session, program, NULL, 0, NULL, 0, &err), &err);
    clv_session_unload(session, program);
    clv_program_free(program);
    const char *path = in_folder("ring");
    must(clv_flight_write(session, path, &err), &err);
    clv_session_free(session);
    clv_flight_dump d;
    must(clv_flight_dump_read(&d, path, &err), &err);
    assert_int_equal(d.n_local_ranks, 3);
    for (int r = 0; r < d.n_local_ranks; r++) {
        const clv_flight_rank_dump *of = &d.of[r];
        assert_int_equal(of->n, 256);
        assert_true(of->begun > 256 && !of->busy);
        bool seen = false;
        for (int i = 0; i < of->n; i++) {
            const clv_flight_record *at = &of->records[i];
            assert_true(at->number == of->begun - 256 + (uint64_t)i + 1);
            assert_true(at->begun_ns > 0 && at->ended_ns >= at->begun_ns);
            seen |= strcmp(at->name, "layers.7.nap") == 0;
            assert_true(at->phase == CLV_FLIGHT_PHASE_NONE ||
                        (at->phase == CLV_FLIGHT_PHASE_COMPLETED && at->seen == at->expected));
        }
        assert_true(seen);
        for (int s = 0; s < d.n_sets; s++)
            assert_true(of->steps[s] == of->ended[s]);
    }
    clv_flight_dump_free(&d);
    clv_flight_report *report = report_of(path);
    assert_null(finding(report, 0).text);
    clv_flight_report_free(report);
}

static void is_late(const char *transport)
{
    clv_error err = {0};
    const char *written;
    clv_program *program = napping();
    clv_flight *flight = flight_to("late", 1);
    clv_session *session = session_of(flight, transport);
    must(clv_session_run(session, program, NULL, 0, NULL, 0, &err), &err);
    must(clv_flight_last_path(&written, flight, &err), &err);
    assert_null(written);
    naps.ms = LATE_MS;
    naps.left = 1;
    assert_int_equal(clv_session_run(session, program, NULL, 0, NULL, 0, &err), CLV_ETIMEOUT);
    err = (clv_error){0};
    must(clv_flight_last_path(&written, flight, &err), &err);
    clv_flight_report *report = report_of(written);
    clv_flight_finding f = finding(report, 0);
    if (f.kind != CLV_FLIGHT_STRAGGLER || f.rank != 2 || !strstr(f.text, "layers.7.nap"))
        fail_msg("%s: %s: %s", transport, clv_flight_kind_name(f.kind), f.text);
    clv_flight_rank r = {.size = sizeof r};
    must(clv_flight_report_rank(report, 0, &r, &err), &err);
    assert_true(r.waited_seconds >= 0.25 && r.waited_seconds < 10 && r.expected > 0 && r.received < r.expected &&
                r.group_set >= 0 && r.seq > 0);
    must(clv_flight_report_rank(report, 2, &r, &err), &err);
    assert_true(r.waited_seconds == 0 && r.group_set < 0);
    assert_string_equal(r.kind, "nap");
    clv_flight_report_free(report);
    nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000L}, NULL); /* so that nothing need be leaked */
    clv_session_free(session);
    clv_flight_free(flight);
    clv_program_free(program);
}

static void test_late(void **state)
{
    is_late("threads");
    is_late("mailbox");
}

/* At the end, but not over what a session that failed left. */
static void test_when_it_is_written(void **state)
{
    clv_error err = {0};
    const char *written;
    clv_flight *flight = flight_to("end", 0);
    clv_session_free(session_of(flight, NULL));
    must(clv_flight_last_path(&written, flight, &err), &err);
    assert_string_equal(written, in_folder("end"));
    clv_flight_report *report = report_of(written);
    assert_int_equal(clv_flight_report_rank_count(report), 3);
    assert_null(finding(report, 0).text);
    clv_flight_report_free(report);
    clv_flight_free(flight);
    flight = flight_to("none/of/that", 0);
    clv_session_free(session_of(flight, NULL));
    assert_int_equal(clv_flight_last_path(&written, flight, &err), CLV_ENOTFOUND);
    clv_flight_free(flight);
    assert_int_equal(clv_flight_new(&flight, NULL, NULL), CLV_EINVAL);
}

/* ---- dumps as others would write them ---- */

/* Two ranks, one a process; a rank is (steps begun, ended, phase, tag, missing members) of group set 0. */
typedef struct rank_told {
    uint64_t begun, ended;
    clv_flight_phase phase;
    uint64_t tag, lacks;
} rank_told;

static void write_told(const char *path, int process, rank_told told, uint64_t run)
{
    clv_error err = {0};
    clv_flight_dump d = {
        .run = run, .process = process, .processes = 2, .ranks = 2, .pid = 1, .written_ns = 5000000000};
    snprintf(d.host, sizeof d.host, "h%d", process);
    must(clv_flight_dump_alloc(&d, 1, 1, 1, &err), &err);
    d.members[1] = 1;
    d.of[0] = (clv_flight_rank_dump){.rank = process,
                                     .begun = 9,
                                     .busy = told.phase != CLV_FLIGHT_PHASE_COMPLETED,
                                     .steps = d.of[0].steps,
                                     .ended = d.of[0].ended,
                                     .n = 1,
                                     .records = d.of[0].records};
    d.of[0].steps[0] = told.begun;
    d.of[0].ended[0] = told.ended;
    d.of[0].records[0] =
        (clv_flight_record){.number = 9,
                            .instruction = 4,
                            .name = told.phase == CLV_FLIGHT_PHASE_NONE ? "layers.1.up" : "layers.1.sum",
                            .kind = told.phase == CLV_FLIGHT_PHASE_NONE ? "matmul" : "all_reduce",
                            .begun_ns = 1,
                            .phase = told.phase,
                            .seq = told.phase == CLV_FLIGHT_PHASE_NONE ? 0 : told.begun,
                            .tag = told.tag,
                            .lacks = told.lacks,
                            .waiting_ns = told.phase == CLV_FLIGHT_PHASE_WAITING ? 2000000000 : 0};
    must(clv_flight_dump_write(&d, path, &err), &err);
    clv_flight_dump_free(&d);
}

static void expect_verdict(rank_told a, rank_told b, clv_flight_kind kind, int rank, const char *text)
{
    clv_error err = {0};
    clv_flight_report *report;
    char paths[2][512];
    for (int p = 0; p < 2; p++)
        snprintf(paths[p], sizeof paths[p], "%s/told.%d", folder, p);
    write_told(paths[0], 0, a, 5);
    write_told(paths[1], 1, b, 5);
    must(clv_flight_read(&report, (const char *[]){paths[1], paths[0]}, 2, &err), &err);
    clv_flight_finding f = finding(report, 0);
    if (!f.text || f.kind != kind || f.rank != rank || !strstr(f.text, text))
        fail_msg("'%s' of rank %d was expected, not '%s' of rank %d: %s", text, rank, clv_flight_kind_name(f.kind),
                 f.rank, f.text ? f.text : "nothing");
    clv_flight_report_free(report);
}

static void test_verdicts(void **state)
{
    const rank_told waits = {8, 7, CLV_FLIGHT_PHASE_WAITING, 3, 0}, op = {7, 7, CLV_FLIGHT_PHASE_NONE, 0, 0};
    expect_verdict(
        waits, op, CLV_FLIGHT_STRAGGLER, 1,
        "it is in matmul 'layers.1.up' (instruction 4); rank 0 (process 0 on h0) waits for it in all_reduce");
    expect_verdict(op, waits, CLV_FLIGHT_STRAGGLER, 0, "rank 0 (process 0 on h0) is behind");
    const rank_told other = {8, 7, CLV_FLIGHT_PHASE_WAITING, 4, 0};
    expect_verdict(waits, other, CLV_FLIGHT_DIFFERS, 1, "they do not run the same");
    const rank_told lacks = {8, 7, CLV_FLIGHT_PHASE_WAITING, 3, 2}, ahead = {9, 8, CLV_FLIGHT_PHASE_WAITING, 5, 1};
    expect_verdict(lacks, ahead, CLV_FLIGHT_LOST, 1, "did not come");
}

/* Steps whose numbers are far apart are compared as soon as others. */
static void test_far_apart(void **state)
{
    const rank_told first = {1, 0, CLV_FLIGHT_PHASE_WAITING, 3, 2},
                    last = {9000000000000000000, 8999999999999999999u, CLV_FLIGHT_PHASE_WAITING, 3, 1};
    expect_verdict(first, last, CLV_FLIGHT_LOST, 1, "did not come");
}

static void expect_refused(clv_status code, const char *const *paths, int n, const char *text)
{
    clv_error err = {0};
    clv_flight_report *report;
    clv_status status = clv_flight_read(&report, paths, n, &err);
    if (status == CLV_OK)
        fail_msg("not refused: %s", text);
    if (status != code || !strstr(err.message, text))
        fail_msg("'%s' was expected, not %s: %s", text, clv_status_name(status), err.message);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_refusals(void **state)
{
    char a[512], b[512], c[512];
    const rank_told told = {7, 7, CLV_FLIGHT_PHASE_NONE, 0, 0};
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    snprintf(c, sizeof c, "%s/c", folder);
    write_told(a, 0, told, 5);
    write_told(b, 1, told, 6);
    expect_refused(CLV_EINVAL, (const char *[]){a, b}, 2, "are of different runs");
    write_told(b, 0, told, 5);
    expect_refused(CLV_EINVAL, (const char *[]){a, b}, 2, "are both of process 0");
    expect_refused(CLV_ENOTFOUND, (const char *[]){a, in_folder("nothing")}, 2, "nothing");
    put("c", "{}");
    expect_refused(CLV_EFORMAT, (const char *[]){c}, 1, "is no dump of a flight recorder");
    put("c", "{\"cleave_flight\": 2}");
    expect_refused(CLV_EUNSUPPORTED, (const char *[]){c}, 1, "version 2 of a flight recorder's dump; known: 1");
    cli_shell("head -c 200 {d}/a > {d}/c");
    expect_refused(CLV_EFORMAT, (const char *[]){c}, 1, "no dump of a flight recorder, or not a whole one");
    expect_refused(CLV_EINVAL, (const char *[]){a}, 0, "paths");
}

/* ---- the command ---- */

static void test_command(void **state)
{
    const rank_told waits = {8, 7, CLV_FLIGHT_PHASE_WAITING, 3, 0}, op = {7, 7, CLV_FLIGHT_PHASE_NONE, 0, 0};
    write_told(in_folder("run.flight.0"), 0, waits, 5);
    cli_expect(0, "rank 1 left no dump", "flight {d}/run.flight.0");
    write_told(in_folder("run.flight.1"), 1, op, 5);
    cli_expect(0, "rank 1 (process 1 on h1) is behind", "flight {d}/run.flight.0 {d}/run.flight.1");
    cli_expect(0, "\"finding\": \"straggler\", \"rank\": 1", "flight --json {d}/run.flight.1 {d}/run.flight.0");
    cli_expect(2, "are both of process 0", "flight {d}/run.flight.0 {d}/run.flight.0");
    cli_expect(2, "FILE", "flight");
    cli_expect(2, "nothing", "flight {d}/nothing");
    cli_expect(0, "", "bench allreduce -tp 2 --bytes 64 --flight-recorder {d}/reduced");
    cli_expect(0, "constraint", "flight {d}/reduced");
    cli_expect(2, "none", "bench allreduce -tp 2 --bytes 64 --flight-recorder {d}/none/f");
}

static int make_folder(void **state)
{
    folder = cli_folder();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_verdicts),  cmocka_unit_test(test_when_it_is_written),
        cmocka_unit_test(test_far_apart), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, make_folder, cli_remove_folder);
}
