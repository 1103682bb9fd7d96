/* plan_screen.c - prints the first screen of `cleave plan`: what is planned, does it fit, where the time goes, what to
 * change. */
#include "cli/options/auto_rules.h"
#include "cli/reports/plan_screen.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cleave/text.h"
#include "cli/output/terminal.h"
#include "cli/output/word_wrap.h"
#include "cli/reports/plan_memory_table.h"
#include "cli/reports/plan_summary.h"

enum {
    LINES = 23, /* of a terminal of 24: the last is the shell's */
    TEXT = 4096,
    TITLE = 13,        /* columns of "memory", "time a step", "change first" */
    LABEL = 24,        /* of a row's label */
    AMOUNTS = 17,      /* of "10.5 GiB   12.5 %" */
    LEAST_BAR = 8,     /* columns of which a bar says something */
    MOST_BAR = 400,    /* columns */
    MOST_ROWS = 16,    /* of a section */
    MOST_PURPOSES = 4, /* rows of communication */
    LEAST_PURPOSES = 2 /* where memory needs their lines */
};

/* ---- lines ---- */

typedef struct screen {
    int width, lines;
    char text[TEXT]; /* of the line that is written */
    size_t used;
} screen;

__attribute__((format(printf, 2, 3))) static void put(screen *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->text + s->used, sizeof s->text - s->used, format, args);
    va_end(args);
    s->used += n > 0 ? (size_t)n : 0;
    s->used = s->used < sizeof s->text ? s->used : sizeof s->text - 1;
}

/* A name from outside. */
static void put_name(screen *s, const char *name)
{
    s->used += clv_printable(s->text + s->used, sizeof s->text - s->used, name, strlen(name));
    s->used = s->used < sizeof s->text ? s->used : sizeof s->text - 1;
}

static void put_bytes(screen *s, double bytes)
{
    char text[CLV_QUANTITY_TEXT];
    clv_print_bytes(text, sizeof text, bytes);
    put(s, "%s", text);
}

static void put_seconds(screen *s, double seconds)
{
    char text[CLV_QUANTITY_TEXT];
    clv_print_seconds(text, sizeof text, seconds);
    put(s, "%s", text);
}

/* Prints the text; where it is too long it goes on below, indented. */
static void end_line(screen *s, int indent)
{
    int columns = clv_text_width(s->text);
    if (columns <= s->width) {
        printf("%s\n", s->text);
    } else {
        size_t word = strcspn(s->text, " "), first = word + strspn(s->text + word, " ");
        int at = printf("%.*s", (int)first - 1, s->text); /* a blank follows */
        clv_print_wrapped(stdout, s->text + first, s->used - first, at, indent, s->width);
    }
    s->lines += 1 + (columns - 1) / s->width;
    s->used = 0;
    s->text[0] = '\0';
}

/* ---- what is planned ---- */

static void put_size(screen *s, const char *name, int64_t size)
{
    if (size > 0)
        put(s, ", %s %lld", name, (long long)size);
}

static void put_model(screen *s, const clv_plan_report *r)
{
    const clv_model_info *info = &r->model;
    char text[CLV_QUANTITY_TEXT];
    if (r->option->plan.block) {
        put(s, "block %s", clv_plan_block_name(r->option->plan.block));
    } else {
        clv_print_count(text, sizeof text, (double)info->parameters);
        put(s, "%s %s", info->family, text);
    }
    put_size(s, "layers", info->layers);
    put_size(s, "hidden", info->hidden);
    put_size(s, "heads", info->heads);
    if (info->kv_heads != info->heads)
        put(s, " (%lld KV)", (long long)info->kv_heads);
    if (info->experts > 0)
        put(s, ", experts %lld of %lld (%lld a token)", (long long)info->experts, (long long)info->expert_ffn,
            (long long)info->top_k);
    else
        put_size(s, "ffn", info->ffn);
    put_size(s, "vocab", info->vocab);
    end_line(s, 2);
}

static void put_step(screen *s, const clv_plan_report *r)
{
    const clv_plan_options *o = &r->option->plan;
    clv_plan_setting set[CLV_PLAN_SETTINGS];
    int n = clv_plan_settings_list(set, r->option);
    put(s, "%s, batch %lld, seq %lld, %s", clv_plan_step_name(o), (long long)o->batch, (long long)o->seq,
        clv_dtype_name(o->dtype));
    for (int i = 0; i < n; i++)
        if (set[i].word)
            put(s, ", %s %s", set[i].key, set[i].word);
        else if (set[i].number)
            put_size(s, set[i].key, set[i].number);
        else
            put(s, ", %s", set[i].key);
    end_line(s, 2);
}

