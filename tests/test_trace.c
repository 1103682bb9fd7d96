/* test_trace.c - traces: what is in them of a program on several meshes and transports, and what is read off them. */
#include <jansson.h>
#include <math.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "cleave/op.h"
#include "cleave/trace.h"
#include "cli_run.h"
#include "graph/graph.h"
#include "io/diagnostics/trace_file.h"
#include "mpi_test_job.h"
#include "must.h"
#include "runtime/session/session_internal.h"
#include "sleeping_op.h"
#include "unit_test.h"

enum { B = 4, S = 12, M = 24, HEADS = 6, LAYERS = 2, RUNS = 4, MOST_ROWS = 512, DEPTH = 8, LATE_MS = 60 };

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    return path;
}

/* ---- programs ---- */

/* Blocks, and the gradients of their weights. */
static clv_program *blocks(const char *mesh_text, const char *rules_name, bool overlap)
{
    enum { MOST = 64 };
    clv_error err = {0};
    clv_program *program;
    clv_value wrt[MOST], d[MOST];
    clv_graph *graph = must_graph(mesh_text);
    clv_axis_rules rules;
    clv_block_options o = clv_block_defaults(CLV_BLOCK_LLAMA, HEADS, HEADS, 4 * M);
    must(clv_axis_rules_preset(&rules, rules_name, clv_graph_mesh(graph), &err), &err);
    clv_value y = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){B, S, M}, NULL);
    for (int layer = 0; layer < LAYERS; layer++) {
        clv_graph_push_scope(graph, "layers.%d", layer);
        y = clv_transformer_block(graph, y, &rules, &o);
        clv_graph_pop_scope(graph);
    }
    clv_value sum = clv_reduce(graph, CLV_SUM, y, (int[]){0, 1, 2}, 3, false);
    int n = clv_graph_parameters(graph, wrt, MOST);
    clv_gradients(graph, sum, CLV_NONE, wrt, n, d);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        clv_output(graph, name, d[i], NULL);
    }
    const clv_compile_options options = {.size = sizeof options, .overlap = overlap};
    must(clv_compile(&program, graph, &options, &err), &err);
    clv_graph_free(graph);
    return program;
}

static clv_session *session_for(const clv_program *program, const char *transport)
{
    clv_error err = {0};
    clv_session *session;
    const clv_session_options options = {
        .size = sizeof options, .seed = 3, .no_pinning = 1, .transport = transport, .job = launched_job()};
    must(clv_session_new(&session, clv_program_mesh(program), &options, &err), &err);
    return session;
}

static void run(clv_session *session, const clv_program *program)
{
    static float x[B * S * M];
    clv_error err = {0};
    clv_input_binding input = {"x", x};
    must(clv_session_run(session, program, &input, 1, NULL, 0, &err), &err);
}

static void end(clv_session *session, const char *path)
{
    clv_error err = {0};
    const clv_trace_options options = {.size = sizeof options, .path = path};
    must(clv_trace_end(session, &options, &err), &err);
}

/* ---- what is in a file ---- */

typedef struct slice {
    const char *cat, *name, *op, *kind, *part, *axes;
    long long row;
    double begin, end, bytes; /* microseconds */
    long long step, layer, rank;
} slice;

