/* plan_memory_table.c - adds the objects `memory` and `fit` of `cleave plan --all` and --json: bytes by kind, whether
 * it fits, which options make it smaller. plan_screen.c prints the first screen. */
#include "cli/reports/plan_memory_table.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
    {"software", offsetof(clv_memory, software)},
};

enum { KINDS = sizeof kinds / sizeof kinds[0], LARGEST = 3 };

static int64_t bytes_of(const clv_memory *m, int kind)
{
    int64_t bytes;
    memcpy(&bytes, (const char *)m + kinds[kind].offset, sizeof bytes);
    return bytes;
}

const char *clv_plan_memory_kind(int64_t *bytes, const clv_memory *m, int i)
{
    *bytes = i >= 0 && i < KINDS ? bytes_of(m, i) : 0;
    return i >= 0 && i < KINDS ? kinds[i].name : NULL;
}

void clv_plan_memory_add(clv_table *t, const clv_plan_report *r)
{
    const clv_memory *m = &r->memory;
    clv_table_begin_object(t, "memory");
    for (int k = 0; k < KINDS; k++)
        clv_table_bytes(t, kinds[k].name, (double)bytes_of(m, k));
    clv_table_bytes(t, "total", (double)m->total);
    clv_table_text(t, "peak_at", m->peak ? m->peak : "");
    if (m->checkpoint_copy > 0)
        clv_table_bytes(t, "checkpoint_copy", (double)m->checkpoint_copy);
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

/* Options that take a twentieth of the kind away, or more. options: [r->n_smaller] scratch. */
static void add_options(clv_table *t, const clv_plan_report *r, const char **options, int kind)
{
    int64_t bytes = bytes_of(&r->memory, kind);
    int n = 0;
    for (int i = 0; i < r->n_smaller; i++)
        if (bytes_of(&r->smaller[i].memory, kind) <= bytes - bytes / 20)
            options[n++] = r->smaller[i].option;
    clv_table_text_list(t, kinds[kind].name, options, n);
}

/* The options that each suffice: of one that is not enough nobody should think that it is. */
static void add_enough(clv_table *t, const clv_plan_report *r, const char **options)
{
    int n = 0;
    for (int i = 0; i < r->n_smaller; i++)
        if (clv_plan_report_fits(r, &r->smaller[i].memory))
            options[n++] = r->smaller[i].option;
    if (n > 0)
        clv_table_text_list(t, "enough", options, n);
    else
        clv_table_text(t, "enough", "none of these options alone");
}

static void add_advice(clv_table *t, const clv_plan_report *r, const char **options)
{
    int largest[LARGEST], n = find_largest(largest, &r->memory);
    clv_table_begin_object(t, "largest");
    for (int i = 0; i < n; i++)
        clv_table_bytes(t, kinds[largest[i]].name, (double)bytes_of(&r->memory, largest[i]));
    clv_table_begin_object(t, "smaller_by");
    for (int i = 0; i < n; i++)
        add_options(t, r, options, largest[i]);
    clv_table_begin_object(t, "would_need");
    for (int i = 0; i < r->n_smaller; i++)
        clv_table_bytes(t, r->smaller[i].option, (double)r->smaller[i].memory.total);
}

void clv_plan_memory_fit_add(clv_table *t, const clv_plan_report *r)
{
    double total = (double)r->memory.total, limit = r->limit.bytes;
    bool fits = clv_plan_report_fits(r, &r->memory);
    const char **options = r->smaller ? calloc((size_t)r->n_smaller + 1, sizeof *options) : NULL;
    if (!r->limit.source)
        return;
    clv_table_begin_object(t, "fit");
    clv_table_bool(t, "fits", fits);
    clv_table_bytes(t, "limit", limit);
    clv_table_bytes(t, fits ? "spare" : "lacking", fits ? limit - total : total - limit);
    clv_table_text(t, "limit_from", r->limit.source);
    if (options) {
        add_enough(t, r, options);
        add_advice(t, r, options);
    }
    free(options);
}
