/* trace_file_write.c - trace file writer: session events as Chrome Trace Event JSON for Perfetto. */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "io/diagnostics/trace_file.h"
#include "io/files/file.h"

enum { BUFFER = 1 << 16, LINE = 8192 };

const char *clv_trace_place_name(clv_trace_place place)
{
    static const char *const names[CLV_TRACE_PLACE_COUNT] = {"attention", "feed-forward", "rest"};
    return (unsigned)place < CLV_TRACE_PLACE_COUNT ? names[place] : "rest";
}

/* ---- text on its way to the file ---- */

typedef struct writer {
    clv_trace_content *content;
    clv_atomic_file file;
    char *buffer;
    size_t used;
    uint64_t at;
    char ***names; /* [n_programs][n]: of instructions, as JSON */
    int64_t origin_ns;
    bool comma; /* an event was written */
    clv_error *err;
} writer;

static clv_status flush(writer *w)
{
    CLV_TRY(clv_atomic_file_write(&w->file, w->buffer, w->used, w->at, w->err));
    w->at += w->used;
    w->used = 0;
    return CLV_OK;
}

static clv_status emit(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes a piece of at most LINE bytes. */
static clv_status emit(writer *w, const char *format, ...)
{
    va_list list;
    if (BUFFER - w->used < LINE)
        CLV_TRY(flush(w));
    va_start(list, format);
    int n = clv_vsnprintf(w->buffer + w->used, LINE, format, list);
    va_end(list);
    if (n < 0 || n >= LINE)
        return clv_fail(w->err, CLV_ELIMIT, "a trace: a name of more than %d bytes", LINE / 4);
    w->used += (size_t)n;
    return CLV_OK;
}

/* Quotes a name, which may hold any bytes; the caller frees it; NULL: no memory. */
static char *quote(const char *text)
{
    json_t *s = json_string(text);
    char *out = json_dumps(s, JSON_ENCODE_ANY);
    json_decref(s);
    return out ? out : strdup("\"(not UTF-8)\"");
}

static void free_names(writer *w)
{
    for (int p = 0; w->names && p < w->content->n_programs; p++) {
        for (int i = 0; w->names[p] && i < w->content->programs[p].n; i++)
            free(w->names[p][i]);
        free(w->names[p]);
    }
    free(w->names);
}

static clv_status quote_names(writer *w)
{
    const clv_trace_content *c = w->content;
    w->names = calloc((size_t)c->n_programs + 1, sizeof *w->names);
    bool whole = w->names != NULL;
    for (int p = 0; whole && p < c->n_programs; p++) {
        w->names[p] = calloc((size_t)c->programs[p].n + 1, sizeof *w->names[p]);
        whole = w->names[p] != NULL;
        for (int i = 0; whole && i < c->programs[p].n; i++) {
            w->names[p][i] = quote(c->programs[p].ops[i].name);
            whole = w->names[p][i] != NULL;
        }
    }
    return whole ? CLV_OK : clv_fail_memory(w->err, "the names of a trace", sizeof *w->names);
}

/* ---- what is ahead of events ---- */

static clv_status emit_predicted(writer *w)
{
    const clv_trace_content *c = w->content;
    CLV_TRY(emit(w, "\"predicted\":{"));
    for (int p = 0; p < CLV_TRACE_PLACE_COUNT; p++)
        CLV_TRY(emit(w, "%s\"%s\":{\"seconds\":%.9g,\"communication\":%.9g}", p > 0 ? "," : "",
                     clv_trace_place_name((clv_trace_place)p), c->predicted[p].seconds, c->predicted[p].communication));
    return emit(w, "}");
}

static clv_status emit_header(writer *w)
{
    const clv_trace_content *c = w->content;
    CLV_FREED char *mesh = quote(c->mesh), *machine = quote(c->machine);
    if (!mesh || !machine)
        return clv_fail_memory(w->err, "a trace", strlen(c->mesh));
    CLV_TRY(emit(w,
                 "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"cleave_trace\":1,\"mesh\":%s,\"ranks\":%d,"
                 "\"seen\":%d,\"processes\":%d,\"steps\":%" PRId64 ",\"dropped_events\":%" PRId64
                 ",\"clocks\":\"%s\",\"machine\":%s,",
                 mesh, c->ranks, c->seen, c->processes, c->steps, c->dropped_events, c->aligned ? "aligned" : "one",
                 machine));
    CLV_TRY(emit_predicted(w));
    return emit(w, "},\n\"traceEvents\":[");
}

static clv_status begin_event(writer *w)
{
    bool comma = w->comma;
    w->comma = true;
    return emit(w, "%s\n", comma ? "," : "");
}

/* A row: a rank, or a lane of overlapped transfers. */
static clv_status emit_row(writer *w, int rank, int lane, int lanes)
{
    const clv_trace_content *c = w->content;
    int process = c->process_of[rank], row = lane * c->ranks + rank;
    char name[64];
    snprintf(name, sizeof name, lane > 0 ? "rank %d, transfers" : "rank %d", rank);
    CLV_TRY(begin_event(w));
    CLV_TRY(emit(w, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                 process, row, name));
    return emit(w, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                process, row, rank * lanes + lane);
}

/* ---- events ---- */

static const clv_trace_op *op_of(const writer *w, const clv_trace_event *e)
{
    return &w->content->programs[e->program].ops[e->instruction];
}

/* Microseconds to the nanosecond, from the first event on. */
static clv_status emit_slice(writer *w, const clv_trace_event *e, int lane, const char *cat)
{
    const clv_trace_content *c = w->content;
    int64_t at = e->begun_ns - w->origin_ns, took = e->ended_ns - e->begun_ns;
    CLV_TRY(begin_event(w));
    return emit(w,
                "{\"ph\":\"X\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64 ".%03d,",
                cat, c->process_of[e->rank], lane * c->ranks + e->rank, at / 1000, (int)(at % 1000), took / 1000,
                (int)(took % 1000));
}

/* A rate per second in units of 10^9. */
static double rate(double amount, int64_t ns)
{
    return ns > 0 ? amount / (double)ns : 0;
}

/* The bytes that it moved, or its flops. waited_ns: part of its time. */
static clv_status emit_amounts(writer *w, const clv_trace_op *op, const clv_trace_event *e, int64_t waited_ns)
{
    int64_t ns = e->ended_ns - e->begun_ns - waited_ns;
    if (op->flops > 0)
        CLV_TRY(emit(w, ",\"flops\":%.0f,\"GF/s\":%.4g", op->flops, rate(op->flops, ns)));
    if (op->bytes > 0)
        CLV_TRY(emit(w, ",\"bytes\":%.17g,\"GB/s\":%.4g", op->bytes, rate(op->bytes, ns)));
    return op->axes[0] ? emit(w, ",\"axes\":\"%s\"", op->axes) : CLV_OK;
}

static clv_status emit_op(writer *w, const clv_trace_event *e, int64_t waited_ns)
{
    static const char *const behind[] = {
        [CLV_TRACE_WAIT] = " (waits)", [CLV_TRACE_COMPLETION] = " (ends)", [CLV_TRACE_TRANSFER] = ""};
    const clv_trace_op *op = op_of(w, e);
    const char *name = w->names[e->program][e->instruction];
    bool starts = op->flies && e->kind == CLV_TRACE_INSTRUCTION;
    const char *what = starts ? " (begins)" : e->kind == CLV_TRACE_INSTRUCTION ? "" : behind[e->kind];
    int length = (int)strlen(name) - 2;
    if (op->moves)
        CLV_TRY(emit(w, "\"name\":\"%s: %.*s%s\"", op->kind, length, name + 1, what));
    else
        CLV_TRY(emit(w, "\"name\":%s", name));
    CLV_TRY(emit(w, ",\"args\":{\"op\":%s,\"kind\":\"%s\",\"part\":\"%s\",\"pass\":\"%s\",\"step\":%d", name, op->kind,
                 clv_trace_place_name(op->place), op->backward ? "backward" : "forward", e->step));
    if (op->layer >= 0)
        CLV_TRY(emit(w, ",\"layer\":%" PRId64, op->layer));
    if (e->stealing_ns > 0)
        CLV_TRY(emit(w, ",\"stealing\":%.3f", 1e-3 * (double)e->stealing_ns));
    if (e->kind == CLV_TRACE_TRANSFER || (e->kind == CLV_TRACE_INSTRUCTION && !starts))
        CLV_TRY(emit_amounts(w, op, e, waited_ns));
    return emit(w, "}}");
}

/* Sums the waits within event k, which follow it. */
static int64_t waited_in(const clv_trace_content *c, int64_t k)
{
    int64_t ns = 0;
    for (int64_t i = k + 1; i < c->n && c->events[i].kind == CLV_TRACE_WAIT && c->events[i].rank == c->events[k].rank;
         i++)
        ns += c->events[i].ended_ns - c->events[i].begun_ns;
    return ns;
}

static clv_status emit_event(writer *w, int64_t k, int lane)
{
    const clv_trace_event *e = &w->content->events[k];
    if (e->kind == CLV_TRACE_RUN) {
        CLV_TRY(emit_slice(w, e, 0, "step"));
        return emit(w, "\"name\":\"step %d\",\"args\":{\"step\":%d}}", e->step, e->step);
    }
    const char *cat = e->kind == CLV_TRACE_WAIT       ? "waiting"
                      : e->kind == CLV_TRACE_TRANSFER ? "transfer"
                      : op_of(w, e)->moves            ? "collective"
                                                      : "compute";
    CLV_TRY(emit_slice(w, e, lane, cat));
    return emit_op(w, e, e->kind == CLV_TRACE_INSTRUCTION ? waited_in(w->content, k) : 0);
}

/* Sorts by rank and time; an event follows the event that contains it. */
static int compare(const void *a, const void *b)
{
    const clv_trace_event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->begun_ns != y->begun_ns)
        return x->begun_ns < y->begun_ns ? -1 : 1;
    if (x->kind != y->kind && (x->kind == CLV_TRACE_WAIT || y->kind == CLV_TRACE_WAIT))
        return x->kind == CLV_TRACE_WAIT ? 1 : -1;
    if (x->ended_ns != y->ended_ns)
        return x->ended_ns > y->ended_ns ? -1 : 1;
    return x->kind < y->kind ? -1 : x->kind > y->kind;
}