typedef struct slices {
    json_t *document;
    int n;
    slice *of;
} slices;

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static long long whole_of(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static slices read_slices(const char *path)
{
    json_error_t where;
    slices all = {.document = json_load_file(path, JSON_REJECT_DUPLICATES, &where)};
    if (!all.document)
        fail_msg("%s: %s (line %d)", path, where.text, where.line);
    const json_t *events = json_object_get(all.document, "traceEvents"), *event;
    long long ranks = whole_of(json_object_get(all.document, "otherData"), "ranks");
    size_t i;
    all.of = calloc(json_array_size(events) + 1, sizeof *all.of);
    assert_non_null(all.of);
    json_array_foreach(events, i, event)
    {
        const json_t *args = json_object_get(event, "args");
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        double begin = json_number_value(json_object_get(event, "ts"));
        slice *s = &all.of[all.n++];
        *s = (slice){.cat = text_of(event, "cat"),
                     .name = text_of(event, "name"),
                     .op = text_of(args, "op"),
                     .kind = text_of(args, "kind"),
                     .part = text_of(args, "part"),
                     .axes = text_of(args, "axes"),
                     .row = whole_of(event, "tid"),
                     .begin = begin,
                     .end = begin + json_number_value(json_object_get(event, "dur")),
                     .bytes = json_number_value(json_object_get(args, "bytes")),
                     .step = whole_of(args, "step"),
                     .layer = whole_of(args, "layer")};
        s->rank = s->row % ranks;
        assert_true(json_is_number(json_object_get(event, "dur")) && s->end >= s->begin && s->begin >= 0);
    }
    return all;
}

static void free_slices(slices *all)
{
    json_decref(all->document);
    free(all->of);
}

/* Slices of a row lie in each other, or apart; what waits lies in a collective, all of a rank in steps. */
static void check_rows(const slices *all, int ranks)
{
    static const slice *stack[MOST_ROWS][DEPTH];
    int depth[MOST_ROWS] = {0};
    for (int i = 0; i < all->n; i++) {
        const slice *s = &all->of[i];
        assert_in_range(s->row, 0, MOST_ROWS - 1);
        int *d = &depth[s->row];
        while (*d > 0 && stack[s->row][*d - 1]->end <= s->begin + 1e-4)
            --*d;
        const slice *in = *d > 0 ? stack[s->row][*d - 1] : NULL;
        if (in && s->end > in->end + 1e-3)
            fail_msg("row %lld: %s (%s) ends behind %s, in which it begins", s->row, s->name, s->cat, in->name);
        if (s->row < ranks)
            assert_true(strcmp(s->cat, "step") == 0 ? !in : in != NULL);
        if (s->row >= ranks)
            assert_string_equal(s->cat, "transfer");
        if (strcmp(s->cat, "waiting") == 0)
            assert_string_equal(in->cat, "collective");
        assert_in_range(*d, 0, DEPTH - 1);
        stack[s->row][(*d)++] = s;
    }
}

/* An overlapped transfer has ended when it is waited for. */
static void check_transfers(const slices *all)
{
    for (int i = 0; i < all->n; i++) {
        const slice *s = &all->of[i];
        bool waited = false;
        for (int k = 0; k < all->n && strcmp(s->cat, "transfer") == 0; k++) {
            const slice *end = &all->of[k];
            waited |= end->rank == s->rank && end->step == s->step && strcmp(end->op, s->op) == 0 &&
                      strcmp(end->kind, s->kind) == 0 && strstr(end->name, " (ends)") && end->begin >= s->end - 1e-2;
        }
        assert_true(waited || strcmp(s->cat, "transfer") != 0);
    }
}

/* What lies in the steps of a rank makes these up, in some step all but for what it is interrupted by. */
static void check_sums(const slices *all, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        double best = 0;
        for (int k = 0; k < all->n; k++) {
            const slice *step = &all->of[k];
            double sum = 0;
            if (step->row != r || strcmp(step->cat, "step") != 0)
                continue;
            for (int i = 0; i < all->n; i++)
                if (all->of[i].row == r && all->of[i].step == step->step &&
                    (strcmp(all->of[i].cat, "compute") == 0 || strcmp(all->of[i].cat, "collective") == 0))
                    sum += all->of[i].end - all->of[i].begin;
            assert_true(sum <= (step->end - step->begin) * (1 + 1e-9) + 1e-3);
            best = fmax(best, sum / (step->end - step->begin));
        }
        if (best < 0.7)
            fail_msg("rank %d: its slices make up %.3f of a step at most", r, best);
    }
}

