/* plan_memory_report.c - memory section of `cleave plan`: bytes by kind, whether it fits, and suggestions that make
 * it smaller.
 */
#include "cli/reports/plan_memory_report.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"

/* ---- kinds ---- */

static const struct kind {
    const char *name;
    size_t offset; /* in clv_memory */
} kinds[] = {
    {"parameters", offsetof(clv_memory, parameters)},
    {"optimizer", offsetof(clv_memory, optimizer)},
    {"kv_cache", offsetof(clv_memory, cache)},
    {"other_state", offsetof(clv_memory, other_state)},
    {"gradients", offsetof(clv_memory, gradients)},
    {"activations", offsetof(clv_memory, activations)},
    {"gathered", offsetof(clv_memory, gathered)},
    {"inputs", offsetof(clv_memory, inputs)},
    {"communication", offsetof(clv_memory, communication)},
    {"temporaries", offsetof(clv_memory, temporaries)},
    {"workspace", offsetof(clv_memory, workspace)},
    {"fragments", offsetof(clv_memory, fragments)},
};

enum { KINDS = sizeof kinds / sizeof kinds[0], LARGEST = 3 };

static int64_t bytes_of(const clv_memory *m, int kind)
{
    int64_t bytes;
    memcpy(&bytes, (const char *)m + kinds[kind].offset, sizeof bytes);
    return bytes;
}

void clv_plan_memory_add(clv_table *t, const clv_program *program)
{
    clv_memory m = {.size = sizeof m};
    clv_program_memory(program, &m, NULL);
    clv_table_object(t, "memory");
    for (int k = 0; k < KINDS; k++)
        clv_table_bytes(t, kinds[k].name, (double)bytes_of(&m, k));
    clv_table_bytes(t, "total", (double)m.total);
    clv_table_text(t, "peak_at", m.peak ? m.peak : "");
    if (m.checkpoint_copy > 0)
        clv_table_bytes(t, "checkpoint_copy", (double)m.checkpoint_copy);
}

/* The kinds that take most, at least a twentieth of the total each; returns how many. */
static int find_largest(int out[LARGEST], const clv_memory *m)
{
    int n = 0;
    for (int k = 0; k < KINDS; k++) {
        if (bytes_of(m, k) < m->total / 20)
            continue;
        int at = n;
        while (at > 0 && bytes_of(m, out[at - 1]) < bytes_of(m, k))
            at--;
        if (at == LARGEST)
            continue;
        n += n < LARGEST;
        memmove(out + at + 1, out + at, (size_t)(n - 1 - at) * sizeof *out);
        out[at] = k;
    }
    return n;
}

/* ---- what would help ---- */

enum { OPTION_TEXT = CLV_MESH_TEXT + 16 };

/* A change of the plan, as an option of the command. */
typedef struct suggestion {
    char option[OPTION_TEXT];
    clv_memory memory;
} suggestion;

typedef struct suggestions {
    int n;
    suggestion *item;
    const char **options; /* [n] scratch */
} suggestions;

static clv_status read_suggestions(suggestions *out, const clv_plan_suggestions *found, clv_error *err)
{
    size_t n = (size_t)clv_plan_suggestion_count(found);
    out->item = calloc(n + 1, sizeof *out->item);
    out->options = calloc(n + 1, sizeof *out->options);
    if (!out->item || !out->options)
        return clv_fail_memory(err, "options of a plan", (n + 1) * sizeof *out->item);
    for (; out->n < (int)n; out->n++) {
        suggestion *item = &out->item[out->n];
        clv_plan_suggestion change = {.size = sizeof change};
        CLV_TRY(clv_plan_suggestion_at(found, out->n, &change, err));
        snprintf(item->option, sizeof item->option, "--%s%s%s", change.option, change.value[0] ? " " : "",
                 change.value);
        for (char *c = item->option; *c && *c != ' '; c++)
            *c = *c == '_' ? '-' : *c;
        item->memory = *change.memory;
    }
    return CLV_OK;
}

static clv_status find_suggestions(suggestions *out, const clv_plan_options *given, clv_error *err)
{
    clv_plan_suggestions *found;
    CLV_TRY(clv_plan_find_suggestions(&found, given, err));
    clv_status status = read_suggestions(out, found, err);
    clv_plan_suggestions_free(found);
    return status;
}

static void free_suggestions(suggestions *r)
{
    free(r->options);
    free(r->item);
}

/* Options that take a twentieth of the kind away, or more. */
static void add_options(clv_table *t, const suggestions *r, const clv_memory *m, int kind)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (bytes_of(&r->item[i].memory, kind) <= bytes_of(m, kind) - bytes_of(m, kind) / 20)
            r->options[n++] = r->item[i].option;
    clv_table_text_list(t, kinds[kind].name, r->options, n);
}

/* The options that each suffice: of one that is not enough nobody should think that it is. */
static void add_enough(clv_table *t, const suggestions *r, double limit)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if ((double)r->item[i].memory.total <= limit)
            r->options[n++] = r->item[i].option;
    if (n > 0)
        clv_table_text_list(t, "enough", r->options, n);
    else
        clv_table_text(t, "enough", "none of these options alone");
}

static void add_advice(clv_table *t, const clv_memory *m, const suggestions *r)
{
    int largest[LARGEST], n = find_largest(largest, m);
    clv_table_object(t, "largest");
    for (int i = 0; i < n; i++)
        clv_table_bytes(t, kinds[largest[i]].name, (double)bytes_of(m, largest[i]));
    clv_table_object(t, "smaller_by");
    for (int i = 0; i < n; i++)
        add_options(t, r, m, largest[i]);
    clv_table_object(t, "would_need");
    for (int i = 0; i < r->n; i++)
        clv_table_bytes(t, r->item[i].option, (double)r->item[i].memory.total);
}

static void add_suggestions(clv_table *t, const clv_memory *m, const clv_plan_options *given, double limit)
{
    suggestions r = {0};
    if (find_suggestions(&r, given, NULL) == CLV_OK) {
        add_enough(t, &r, limit);
        add_advice(t, m, &r);
    }
    free_suggestions(&r);
}

void clv_plan_memory_fit_add(clv_table *t, const clv_program *program, const clv_plan_options *given,
                             clv_memory_limit limit)
{
    clv_memory m = {.size = sizeof m};
    clv_program_memory(program, &m, NULL);
    bool fits = (double)m.total <= limit.bytes;
    if (!limit.source)
        return;
    clv_table_object(t, "fit");
    clv_table_bool(t, "fits", fits);
    clv_table_bytes(t, "limit", limit.bytes);
    clv_table_bytes(t, fits ? "spare" : "lacking",
                    fits ? limit.bytes - (double)m.total : (double)m.total - limit.bytes);
    clv_table_text(t, "limit_from", limit.source);
    if (!fits)
        add_suggestions(t, &m, given, limit.bytes);
}