/* Whole percent, rounded up; 0.07 is 7. */
static double percent_above(double part)
{
    return ceil(100 * part - 1e-9);
}

/* Published runs that say something of this plan: training steps in its dtype. Of few runs nine in ten are all. */
static void put_published(screen *s, const clv_plan_report *r)
{
    enum { FEW = 5 };
    const clv_machine_info *m = &r->machine;
    const long long runs = (long long)m->published_runs;
    if (!clv_plan_report_is_published(r))
        return;
    if (runs < FEW)
        put(s, ": only %lld published run%s, by %s, within %.0f %%", runs, runs == 1 ? "" : "s", m->published_rules,
            percent_above(m->published_error));
    else
        put(s, ": nine in ten of %lld published runs, by %s, within %.0f %%", runs, m->published_rules,
            percent_above(m->published_error));
}

static void put_mesh(screen *s, const clv_plan_report *r)
{
    char mesh[CLV_MESH_TEXT], text[CLV_FOUND_RULES_LINE];
    const char *rules = r->option->mesh.axis_rules.name;
    clv_mesh_print(mesh, sizeof mesh, &r->option->mesh.mesh);
    put(s, "mesh %s (ranks %lld), rules ", mesh, (long long)clv_mesh_rank_count(&r->option->mesh.mesh));
    put_name(s, rules[0] ? rules : "none");
    put(s, ", hardware ");
    put_name(s, r->machine.name);
    end_line(s, 2);
    clv_auto_rules_print(text, sizeof text, &r->option->mesh.found);
    if (text[0]) {
        put(s, "%s", text);
        end_line(s, 2);
    }
    if (!r->machine.software[0])
        return;
    put(s, "software ");
    put_name(s, r->machine.software);
    put_published(s, r);
    end_line(s, 2);
}

enum { MOST_STAGES = 16 }; /* whose layers a line has room for */

/* Whether stages are less even than can be. */
static bool is_uneven(const clv_plan_estimate *e)
{
    int least = INT_MAX, most = 0;
    for (int i = 0; i < e->runs; i++) {
        least = e->run_layers[i] < least ? e->run_layers[i] : least;
        most = e->run_layers[i] > most ? e->run_layers[i] : most;
    }
    return most - least > 1 && e->runs <= MOST_STAGES; /* of no runs it is less than 0 */
}

/* Stages that run, or what is not compiled; --software has its own line. */
static void put_estimate(screen *s, const clv_plan_report *r)
{
    const clv_plan_estimate *e = r->estimate ? r->estimate : &r->pipeline;
    char layers[5 * MOST_STAGES] = "";
    const bool uneven = is_uneven(e) && clv_plan_print_stages(layers, sizeof layers, e, ", ");
    put(s, "%s", e->compiled ? "pipeline" : clv_plan_is_estimated(r, e) ? "estimated" : "planned, not run");
    if (e->stages > 1 && !e->schedule) /* they take turns */
        put(s, ": %lld stages", (long long)e->stages);
    else if (e->stages > 1)
        put(s, ": %lld stages%s%s%s, %s, %lld microbatch%s", (long long)e->stages, uneven ? " of " : "",
            uneven ? layers : "", uneven ? " layers" : "", clv_plan_schedule_name(e->schedule),
            (long long)e->microbatches, e->microbatches == 1 ? "" : "es");
    if (!e->compiled)
        put_size(s, "experts", e->experts);
    put_size(s, "virtual stages", e->virtual_stages > 1 ? e->virtual_stages : 0);
    if (e->exchange)
        put(s, "%s context by %s", e->stages > 1 ? "," : ":", clv_context_exchange_name(e->exchange));
    if (e->extrapolated)
        put(s, ", by programs of fewer");
    end_line(s, 2);
}

/* ---- rows with bars ---- */

typedef struct row {
    const char *label;
    double amount; /* bytes or seconds */
    double bytes;  /* of collectives */
    int64_t count; /* of them; 0: no collectives */
} row;

typedef struct section {
    int n;
    row row[MOST_ROWS];
} section;