/* The collective that a slice tells of. */
static bool is_of(const slice *s, const clv_program *program)
{
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_instruction_info info = {.size = sizeof info};
        clv_program_instruction(program, i, &info, NULL);
        if (info.moves && info.bytes == s->bytes && strcmp(info.name, s->op) == 0 && strcmp(info.kind, s->kind) == 0)
            return true;
    }
    return false;
}

/* Each collective of the program once for each rank and step, with its bytes. */
static void check_collectives(const slices *all, const clv_program *program, int ranks, int steps)
{
    double bytes = 0, seen = 0;
    int n = 0, n_seen = 0;
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_instruction_info info = {.size = sizeof info};
        clv_program_instruction(program, i, &info, NULL);
        bytes += info.moves ? info.bytes : 0;
        n += info.moves != 0;
    }
    for (int i = 0; i < all->n; i++) {
        const slice *s = &all->of[i];
        bool talks = strcmp(s->cat, "collective") == 0 || strcmp(s->cat, "transfer") == 0;
        if (!talks || s->bytes == 0)
            continue;
        if (!is_of(s, program))
            fail_msg("%s of %s, %g bytes: no collective of the program", s->kind, s->op, s->bytes);
        assert_true(s->axes[0] != '\0');
        n_seen++;
        seen += s->bytes;
    }
    assert_true(n > 0);
    assert_int_equal(n_seen, n * ranks * steps);
    assert_true(fabs(seen - bytes * ranks * steps) <= 1e-9 * seen);
}

/* Every op of the program once for each rank and step; layers and parts are those of names. */
static void check_names(const slices *all, const clv_program *program, int ranks, int steps)
{
    int ops = 0, seen = 0;
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_instruction_info info = {.size = sizeof info};
        clv_program_instruction(program, i, &info, NULL);
        ops += !info.moves;
    }
    for (int i = 0; i < all->n; i++) {
        const slice *s = &all->of[i];
        int layer = -1;
        seen += strcmp(s->cat, "compute") == 0;
        if (strcmp(s->cat, "step") == 0)
            continue;
        assert_non_null(strstr(s->name, s->op));
        (void)sscanf(s->op, "layers.%d.", &layer);
        assert_int_equal(s->layer, layer);
        const char *part = strstr(s->op, ".attention.") ? "attention"
                           : strstr(s->op, ".mlp.")     ? "feed-forward"
                                                        : "rest";
        assert_string_equal(s->part, part);
    }
    assert_int_equal(seen, ops * ranks * steps);
}

static int count(const slices *all, const char *cat)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        n += strcmp(all->of[i].cat, cat) == 0;
    return n;
}

/* ---- tests ---- */

/* By kind of op, the longest first: as long, and as often, as the events are; n: ranks times steps. */
static void check_kinds(const clv_trace_report *report, const slices *all, double n)
{
    clv_error err = {0};
    clv_trace_op_kind kind = {.size = sizeof kind};
    double before = INFINITY, left = 0, waits = 0;
    for (int k = 0; k < all->n; k++) {
        double took = 1e-6 * (all->of[k].end - all->of[k].begin);
        bool counts = strcmp(all->of[k].cat, "compute") == 0 || strcmp(all->of[k].cat, "collective") == 0;
        left += counts ? took : 0;
        waits += strcmp(all->of[k].cat, "waiting") == 0 ? took : 0;
    }
    for (int i = 0;; i++) {
        must(clv_trace_report_op_kind(report, i, &kind, &err), &err);
        if (!kind.name)
            break;
        assert_true(kind.seconds <= before && kind.waiting <= kind.seconds && kind.stealing <= kind.waiting &&
                    kind.calls >= 1);
        assert_true(kind.calls == floor(kind.calls));
        if (strcmp(kind.name, "dot_general") == 0)
            assert_true(kind.waiting == 0);
        before = kind.seconds;
        left -= n * kind.seconds;
        waits -= n * kind.waiting;
    }
    assert_true(fabs(left) < 1e-9 && fabs(waits) < 1e-9);
    assert_int_equal(clv_trace_report_op_kind(report, -1, &kind, &err), CLV_EINVAL);
}