/* Assigns each transfer the first lane that is free when it begins. */
enum { LANES = 32 };

static int lane_of(int64_t *free_ns, const clv_trace_event *e)
{
    int lane = 0;
    while (lane + 1 < LANES && free_ns[lane] > e->begun_ns)
        lane++;
    free_ns[lane] = e->ended_ns;
    return lane + 1;
}

static clv_status emit_rank(writer *w, int64_t first, int64_t last)
{
    int64_t free_ns[LANES] = {0}; /* clv_now_ns is never negative */
    int lanes = 0;
    for (int64_t k = first; k < last; k++) {
        const clv_trace_event *e = &w->content->events[k];
        int lane = e->kind == CLV_TRACE_TRANSFER ? lane_of(free_ns, e) : 0;
        for (; lane > lanes; lanes++)
            CLV_TRY(emit_row(w, e->rank, lanes + 1, LANES + 1));
        CLV_TRY(emit_event(w, k, lane));
    }
    return CLV_OK;
}

static clv_status emit_all(writer *w)
{
    clv_trace_content *c = w->content;
    if (c->n > 1)
        qsort(c->events, (size_t)c->n, sizeof *c->events, compare);
    w->origin_ns = INT64_MAX;
    for (int64_t i = 0; i < c->n; i++)
        w->origin_ns = c->events[i].begun_ns < w->origin_ns ? c->events[i].begun_ns : w->origin_ns;
    CLV_TRY(emit_header(w));
    for (int p = 0; p < c->processes; p++) {
        CLV_TRY(begin_event(w));
        CLV_TRY(
            emit(w, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"process %d\"}}", p, p));
    }
    for (int r = 0; r < c->ranks; r++)
        CLV_TRY(emit_row(w, r, 0, LANES + 1));
    for (int64_t first = 0, last; first < c->n; first = last) {
        for (last = first; last < c->n && c->events[last].rank == c->events[first].rank;)
            last++;
        CLV_TRY(emit_rank(w, first, last));
    }
    CLV_TRY(emit(w, "\n]}\n"));
    return flush(w);
}

clv_status clv_trace_file_write(clv_trace_content *content, const char *path, clv_error *err)
{
    writer w = {.content = content, .err = err};
    w.buffer = malloc(BUFFER);
    clv_status status = w.buffer ? quote_names(&w) : clv_fail_memory(err, "a trace", BUFFER);
    if (status == CLV_OK) {
        status = clv_atomic_file_open(&w.file, path, err);
        if (status == CLV_OK) {
            status = emit_all(&w);
            if (status == CLV_OK)
                status = clv_atomic_file_commit(&w.file, err);
            else
                clv_atomic_file_abort(&w.file);
        }
    }
    free_names(&w);
    free(w.buffer);
    return status;
}