static void add_row(section *of, row added)
{
    if (added.amount > 0 && of->n < MOST_ROWS)
        of->row[of->n++] = added;
}

/* Adds the row to the one with this label, which is last; it becomes the last if there is none. */
static void add_to_rest(section *of, row added, const char *rest)
{
    row *last = of->n > 0 ? &of->row[of->n - 1] : NULL;
    if (!last || strcmp(last->label, rest) != 0) {
        added.label = rest;
        of->row[of->n++] = added;
        return;
    }
    last->amount += added.amount;
    last->bytes += added.bytes;
    last->count += added.count;
}

/* Leaves at most `most` rows of those from `first` on: the last is the rest, to which the smallest are added. */
static void keep_largest(section *of, int first, int most, const char *rest)
{
    while (of->n - first > most) {
        int small = first, end = of->n - (strcmp(of->row[of->n - 1].label, rest) == 0);
        for (int i = first; i < end; i++)
            small = of->row[i].amount < of->row[small].amount ? i : small;
        row least = of->row[small];
        of->n--;
        memmove(&of->row[small], &of->row[small + 1], (size_t)(of->n - small) * sizeof least);
        add_to_rest(of, least, rest);
    }
}

/* A bar from `begin` to `end` of `all`, and a mark at `limit` (0: none). */
static void put_bar(screen *s, double begin, double end, double all, double limit, int columns)
{
    bool utf8 = clv_terminal_is_utf8();
    int from = (int)lround(begin / all * columns), to = (int)lround(end / all * columns), thin = -1;
    int mark = limit > 0 ? (int)lround(limit / all * columns) : -1;
    if (from == to)
        thin = from < columns ? from : columns - 1;
    for (int i = 0; i <= columns; i++) {
        if (i >= from && i < to)
            put(s, utf8 ? "█" : "#");
        else if (i == mark)
            put(s, utf8 ? "│" : "|");
        else
            put(s, i != thin ? " " : utf8 ? "▏" : ":");
    }
}

/* "280.0 GiB in 320": bytes of all collectives of a row, and their number; "" where it has none. */
static void print_collectives(char out[64], const row *r)
{
    char bytes[CLV_QUANTITY_TEXT];
    out[0] = '\0';
    clv_print_bytes(bytes, sizeof bytes, r->bytes);
    if (r->count > 0)
        snprintf(out, 64, "%s in %lld", bytes, (long long)r->count);
}

/* limit: of memory; 0: none. */
static void put_rows(screen *s, const section *of, double all, double limit, bool seconds)
{
    double scale = fmax(fmax(limit, all), 1e-300), at = 0;
    char count[64];
    int room = 0;
    for (int i = 0; seconds && i < of->n; i++) {
        print_collectives(count, &of->row[i]);
        room = clv_text_width(count) + 2 > room ? clv_text_width(count) + 2 : room;
    }
    bool counts = seconds && s->width >= 2 + LABEL + AMOUNTS + room + LEAST_BAR;
    int before = 2 + LABEL + AMOUNTS + (counts ? room : 0) + 2, bar = s->width - before - 1;
    bar = bar < MOST_BAR ? bar : MOST_BAR;
    for (int i = 0; i < of->n; i++) {
        const row *r = &of->row[i];
        char amount[CLV_QUANTITY_TEXT], share[32];
        (seconds ? clv_print_seconds : clv_print_bytes)(amount, sizeof amount, r->amount);
        snprintf(share, sizeof share, "%.1f %%", 100 * r->amount / scale);
        print_collectives(count, r);
        put(s, "  %-*s%9s%8s", LABEL, r->label, amount, share);
        if (counts)
            put(s, "%*s", room, count);
        if (bar >= LEAST_BAR) {
            put(s, "  ");
            put_bar(s, at, at + r->amount, scale, limit, bar);
        }
        at += r->amount;
        while (s->used > 0 && s->text[s->used - 1] == ' ')
            s->text[--s->used] = '\0';
        end_line(s, 4);
    }
}

/* ---- memory ---- */

/* Kinds of a thousandth of the total and less are added up. */
static void collect_memory(section *of, const clv_memory *m)
{
    row other = {.label = "other"};
    const char *name;
    int64_t bytes;
    for (int i = 0; (name = clv_plan_memory_kind(&bytes, m, i)) != NULL; i++) {
        if (bytes > m->total / 1000)
            add_row(of, (row){.label = name, .amount = (double)bytes});
        else
            other.amount += (double)bytes;
    }
    add_row(of, other);
}