static void check_table(const char *path, const slices *all, const clv_program *program)
{
    clv_error err = {0};
    clv_trace_report *report;
    clv_trace_info info = {.size = sizeof info};
    clv_prediction predicted = {.size = sizeof predicted};
    double seconds = 0, communication = 0, compute = 0, talk = 0, waits = 0, n;
    int64_t collectives = 0;
    must(clv_trace_read(&report, path, &err), &err);
    must(clv_trace_report_get_info(report, &info, &err), &err);
    must(clv_program_predict(program, NULL, &predicted, &err), &err);
    n = (double)(info.ranks * info.steps);
    for (int i = 0; i < 3; i++) {
        clv_trace_part part = {.size = sizeof part};
        must(clv_trace_report_part(report, i, &part, &err), &err);
        seconds += part.predicted_seconds;
        communication += part.predicted_communication;
        compute += n * part.compute;
        talk += n * (part.moving + part.waiting);
        waits += n * part.waiting;
        collectives += part.collectives;
    }
    for (int i = 0; i < all->n; i++) {
        double took = 1e-6 * (all->of[i].end - all->of[i].begin);
        compute -= strcmp(all->of[i].cat, "compute") == 0 ? took : 0;
        talk -= strcmp(all->of[i].cat, "collective") == 0 ? took : 0;
        waits -= strcmp(all->of[i].cat, "waiting") == 0 ? took : 0;
    }
    assert_true(fabs(compute) < 1e-9 && fabs(talk) < 1e-9 && fabs(waits) < 1e-9);
    assert_true(fabs(seconds / predicted.seconds - 1) < 1e-6);
    assert_true(fabs(communication / predicted.communication - 1) < 1e-6);
    assert_int_equal(info.steps, RUNS);
    assert_int_equal(info.dropped_events, 0);
    assert_true(collectives > 0 && info.seconds > 0);
    check_kinds(report, all, n);
    clv_trace_report_free(report);
}

static void check_trace(const char *mesh, const char *rules, const char *transport, bool overlap)
{
    clv_error err = {0};
    clv_program *program = blocks(mesh, rules, overlap);
    clv_session *session = session_for(program, transport);
    int ranks = (int)clv_mesh_rank_count(clv_program_mesh(program));
    const char *path = in_folder("trace.json");
    run(session, program); /* of which nothing is kept */
    must(clv_trace_begin(session, &err), &err);
    for (int i = 0; i < RUNS; i++)
        run(session, program);
    end(session, path);
    run(session, program);
    if (clv_job_process_index(launched_job()) <= 0) {
        slices all = read_slices(path);
        assert_int_equal(count(&all, "step"), ranks * RUNS);
        check_rows(&all, ranks);
        check_transfers(&all);
        check_sums(&all, ranks);
        check_collectives(&all, program, ranks, RUNS);
        check_names(&all, program, ranks, RUNS);
        assert_int_equal(count(&all, "transfer") > 0, overlap);
        if (!overlap)
            check_table(path, &all, program);
        free_slices(&all);
    }
    clv_session_free(session);
    clv_program_free(program);
}

static void check_meshes(const char *transport)
{
    check_trace("model=2", "megatron", transport, false);
    check_trace("model=3", "megatron-sp", transport, false);
    check_trace("data=2,model=2", "fsdp+megatron-sp", transport, false);
    check_trace("data=2,model=2", "fsdp+megatron-sp", transport, true);
}

static void test_threads(void **state)
{
    check_meshes("threads");
}

static void test_mailbox(void **state)
{
    check_meshes("mailbox");
}

static void test_multi_process(void **state)
{
    check_meshes(NULL);
}

/* ---- who is late ---- */

