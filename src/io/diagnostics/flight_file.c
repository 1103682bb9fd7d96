/* flight_file.c - flight recorder dump file: reads and writes the last instructions and collectives of one process's
 * ranks as JSON.
 */
#include "io/diagnostics/flight_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/json/json.h"

enum { VERSION = 1, FILE_LIMIT = 256 << 20, MEMBERS = 64, MOST_RECORDS = 1 << 16 };

static const char version_key[] = "cleave_flight";
static const char *const phases[CLV_FLIGHT_PHASE_COUNT] = {"", "begun", "waits", "moves", "waits for the end", "ended"};

void clv_flight_dump_free(clv_flight_dump *d)
{
    for (int i = 0; d->of && i < d->n_local_ranks; i++) {
        free(d->of[i].steps);
        free(d->of[i].ended);
        free(d->of[i].records);
    }
    free(d->of);
    free(d->group_of);
    free(d->members);
    json_decref(d->document);
    *d = (clv_flight_dump){0};
}

static clv_status alloc_rank(clv_flight_rank_dump *r, int n_sets, int n_records, clv_error *err)
{
    r->steps = calloc((size_t)n_sets + 1, sizeof *r->steps);
    r->ended = calloc((size_t)n_sets + 1, sizeof *r->ended);
    r->records = calloc((size_t)n_records + 1, sizeof *r->records);
    if (r->steps && r->ended && r->records)
        return CLV_OK;
    return clv_fail_memory(err, "a flight recorder's records", (size_t)n_records * sizeof *r->records);
}

static clv_status alloc_sets(clv_flight_dump *d, int n_sets, int n_local_ranks, clv_error *err)
{
    size_t places = (size_t)n_sets * (size_t)d->ranks + 1;
    d->group_of = calloc(places, sizeof *d->group_of);
    d->members = calloc(places, sizeof *d->members);
    d->of = calloc((size_t)n_local_ranks + 1, sizeof *d->of);
    if (!d->group_of || !d->members || !d->of)
        return clv_fail_memory(err, "a flight recorder's dump", places * sizeof *d->members);
    d->n_sets = n_sets;
    d->n_local_ranks = n_local_ranks;
    return CLV_OK;
}

clv_status clv_flight_dump_alloc(clv_flight_dump *d, int n_sets, int n_local_ranks, int n_records, clv_error *err)
{
    CLV_TRY(alloc_sets(d, n_sets, n_local_ranks, err));
    for (int i = 0; i < n_local_ranks; i++)
        CLV_TRY(alloc_rank(&d->of[i], n_sets, n_records, err));
    return CLV_OK;
}

/* ---- writing: objects that jansson could not make are NULL, which the outermost then is, too ---- */

static json_t *hex_of(uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIx64, value);
    return json_string(text);
}

/* Names come from programs and may hold any bytes. */
static json_t *text_of(const char *text)
{
    json_t *s = json_string(text);
    return s ? s : json_string("(not UTF-8)");
}

static json_t *step_of(const clv_flight_record *r)
{
    json_t *lacks = json_array();
    for (int m = 0; m < MEMBERS; m++)
        if (r->lacks >> m & 1)
            json_array_append_new(lacks, json_integer(m));
    return json_pack("{s:I,s:I,s:o,s:s,s:I,s:I,s:o,s:I}", "set", (json_int_t)r->group_set, "seq", (json_int_t)r->seq,
                     "tag", hex_of(r->tag), "phase", phases[r->phase], "expected", (json_int_t)r->expected, "seen",
                     (json_int_t)r->seen, "lacks", lacks, "waiting", (json_int_t)r->waiting_ns);
}

static json_t *record_of(const clv_flight_record *r)
{
    json_t *o = json_pack("{s:I,s:I,s:o,s:o,s:I,s:I}", "number", (json_int_t)r->number, "instruction",
                          (json_int_t)r->instruction, "name", text_of(r->name), "kind", text_of(r->kind), "begun",
                          (json_int_t)r->begun_ns, "ended", (json_int_t)r->ended_ns);
    if (r->phase != CLV_FLIGHT_PHASE_NONE)
        json_object_set_new(o, "step", step_of(r));
    return o;
}

static json_t *numbers_of(const uint64_t *numbers, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer((json_int_t)numbers[i]));
    return a;
}