/* Rows for each kind of a twentieth of the total, and for the rest. */
static int memory_rows(const clv_plan_report *r)
{
    section kinds = {0};
    int n = 1;
    collect_memory(&kinds, &r->memory);
    for (int i = 0; i < kinds.n; i++)
        n += kinds.row[i].amount >= (double)r->memory.total / 20 && strcmp(kinds.row[i].label, "other") != 0;
    return n;
}

static void put_memory(screen *s, const clv_plan_report *r, int rows)
{
    double total = (double)r->memory.total, limit = r->limit.source ? r->limit.bytes : 0;
    section kinds = {0};
    collect_memory(&kinds, &r->memory);
    keep_largest(&kinds, 0, rows, "other");
    put(s, "%-*s", TITLE, "memory");
    put_bytes(s, total);
    put(s, " a rank");
    if (limit > 0) {
        put(s, " of ");
        put_bytes(s, limit);
        if (limit < r->machine.memory_bytes && r->limit.bytes == r->predicted.memory_bytes)
            put(s, " (%.0f ranks on a device)", r->machine.memory_bytes / limit);
        put(s, total <= limit ? ": fits, " : ": does not fit, ");
        put_bytes(s, fabs(limit - total));
        put(s, total <= limit ? " spare" : " too much");
    }
    end_line(s, TITLE);
    put_rows(s, &kinds, total, limit, false);
}

/* ---- time ---- */

static const char *const purposes[CLV_PURPOSE_COUNT] = {
    [CLV_PURPOSE_RESHARDING] = "resharding",
    [CLV_PURPOSE_WEIGHT_GATHER] = "FSDP weight gathers",
    [CLV_PURPOSE_GRADIENT_REDUCTION] = "gradient reductions",
    [CLV_PURPOSE_SEQUENCE_PARALLEL] = "SP gathers and scatters",
    [CLV_PURPOSE_CONTEXT_PARALLEL] = "context exchange",
    [CLV_PURPOSE_SPLIT_CACHE] = "parts of the KV cache",
    [CLV_PURPOSE_TP_REDUCTION] = "TP reductions",
    [CLV_PURPOSE_TP_GATHER] = "TP gathers",
    [CLV_PURPOSE_EXPERT_PARALLEL] = "tokens to experts, back",
    [CLV_PURPOSE_VOCABULARY] = "vocabulary",
    [CLV_PURPOSE_SCALAR] = "loss and gradient norm",
};

/* Ops by part and the bubble, then exposed communication by purpose, the most first. Returns the number of the first
 * ones. */
static int collect_time(section *of, const clv_prediction_parts *parts, const clv_plan_estimate *estimate)
{
    static const char *const names[CLV_PART_COUNT] = {[CLV_PART_ATTENTION] = "attention",
                                                      [CLV_PART_FEED_FORWARD] = "feed-forward",
                                                      [CLV_PART_REST] = "rest of the model",
                                                      [CLV_PART_OPTIMIZER] = "optimizer"};
    bool taken[CLV_PURPOSE_COUNT] = {false};
    for (int p = 0; p < CLV_PART_COUNT; p++)
        add_row(of, (row){.label = names[p], .amount = parts->ops[p]});
    add_row(of, (row){.label = "pipeline bubble", .amount = parts->waits});
    int n = of->n;
    for (int k = 0; k < CLV_PURPOSE_COUNT; k++) {
        int most = -1;
        for (int p = 0; p < CLV_PURPOSE_COUNT; p++)
            if (!taken[p] && (most < 0 || parts->communication[p] > parts->communication[most]))
                most = p;
        taken[most] = true;
        add_row(of, (row){purposes[most], parts->communication[most], parts->bytes[most], parts->collectives[most]});
    }
    if (estimate) {
        add_row(of, (row){.label = "expert all-to-alls", .amount = estimate->expert});
        add_row(of, (row){.label = "context exchange", .amount = estimate->context});
        add_row(of, (row){.label = "sends between stages", .amount = estimate->send});
    }
    return n;
}