/* An op on which the last rank sleeps, then a sum that all wait for. */
static clv_program *napping(void)
{
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph("x=3");
    clv_layout layout = clv_graph_layout(graph, 1, "x"), whole = clv_graph_layout(graph, 0, "");
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){B * S * M}, &layout);
    clv_graph_push_scope(graph, "layers.%d.a\"b\\c\xc3\xa9", 7);
    clv_value y = clv_graph_emit_one(graph, &nap, NULL, &x, 1);
    clv_graph_pop_scope(graph);
    clv_output(graph, "sum", clv_constrain(graph, clv_reduce(graph, CLV_SUM, y, (int[]){0}, 1, false), &whole), NULL);
    naps.ms = LATE_MS;
    naps.left = INT_MAX;
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* Ranks wait as long as the last one sleeps, which waits for none; their transfers are short. */
static void test_who_waits(void **state)
{
    clv_error err = {0};
    double waited[3] = {0}, slept = 0, talked[3] = {0};
    clv_program *program = napping();
    clv_session *session = session_for(program, NULL);
    must(clv_trace_begin(session, &err), &err);
    run(session, program);
    end(session, in_folder("late.json"));
    slices all = read_slices(in_folder("late.json"));
    for (int i = 0; i < all.n; i++) {
        const slice *s = &all.of[i];
        waited[s->rank] += strcmp(s->cat, "waiting") == 0 ? s->end - s->begin : 0;
        talked[s->rank] += strcmp(s->cat, "collective") == 0 ? s->end - s->begin : 0;
        if (strcmp(s->kind, "nap") == 0) {
            assert_int_equal(s->layer, 7);
            assert_string_equal(s->cat, "compute");
            slept = s->rank == 2 ? s->end - s->begin : slept;
        }
    }
    assert_true(slept >= 1e3 * LATE_MS);
    for (int r = 0; r < 2; r++)
        assert_true(waited[r] > 0.5e3 * LATE_MS && talked[r] >= waited[r]);
    assert_true(waited[2] < 0.5 * slept);
    free_slices(&all);
    clv_session_free(session);
    clv_program_free(program);
}

/* Of a run that failed there is what ran, in what the last rank failed, and for what the others waited; of several
 * processes in the file of the first. */
static void check_failed(bool alone)
{
    enum { RANKS = 3 };
    clv_error err = {0};
    static float x[B * S * M];
    clv_input_binding input = {"x", x};
    clv_program *program = napping();
    clv_session *session = session_for(program, NULL);
    const clv_trace_options options = {
        .size = sizeof options, .path = in_folder("failed.json"), .this_process_only = alone};
    must(clv_trace_begin(session, &err), &err);
    run(session, program);
    naps.fails = true;
    assert_int_not_equal(clv_session_run(session, program, &input, 1, NULL, 0, &err), CLV_OK);
    naps.fails = false;
    err = (clv_error){0};
    must(clv_trace_end(session, &options, &err), &err);
    int last = session->first_local_rank + session->n_local_ranks - 1;
    clv_session_free(session);
    clv_program_free(program);
    if (clv_job_process_index(launched_job()) > 0)
        return;
    slices all = read_slices(in_folder("failed.json"));
    int failed = 0, waited = 0, ran = 0;
    for (int i = 0; i < all.n; i++) {
        const slice *s = &all.of[i];
        failed += s->step == 1 && strcmp(s->kind, "nap") == 0 && s->rank == RANKS - 1;
        waited += s->step == 1 && strcmp(s->cat, "waiting") == 0;
        ran += strcmp(s->cat, "step") == 0;
        assert_true(s->rank <= last);
    }
    assert_int_equal(failed, last == RANKS - 1);
    assert_true(waited >= last); /* all but the one that failed */
    assert_int_equal(ran, 2 * (last + 1));
    json_t *head = json_object_get(all.document, "otherData");
    assert_int_equal(whole_of(head, "seen"), last + 1);
    assert_int_equal(whole_of(head, "ranks"), RANKS);
    free_slices(&all);
    clv_trace_report *report;
    clv_trace_info info = {.size = sizeof info};
    must(clv_trace_read(&report, in_folder("failed.json"), &err), &err);
    must(clv_trace_report_get_info(report, &info, &err), &err);
    assert_int_equal(info.steps, 2);
    assert_true(info.seconds > 1e-3 * LATE_MS / 2); /* a mean over ranks that are there */
    clv_trace_report_free(report);
}