static json_t *rank_of(const clv_flight_rank_dump *r, int n_sets)
{
    json_t *records = json_array();
    for (int i = 0; i < r->n; i++)
        json_array_append_new(records, record_of(&r->records[i]));
    return json_pack("{s:I,s:I,s:b,s:b,s:o,s:o,s:o}", "rank", (json_int_t)r->rank, "begun", (json_int_t)r->begun,
                     "busy", r->busy, "works", r->works, "steps", numbers_of(r->steps, n_sets), "ended",
                     numbers_of(r->ended, n_sets), "records", records);
}

/* [[ranks of a group], ...] */
static json_t *set_of(const clv_flight_dump *d, int group_set)
{
    const int32_t *members = d->members + (int64_t)group_set * d->ranks,
                  *group_of = d->group_of + (int64_t)group_set * d->ranks;
    json_t *groups = json_array(), *group = NULL;
    for (int64_t i = 0; i < d->ranks; i++) {
        if (i == 0 || group_of[members[i]] != group_of[members[i - 1]]) {
            group = json_array();
            json_array_append_new(groups, group);
        }
        json_array_append_new(group, json_integer(members[i]));
    }
    return groups;
}

static json_t *failure_of(const clv_error *e)
{
    if (e->code == CLV_OK)
        return json_null();
    return json_pack("{s:s,s:i,s:o,s:o}", "status", clv_status_name(e->code), "rank", e->rank, "op", text_of(e->op),
                     "message", text_of(e->message));
}

static json_t *document_of(const clv_flight_dump *d)
{
    json_t *sets = json_array(), *ranks = json_array();
    for (int s = 0; s < d->n_sets; s++)
        json_array_append_new(sets, set_of(d, s));
    for (int i = 0; i < d->n_local_ranks; i++)
        json_array_append_new(ranks, rank_of(&d->of[i], d->n_sets));
    return json_pack("{s:i,s:o,s:I,s:I,s:I,s:I,s:o,s:I,s:o,s:o,s:o}", version_key, VERSION, "run", hex_of(d->run),
                     "process", (json_int_t)d->process, "processes", (json_int_t)d->processes, "ranks",
                     (json_int_t)d->ranks, "pid", (json_int_t)d->pid, "host", text_of(d->host), "written",
                     (json_int_t)d->written_ns, "failure", failure_of(&d->failure), "sets", sets, "of", ranks);
}

clv_status clv_flight_dump_write(const clv_flight_dump *d, const char *path, clv_error *err)
{
    json_t *document = document_of(d);
    CLV_FREED char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    if (!text)
        return clv_fail_memory(err, "a flight recorder's dump", sizeof *d->of->records * 256);
    return clv_file_write_without_fsync(path, text, strlen(text), err);
}

/* ---- reading ---- */

static clv_status bad(const char *path, const char *what, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: %s of a flight recorder's dump", path, what);
}

static clv_status read_hex(uint64_t *out, const json_t *object, const char *key, const char *path, clv_error *err)
{
    const char *text;
    char *end;
    CLV_TRY(clv_json_get_string(&text, object, key, CLV_JSON_REQUIRED, path, err));
    *out = strtoull(text, &end, 16);
    return *end == '\0' && end > text && end - text <= 16 ? CLV_OK
                                                          : clv_fail(err, CLV_EFORMAT,
                                                                     "%s: '%s' is no number in "
                                                                     "hexadecimal digits",
                                                                     path, key);
}