static void put_time_title(screen *s, const clv_plan_report *r)
{
    const clv_plan_options *o = &r->option->plan;
    const clv_prediction *p = &r->predicted;
    char tokens[CLV_QUANTITY_TEXT];
    clv_print_count(tokens, sizeof tokens, (double)clv_plan_tokens(o) / p->seconds);
    put(s, "%-*s", TITLE, "time");
    put_seconds(s, p->seconds);
    put(s, " a %s, ",
        strcmp(clv_plan_step_name(o), "training") == 0 || o->mode == CLV_PLAN_MODE_GRAD ? "step"
        : o->mode == CLV_PLAN_MODE_DECODE                                               ? "token"
                                                                                        : "pass");
    if (r->option->hardware)
        put(s, "%s tokens/s, MFU %.1f %%, communication %.1f %%", tokens, 100 * p->model_utilisation,
            100 * p->communication / p->seconds);
    else
        put(s, "on the default machine: only ratios mean something");
    end_line(s, TITLE);
}

/* ---- what to change first ---- */

static void put_change(screen *s, const clv_plan_report *r, const clv_plan_change *change)
{
    put(s, "%s: ", change->option);
    if (clv_plan_report_fits(r, &r->memory)) {
        put_seconds(s, change->seconds);
        put(s, ", %.0f %% less", 100 * (1 - change->seconds / r->predicted.seconds));
    } else {
        put_bytes(s, (double)change->memory.total);
        put(s, " a rank");
        if (clv_plan_change_ranks(change) > 0)
            put(s, " of %lld", (long long)clv_plan_change_ranks(change));
        put(s, clv_plan_report_fits(r, &change->memory) ? ", fits" : ", does not fit either");
        if (change->seconds > 0 && r->option->hardware) {
            put(s, ", ");
            put_seconds(s, change->seconds);
        }
    }
}

/* Whether no option suffices alone. */
static bool needs_several(const clv_plan_report *r)
{
    return r->n_first > 0 && !clv_plan_report_fits(r, &r->memory) && !clv_plan_report_fits(r, &r->first[0]->memory);
}

static void put_changes(screen *s, const clv_plan_report *r)
{
    for (int i = 0; i < r->n_first; i++) {
        put(s, "%-*s", TITLE, i == 0 ? "change first" : "");
        put_change(s, r, r->first[i]);
        end_line(s, TITLE);
    }
    if (needs_several(r)) {
        put(s, "%-*s--search --devices %lld, which combines options", TITLE, "",
            (long long)clv_mesh_rank_count(&r->option->mesh.mesh));
        end_line(s, TITLE);
    }
    if (r->n_first > 0)
        return;
    put(s, "%-*s", TITLE, "change first");
    if (!clv_plan_report_fits(r, &r->memory))
        put(s, "more ranks, or a smaller model: no option makes it smaller");
    else if (!r->option->hardware)
        put(s, "--hardware NAME, for a machine's time and memory (--hardware list)");
    else
        put(s, "nothing: it fits, and %.1f %% of the time is ops",
            100 * (1 - r->predicted.communication / r->predicted.seconds));
    end_line(s, TITLE);
}

/* ---- the screen ---- */

void clv_plan_screen_print(const clv_plan_report *r)
{
    screen s = {.width = clv_terminal_width(stdout)};
    section time = {0};
    int parts = collect_time(&time, &r->parts, r->estimate);
    put_model(&s, r);
    put_step(&s, r);
    put_mesh(&s, r);
    if (r->estimate || r->pipeline.stages > 0)
        put_estimate(&s, r);
    /* beside rows: two titles, three empty lines, the changes, the last line */
    int rows = LINES - s.lines - 2 - 3 - (r->n_first > 0 ? r->n_first : 1) - needs_several(r) - 1;
    int most = rows - parts - memory_rows(r);
    most = most < LEAST_PURPOSES ? LEAST_PURPOSES : most > MOST_PURPOSES ? MOST_PURPOSES : most;
    keep_largest(&time, parts, most, "other communication");
    rows -= time.n;
    end_line(&s, 0);
    put_memory(&s, r, rows > 3 ? rows : 3);
    end_line(&s, 0);
    put_time_title(&s, r);
    put_rows(&s, &time, r->predicted.seconds, 0, true);
    end_line(&s, 0);
    if (!r->estimate)
        put_changes(&s, r);
    put(&s, "%-*s%s", TITLE, "more",
        r->estimate ? "--all has all" : "--collectives lists each, --all has all; cleave explain says why");
    end_line(&s, TITLE);
}