static void test_failed(void **state)
{
    check_failed(false);
    check_failed(true);
}

static void test_failed_apart(void **state)
{
    check_failed(true);
}

/* ---- which runs ---- */

/* Several runs make a step; those of none are left out, and so are programs that are gone. */
static void test_steps(void **state)
{
    clv_error err = {0};
    clv_program *program = blocks("model=2", "megatron", false), *other = blocks("model=2", "megatron", false);
    clv_session *session = session_for(program, NULL);
    must(clv_trace_step(session, 1, &err), &err); /* nothing where none was begun */
    must(clv_trace_begin(session, &err), &err);
    const int64_t steps[] = {-1, 10, 10, -5, 11};
    for (int i = 0; i < 5; i++) {
        must(clv_trace_step(session, steps[i], &err), &err);
        run(session, program);
        run(session, i == 1 ? other : program);
    }
    assert_int_equal(clv_trace_step(session, INT64_C(1) << 31, &err), CLV_EINVAL);
    clv_session_unload(session, other);
    clv_program_free(other);
    end(session, in_folder("steps.json"));
    slices all = read_slices(in_folder("steps.json"));
    int of[2] = {0};
    for (int i = 0; i < all.n; i++) {
        assert_true(all.of[i].step == 10 || all.of[i].step == 11);
        of[all.of[i].step - 10] += strcmp(all.of[i].cat, "step") == 0;
    }
    assert_int_equal(of[0], 2 * 3);
    assert_int_equal(of[1], 2 * 2);
    assert_int_equal(whole_of(json_object_get(all.document, "otherData"), "steps"), 2);
    free_slices(&all);

    /* begun again: what was recorded is forgotten; without a path nothing is written; ended, it is no more */
    must(clv_trace_begin(session, &err), &err);
    run(session, program);
    must(clv_trace_begin(session, &err), &err);
    end(session, in_folder("none.json"));
    all = read_slices(in_folder("none.json"));
    assert_int_equal(all.n, 0);
    free_slices(&all);
    cli_expect(0, "rest", "trace {d}/none.json");
    must(clv_trace_begin(session, &err), &err);
    must(clv_trace_end(session, NULL, &err), &err);
    assert_int_equal(clv_trace_end(session, NULL, &err), CLV_EINVAL);
    clv_error why = {0};
    must(clv_trace_begin(session, &err), &err);
    assert_int_equal(clv_trace_end(session, &(clv_trace_options){.path = "/nothing/here"}, &why), CLV_ENOTFOUND);
    must(clv_trace_begin(session, &err), &err); /* freed with the session */
    run(session, program);
    clv_session_free(session);
    clv_program_free(program);
}

/* ---- files ---- */

