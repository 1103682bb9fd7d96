/* trace_file_read.c - trace file reader: sums a Perfetto JSON trace into time per kind of op, collective and model
 * part.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/diagnostics/trace_file.h"
#include "io/json/json.h"

enum { VERSION = 1, FILE_LIMIT = 1 << 30, MOST_RANKS = 1 << 20 };

static const char version_key[] = "cleave_trace";

static clv_status bad(const char *path, size_t i, const char *what, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: event %zu of a trace %s", path, i, what);
}

/* ---- what is ahead ---- */

static clv_status read_predicted(clv_trace_table *t, const json_t *head, const char *path, clv_error *err)
{
    const json_t *predicted = json_object_get(head, "predicted");
    CLV_TRY(clv_json_check_object(predicted, path, err));
    for (int p = 0; p < CLV_TRACE_PLACE_COUNT; p++) {
        const json_t *of = json_object_get(predicted, clv_trace_place_name((clv_trace_place)p));
        CLV_TRY(clv_json_check_object(of, path, err));
        CLV_TRY(clv_json_get_real(&t->of[p].predicted.seconds, of, "seconds", CLV_JSON_REQUIRED, 0, 1e18, path, err));
        CLV_TRY(clv_json_get_real(&t->of[p].predicted.communication, of, "communication", CLV_JSON_REQUIRED, 0, 1e18,
                                  path, err));
    }
    return CLV_OK;
}

static clv_status read_head(clv_trace_table *t, const json_t *document, const char *path, clv_error *err)
{
    const json_t *head = json_object_get(document, "otherData"), *version = json_object_get(head, version_key);
    const char *mesh, *machine;
    if (!json_is_integer(version))
        return clv_fail(err, CLV_EFORMAT, "%s is no trace of ours: its \"otherData\" has no \"%s\"", path, version_key);
    if (json_integer_value(version) != VERSION)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: version %lld of a trace; known: %d", path,
                        (long long)json_integer_value(version), VERSION);
    CLV_TRY(clv_json_get_int(&t->ranks, head, "ranks", CLV_JSON_REQUIRED, 1, MOST_RANKS, path, err));
    t->seen = t->ranks;
    CLV_TRY(clv_json_get_int(&t->seen, head, "seen", CLV_JSON_OPTIONAL, 1, t->ranks, path, err));
    CLV_TRY(clv_json_get_int(&t->processes, head, "processes", CLV_JSON_REQUIRED, 1, t->ranks, path, err));
    CLV_TRY(clv_json_get_int(&t->steps, head, "steps", CLV_JSON_REQUIRED, 0, INT32_MAX, path, err));
    CLV_TRY(clv_json_get_int(&t->dropped_events, head, "dropped_events", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_string(&mesh, head, "mesh", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_string(&machine, head, "machine", CLV_JSON_REQUIRED, path, err));
    snprintf(t->mesh, sizeof t->mesh, "%s", mesh);
    snprintf(t->machine, sizeof t->machine, "%s", machine);
    return read_predicted(t, head, path, err);
}

/* ---- events ---- */

/* Event kinds that are counted; the others are for people who view the trace. */
typedef enum category { COMPUTE, COLLECTIVE, WAITING, TRANSFER, STEP, CATEGORIES } category;

static category category_of(const json_t *event)
{
    static const char *const names[CATEGORIES] = {"compute", "collective", "waiting", "transfer", "step"};
    const char *cat = json_string_value(json_object_get(event, "cat"));
    int c = 0;
    while (c < CATEGORIES && (!cat || strcmp(cat, names[c]) != 0))
        c++;
    return (category)c;
}

static clv_status read_place(clv_trace_place *out, const json_t *args, const char *path, size_t i, clv_error *err)
{
    const char *part = json_string_value(json_object_get(args, "part"));
    for (int p = 0; part && p < CLV_TRACE_PLACE_COUNT; p++)
        if (strcmp(part, clv_trace_place_name((clv_trace_place)p)) == 0) {
            *out = (clv_trace_place)p;
            return CLV_OK;
        }
    return bad(path, i, "has no \"part\" that is known", err);
}

/* Seconds of a wait of `seconds` that were spent on stolen tasks. */
static double stealing_of(double seconds, const json_t *args)
{
    return fmin(seconds, fmax(0, 1e-6 * json_number_value(json_object_get(args, "stealing"))));
}

static void add(clv_trace_sums *sums, category cat, double seconds, const json_t *args)
{
    const json_t *bytes = json_object_get(args, "bytes");
    if (cat == COMPUTE) {
        sums->compute += seconds;
    } else if (cat == COLLECTIVE) {
        sums->moving += seconds;
    } else if (cat == WAITING) {
        sums->waiting += seconds;
        sums->stealing += stealing_of(seconds, args);
    } else {
        sums->overlapped += seconds;
    }
    if ((cat == COLLECTIVE || cat == TRANSFER) && bytes) {
        sums->bytes += fmax(0, json_number_value(bytes));
        sums->collectives++;
    }
}

/* The sums of a kind; NULL: there are too many kinds. */
static clv_trace_op_sums *sums_of_kind(clv_trace_table *t, const char *kind)
{
    for (int i = 0; i < t->n_kinds; i++)
        if (strncmp(t->kinds[i].name, kind, sizeof t->kinds[i].name - 1) == 0)
            return &t->kinds[i];
    if (t->n_kinds == CLV_TRACE_OP_KINDS)
        return NULL;
    clv_trace_op_sums *sums = &t->kinds[t->n_kinds++];
    snprintf(sums->name, sizeof sums->name, "%s", kind);
    return sums;
}

/* An overlapped transfer takes no time from ops. */
static void add_to_kind(clv_trace_table *t, category cat, double seconds, const json_t *args)
{
    const char *kind = json_string_value(json_object_get(args, "kind"));
    clv_trace_op_sums *sums = kind && cat != TRANSFER ? sums_of_kind(t, kind) : NULL;
    if (!sums)
        return;
    if (cat == WAITING) {
        sums->waiting += seconds;
        sums->stealing += stealing_of(seconds, args);
        return;
    }
    sums->seconds += seconds;
    sums->calls += cat == COMPUTE || json_object_get(args, "bytes") ? 1 : 0;
}

static clv_status read_event(clv_trace_table *t, const json_t *event, size_t i, const char *path, clv_error *err)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const json_t *duration = json_object_get(event, "dur"), *args = json_object_get(event, "args");
    category cat = category_of(event);
    clv_trace_place place;
    if (!json_is_object(event) || !phase)
        return bad(path, i, "is no event", err);
    if (strcmp(phase, "X") != 0 || cat == CATEGORIES)
        return CLV_OK;
    double us = json_number_value(duration);
    if (!json_is_number(duration) || !(us >= 0) || us > 1e18)
        return bad(path, i, "has no duration", err);
    if (cat == STEP) {
        t->seconds += 1e-6 * us;
        return CLV_OK;
    }
    CLV_TRY(read_place(&place, args, path, i, err));
    add(&t->of[place], cat, 1e-6 * us, args);
    add_to_kind(t, cat, 1e-6 * us, args);
    return CLV_OK;
}