static clv_status read_count(uint64_t *out, const json_t *object, const char *key, const char *path, clv_error *err)
{
    int64_t value = 0;
    CLV_TRY(clv_json_get_int(&value, object, key, CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    *out = (uint64_t)value;
    return CLV_OK;
}

static clv_status read_counts(uint64_t *out, int n, const json_t *object, const char *key, const char *path,
                              clv_error *err)
{
    const json_t *list = json_object_get(object, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return bad(path, "one number for each group set is needed in every rank", err);
    for (int i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return bad(path, "a negative number of steps", err);
        out[i] = (uint64_t)json_integer_value(value);
    }
    return CLV_OK;
}

static clv_status read_phase(clv_flight_phase *out, const json_t *step, const char *path, clv_error *err)
{
    const char *text;
    CLV_TRY(clv_json_get_string(&text, step, "phase", CLV_JSON_REQUIRED, path, err));
    for (int p = CLV_FLIGHT_PHASE_STARTED; p < CLV_FLIGHT_PHASE_COUNT; p++)
        if (strcmp(text, phases[p]) == 0) {
            *out = (clv_flight_phase)p;
            return CLV_OK;
        }
    return bad(path, "an unknown phase", err);
}

static clv_status read_step(clv_flight_record *r, const clv_flight_dump *d, const json_t *step, const char *path,
                            clv_error *err)
{
    int64_t members[MEMBERS];
    int n = 0;
    CLV_TRY(clv_json_check_object(step, path, err));
    CLV_TRY(read_phase(&r->phase, step, path, err));
    CLV_TRY(clv_json_get_int(&r->group_set, step, "set", CLV_JSON_REQUIRED, 0, d->n_sets - 1, path, err));
    CLV_TRY(read_count(&r->seq, step, "seq", path, err));
    CLV_TRY(read_hex(&r->tag, step, "tag", path, err));
    CLV_TRY(clv_json_get_int(&r->expected, step, "expected", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_int(&r->seen, step, "seen", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_int(&r->waiting_ns, step, "waiting", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_ints(members, &n, MEMBERS, step, "lacks", CLV_JSON_REQUIRED, 0, MEMBERS - 1, path, err));
    for (int i = 0; i < n; i++)
        r->lacks |= UINT64_C(1) << members[i];
    return CLV_OK;
}

static clv_status read_record(clv_flight_record *r, const clv_flight_dump *d, const json_t *o, const char *path,
                              clv_error *err)
{
    CLV_TRY(clv_json_check_object(o, path, err));
    CLV_TRY(read_count(&r->number, o, "number", path, err));
    CLV_TRY(clv_json_get_int(&r->instruction, o, "instruction", CLV_JSON_REQUIRED, -1, INT32_MAX, path, err));
    CLV_TRY(clv_json_get_string(&r->name, o, "name", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_string(&r->kind, o, "kind", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_int(&r->begun_ns, o, "begun", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_int(&r->ended_ns, o, "ended", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    const json_t *step = json_object_get(o, "step");
    return step ? read_step(r, d, step, path, err) : CLV_OK;
}

static clv_status read_rank(clv_flight_rank_dump *r, const clv_flight_dump *d, const json_t *o, const char *path,
                            clv_error *err)
{
    const json_t *records = json_object_get(o, "records");
    CLV_TRY(clv_json_check_object(o, path, err));
    CLV_TRY(clv_json_get_int(&r->rank, o, "rank", CLV_JSON_REQUIRED, 0, d->ranks - 1, path, err));
    CLV_TRY(read_count(&r->begun, o, "begun", path, err));
    CLV_TRY(clv_json_get_bool(&r->busy, o, "busy", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_bool(&r->works, o, "works", CLV_JSON_OPTIONAL, path, err));
    if (!json_is_array(records) || json_array_size(records) > MOST_RECORDS)
        return bad(path, "a rank without a list of records", err);
    CLV_TRY(alloc_rank(r, d->n_sets, (int)json_array_size(records), err));
    CLV_TRY(read_counts(r->steps, d->n_sets, o, "steps", path, err));
    CLV_TRY(read_counts(r->ended, d->n_sets, o, "ended", path, err));
    r->n = (int)json_array_size(records);
    for (int i = 0; i < r->n; i++)
        CLV_TRY(read_record(&r->records[i], d, json_array_get(records, (size_t)i), path, err));
    return CLV_OK;
}

/* Checks that the groups hold every rank once. */
static clv_status read_set(clv_flight_dump *d, int group_set, const json_t *groups, const char *path, clv_error *err)
{
    int32_t *members = d->members + (int64_t)group_set * d->ranks,
            *group_of = d->group_of + (int64_t)group_set * d->ranks;
    int64_t n = 0;
    for (int64_t r = 0; r < d->ranks; r++)
        group_of[r] = -1;
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g), *value;
        size_t i;
        json_array_foreach(group, i, value)
        {
            int64_t rank = json_is_integer(value) ? json_integer_value(value) : -1;
            if (rank < 0 || rank >= d->ranks || group_of[rank] >= 0)
                return bad(path, "a group set that has not every rank once", err);
            members[n++] = (int32_t)rank;
            group_of[rank] = (int32_t)g;
        }
    }
    return n == d->ranks ? CLV_OK : bad(path, "a group set that has not every rank once", err);
}

static clv_status read_failure(clv_error *out, const json_t *o, const char *path, clv_error *err)
{
    const char *name, *op, *message;
    int64_t rank = -1;
    if (!o || json_is_null(o))
        return CLV_OK;
    CLV_TRY(clv_json_check_object(o, path, err));
    CLV_TRY(clv_json_get_string(&name, o, "status", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_int(&rank, o, "rank", CLV_JSON_REQUIRED, -1, CLV_FLIGHT_MAX_RANKS, path, err));
    CLV_TRY(clv_json_get_string(&op, o, "op", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_json_get_string(&message, o, "message", CLV_JSON_REQUIRED, path, err));
    *out = (clv_error){.code = CLV_EPEER, .rank = (int)rank};
    for (int code = CLV_EINVAL; strcmp(clv_status_name((clv_status)code), "unknown") != 0; code++)
        if (strcmp(clv_status_name((clv_status)code), name) == 0)
            out->code = (clv_status)code;
    snprintf(out->op, sizeof out->op, "%s", op);
    snprintf(out->message, sizeof out->message, "%s", message);
    return CLV_OK;
}

static clv_status read_place(clv_flight_dump *d, const char *path, clv_error *err)
{
    const json_t *o = d->document;
    const char *host;
    CLV_TRY(read_hex(&d->run, o, "run", path, err));
    CLV_TRY(clv_json_get_int(&d->processes, o, "processes", CLV_JSON_REQUIRED, 1, CLV_FLIGHT_MAX_RANKS, path, err));
    CLV_TRY(clv_json_get_int(&d->process, o, "process", CLV_JSON_REQUIRED, 0, d->processes - 1, path, err));
    CLV_TRY(clv_json_get_int(&d->ranks, o, "ranks", CLV_JSON_REQUIRED, 1, CLV_FLIGHT_MAX_RANKS, path, err));
    CLV_TRY(clv_json_get_int(&d->pid, o, "pid", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_int(&d->written_ns, o, "written", CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
    CLV_TRY(clv_json_get_string(&host, o, "host", CLV_JSON_REQUIRED, path, err));
    snprintf(d->host, sizeof d->host, "%s", host);
    return read_failure(&d->failure, json_object_get(o, "failure"), path, err);
}

static clv_status check_version(const json_t *document, const char *path, clv_error *err)
{
    const json_t *version = json_object_get(document, version_key);
    if (!json_is_integer(version))
        return clv_fail(err, CLV_EFORMAT, "%s is no dump of a flight recorder: it has no \"%s\"", path, version_key);
    if (json_integer_value(version) != VERSION)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: version %lld of a flight recorder's dump; known: %d", path,
                        (long long)json_integer_value(version), VERSION);
    return CLV_OK;
}

clv_status clv_flight_dump_read(clv_flight_dump *out, const char *path, clv_error *err)
{
    clv_error why = {0};
    *out = (clv_flight_dump){0};
    clv_status loaded = clv_json_load(&out->document, path, FILE_LIMIT, &why);
    if (loaded == CLV_EFORMAT)
        return clv_fail(err, loaded, "%.300s; it is no dump of a flight recorder, or not a whole one", why.message);
    if (loaded != CLV_OK) {
        if (err && err->code == CLV_OK)
            *err = why;
        return loaded;
    }
    CLV_TRY(check_version(out->document, path, err));
    CLV_TRY(read_place(out, path, err));
    const json_t *sets = json_object_get(out->document, "sets"), *of = json_object_get(out->document, "of");
    if (!json_is_array(sets) || json_array_size(sets) > CLV_FLIGHT_MAX_SETS || !json_is_array(of) ||
        (int64_t)json_array_size(of) > out->ranks)
        return bad(path, "the group sets, or the ranks, are missing", err);
    int n_sets = (int)json_array_size(sets), n_local_ranks = (int)json_array_size(of);
    if ((int64_t)n_sets * out->ranks > FILE_LIMIT / 2) /* each takes at least two bytes of the file */
        return bad(path, "more group sets than fit", err);
    CLV_TRY(alloc_sets(out, n_sets, n_local_ranks, err));
    for (int s = 0; s < n_sets; s++)
        CLV_TRY(read_set(out, s, json_array_get(sets, (size_t)s), path, err));
    for (int i = 0; i < n_local_ranks; i++)
        CLV_TRY(read_rank(&out->of[i], out, json_array_get(of, (size_t)i), path, err));
    return CLV_OK;
}