/* What begins at once lies in each other all the same, whatever the order in which it was recorded. */
static void test_order(void **state)
{
    clv_error err = {0};
    clv_trace_op op = {.name = "a.mlp.b", .kind = "all_reduce", .axes = "x", .layer = -1, .moves = true, .bytes = 8};
    clv_trace_program program = {1, &op};
    assert_int_equal(sizeof(clv_trace_event), 40); /* as trace.h says */
    clv_trace_event events[] = {{100, 150, 30, 0, 0, 0, 0, CLV_TRACE_WAIT},
                                {100, 150, 0, 0, 0, 0, 0, CLV_TRACE_INSTRUCTION},
                                {100, 200, 0, 0, 0, -1, 0, CLV_TRACE_RUN},
                                {150, 170, 0, 0, 0, 0, 0, CLV_TRACE_INSTRUCTION}};
    int process = 0;
    clv_trace_content content = {.mesh = "x=1",
                                 .machine = "m",
                                 .ranks = 1,
                                 .seen = 1,
                                 .processes = 1,
                                 .process_of = &process,
                                 .steps = 1,
                                 .n_programs = 1,
                                 .programs = &program,
                                 .n = 4,
                                 .events = events};
    must(clv_trace_file_write(&content, in_folder("order.json"), &err), &err);
    slices all = read_slices(in_folder("order.json"));
    assert_int_equal(all.n, 4);
    check_rows(&all, 1);
    assert_string_equal(all.of[2].cat, "waiting");
    free_slices(&all);
    clv_trace_report *report;
    clv_trace_op_kind kind = {.size = sizeof kind};
    must(clv_trace_read(&report, in_folder("order.json"), &err), &err);
    must(clv_trace_report_op_kind(report, 0, &kind, &err), &err);
    assert_string_equal(kind.name, "all_reduce");
    assert_true(fabs(kind.waiting - 50e-9) < 1e-15 && fabs(kind.stealing - 30e-9) < 1e-15);
    clv_trace_report_free(report);
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#define HEAD                                                                                                           \
    "{\"otherData\":{\"cleave_trace\":1,\"mesh\":\"model=2\",\"ranks\":2,\"processes\":1,\"steps\":1,\"dropped_"       \
    "events\":0,"                                                                                                      \
    "\"machine\":\"m\",\"predicted\":{\"attention\":{\"seconds\":2e-6,\"communication\":1e-6},"                        \
    "\"feed-forward\":{\"seconds\":0,\"communication\":0},\"rest\":{\"seconds\":0,\"communication\":0}}},"             \
    "\"traceEvents\":["
#define SLICE(cat, dur, more)                                                                                          \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":" dur ",\"name\":\"n\",\"args\":{"         \
    "\"part\":\"attention\",\"kind\":\"" cat "\"" more "}}"

static void test_table(void **state)
{
    static char out[CLI_OUTPUT];
    write_file("made.json",
               HEAD SLICE("step", "40", "") "," SLICE("compute", "10", "") "," SLICE(
                   "collective", "30", ",\"bytes\":64") "," SLICE("waiting", "20", ",\"stealing\":12") "]}");
    assert_int_equal(cli_run(out, "trace {d}/made.json --json"), 0);
    json_t *table = json_loads(out, 0, NULL);
    const json_t *row = json_array_get(json_object_get(table, "parts"), 0);
    assert_string_equal(text_of(row, "part"), "attention");
    assert_true(fabs(json_number_value(json_object_get(row, "comm_share")) - 0.75) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(row, "predicted_comm_share")) - 0.5) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(row, "compute")) - 5e-6) < 1e-15);
    assert_true(fabs(json_number_value(json_object_get(row, "moving")) - 5e-6) < 1e-15);
    assert_true(fabs(json_number_value(json_object_get(row, "waiting")) - 10e-6) < 1e-15);
    assert_true(fabs(json_number_value(json_object_get(row, "stealing")) - 6e-6) < 1e-15);
    assert_true(json_number_value(json_object_get(row, "bytes")) == 32);
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(table, "parts"), 1), "comm_share")));
    assert_string_equal(text_of(json_array_get(json_object_get(table, "parts"), 3), "part"), "all");
    for (size_t i = 0; i < json_array_size(json_object_get(table, "ops")); i++) {
        const json_t *op = json_array_get(json_object_get(table, "ops"), i);
        const bool waits = strcmp(text_of(op, "op"), "waiting") == 0;
        assert_true(fabs(json_number_value(json_object_get(op, "stealing_ms")) - (waits ? 6e-3 : 0)) < 1e-12);
    }
    json_decref(table);
}