static int longest_first(const void *a, const void *b)
{
    const clv_trace_op_sums *x = a, *y = b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds ? 1 : -1) : strcmp(x->name, y->name);
}

/* A wait lies within the event that waits. */
static void average(clv_trace_table *t)
{
    double n = (double)t->steps * (double)t->seen;
    if (n <= 0)
        return;
    t->seconds /= n;
    for (int p = 0; p < CLV_TRACE_PLACE_COUNT; p++) {
        clv_trace_sums *s = &t->of[p];
        s->compute /= n;
        s->moving = fmax(0, s->moving - s->waiting) / n;
        s->waiting /= n;
        s->stealing /= n;
        s->overlapped /= n;
        s->bytes /= n;
        s->collectives = (int64_t)llround((double)s->collectives / n);
    }
    for (int k = 0; k < t->n_kinds; k++) {
        t->kinds[k].calls /= n;
        t->kinds[k].seconds /= n;
        t->kinds[k].waiting /= n;
        t->kinds[k].stealing /= n;
    }
    qsort(t->kinds, (size_t)t->n_kinds, sizeof *t->kinds, longest_first);
}

static clv_status read_document(clv_trace_table *t, const json_t *document, const char *path, clv_error *err)
{
    const json_t *events = json_object_get(document, "traceEvents");
    CLV_TRY(read_head(t, document, path, err));
    if (!json_is_array(events))
        return clv_fail(err, CLV_EFORMAT, "%s: a trace without a list of \"traceEvents\"", path);
    for (size_t i = 0; i < json_array_size(events); i++)
        CLV_TRY(read_event(t, json_array_get(events, i), i, path, err));
    average(t);
    return CLV_OK;
}

clv_status clv_trace_file_read(clv_trace_table *out, const char *path, clv_error *err)
{
    json_auto_t *document = NULL;
    *out = (clv_trace_table){0};
    CLV_TRY(clv_json_load(&document, path, FILE_LIMIT, err));
    return read_document(out, document, path, err);
}