static void test_bad_files(void **state)
{
    write_file("bad.json", "{}");
    cli_expect(1, "is no trace of ours", "trace {d}/bad.json");
    write_file("bad.json", "[]");
    cli_expect(1, "is no trace of ours", "trace {d}/bad.json");
    write_file("bad.json", "{\"otherData\":{\"cleave_trace\":2}}");
    cli_expect(1, "version 2 of a trace", "trace {d}/bad.json");
    write_file("bad.json", "{\"otherData\":{\"cleave_trace\":1,\"ranks\":0}}");
    cli_expect(1, "ranks", "trace {d}/bad.json");
    write_file("bad.json", HEAD "3]}");
    cli_expect(1, "event 0 of a trace is no event", "trace {d}/bad.json");
    write_file("bad.json", HEAD SLICE("compute", "-1", "") "]}");
    cli_expect(1, "has no duration", "trace {d}/bad.json");
    write_file("bad.json", HEAD SLICE("compute", "\"x\"", "") "]}");
    cli_expect(1, "has no duration", "trace {d}/bad.json");
    write_file("bad.json", HEAD "{\"ph\":\"X\",\"cat\":\"compute\",\"dur\":1}]}");
    cli_expect(1, "has no \"part\"", "trace {d}/bad.json");
    write_file("bad.json", HEAD "{\"ph\":\"X\",\"cat\":\"other\"},{\"ph\":\"C\"}]}");
    cli_expect(0, "attention", "trace {d}/bad.json");
    write_file("bad.json", "{\"otherData\":");
    cli_expect(1, "not JSON", "trace {d}/bad.json");
    cli_expect(2, "nothing.json", "trace {d}/nothing.json");
    cli_expect(2, "FILE", "trace");
    clv_trace_report *report;
    clv_error err = {0};
    assert_int_equal(clv_trace_report_op_kind(NULL, 0, &(clv_trace_op_kind){0}, &err), CLV_EINVAL);
    assert_int_equal(clv_trace_read(&report, NULL, &err), CLV_EINVAL);
    clv_trace_report_free(NULL);
}

static void test_command(void **state)
{
    cli_expect(0, "median_ms",
               "bench block --layers 1 --hidden 32 --heads 2 --ffn 64 --seq 8 --batch 2 --train -tp 2 "
               "--iterations 3 --trace-out {d}/block.json");
    cli_expect(0, "feed-forward", "trace {d}/block.json");
    cli_expect(0, "\"steps\": 3", "trace {d}/block.json --json");
    cli_expect(0, "tpu-v2-8",
               "bench block --layers 1 --hidden 32 --heads 2 --ffn 64 --seq 8 --batch 2 -tp 2 "
               "--iterations 1 --hardware tpu-v2-8 --trace-out {d}/tpu.json >/dev/null; "
               "cat {d}/tpu.json");
    cli_expect(0, "", "forward -m {g}/llama --ids %s -tp 2 --trace-out {d}/f.json --out {d}/f.safetensors",
               cli_ids("llama_golden"));
    cli_expect(0, "\"steps\": 1,", "trace {d}/f.json --json");
    cli_shell("cd {d} && yes 'once upon a time' | head -c 900 >text");
    cli_expect(0, "", "train --text {d}/text --layers 1 --hidden 16 --heads 2 --seq 8 --steps 1 --out {d}/model");
    /* 40 bytes in parts of 32 and 8, and a run for each token but the last */
    cli_expect(0, "",
               "generate -m {d}/model -p 0123456789012345678901234567890123456789 -n 6 -tp 2 "
               "--trace-out {d}/g.json");
    cli_expect(0, "\"steps\": 7,", "trace {d}/g.json --json");
    cli_shell("grep -q '\"kind\":\"cache_update\"' {d}/g.json");
    cli_expect(2, "nothere", "generate -m {d}/model -p a --trace-out {d}/nothere/g.json");
    cli_expect(2, "--trace-out", "bench block --program --trace-out {d}/block.json");
    cli_expect(2, "nothere", "bench block --trace-out {d}/nothere/block.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_mailbox),   cmocka_unit_test(test_who_waits),
        cmocka_unit_test(test_failed),  cmocka_unit_test(test_steps),     cmocka_unit_test(test_table),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_bad_files), cmocka_unit_test(test_command),
    };
    const struct CMUnitTest launched[] = {cmocka_unit_test(test_multi_process), cmocka_unit_test(test_failed_apart)};
    return launched_job() ? cmocka_run_group_tests(launched, NULL, cli_remove_folder)
                          : cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
