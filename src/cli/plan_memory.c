#include "cli/plan_memory.h"

#include <stddef.h>
#include <stdio.h>
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

/* ---- what would help: the plan made again with one option changed ---- */

enum { OPTION_TEXT = CLV_MESH_TEXT + 8, MOST_OPTIONS = 24 };

typedef struct remedy {
    char option[OPTION_TEXT];
    clv_memory memory;
} remedy;

typedef struct remedies {
    const clv_plan_option *given;
    int64_t total; /* as given */
    int n;
    remedy item[MOST_OPTIONS];
} remedies;

/* Keeps the option when the changed graph can be planned and needs less. */
static void try_option(remedies *r, const char *option, const clv_plan_option *changed)
{
    clv_program *program = NULL;
    clv_plan_option o = *changed;
    if (r->n == MOST_OPTIONS)
        return;
    o.plan.explain = NULL;
    if (clv_plan_option_compile(&program, &o, NULL) != CLV_OK)
        return;
    remedy *item = &r->item[r->n];
    item->memory = (clv_memory){.size = sizeof item->memory};
    clv_program_memory(program, &item->memory, NULL);
    clv_program_free(program);
    snprintf(item->option, sizeof item->option, "%s", option);
    r->n += item->memory.total < r->total;
}

static void try_batch(remedies *r)
{
    clv_plan_option o = *r->given;
    char option[64];
    o.plan.batch /= 2;
    snprintf(option, sizeof option, "--batch %lld", (long long)o.plan.batch);
    if (o.plan.batch > 0)
        try_option(r, option, &o);
}

static void try_dtype(remedies *r)
{
    clv_plan_option o = *r->given;
    o.dtype = "bf16";
    try_option(r, "--dtype bf16", &o);
}

static void try_regather(remedies *r)
{
    clv_plan_option o = *r->given;
    o.plan.regather = true;
    try_option(r, "--regather", &o);
}

static void try_rules(remedies *r)
{
    static const char *const presets[] = {"zero1", "fsdp", "megatron-sp", "fsdp+megatron-sp", "gspmd-2d"};
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        clv_plan_option o = *r->given;
        char option[64];
        o.mesh.rules = presets[i];
        o.mesh.sp = false;
        snprintf(option, sizeof option, "--rules %s", presets[i]);
        try_option(r, option, &o);
    }
}

/* Each axis of the mesh twice as long. */
static void try_axes(remedies *r)
{
    clv_mesh mesh;
    if (clv_mesh_option_read(&mesh, &r->given->mesh, NULL) != CLV_OK)
        return;
    for (int a = 0; a < mesh.n_axes; a++) {
        clv_plan_option o = *r->given;
        clv_mesh more = mesh;
        char option[OPTION_TEXT] = "--mesh ", *text = option + strlen(option);
        more.axis[a].size *= 2;
        clv_mesh_print(text, sizeof option - (size_t)(text - option), &more);
        o.mesh.tp = 1;
        o.mesh.text = text;
        try_option(r, option, &o);
    }
}

static int by_total(const void *a, const void *b)
{
    int64_t x = ((const remedy *)a)->memory.total, y = ((const remedy *)b)->memory.total;
    return x < y ? -1 : x > y;
}

static void find_remedies(remedies *r)
{
    try_axes(r);
    try_rules(r);
    try_batch(r);
    try_dtype(r);
    try_regather(r);
    qsort(r->item, (size_t)r->n, sizeof *r->item, by_total);
}

/* Options that take a twentieth of the kind away, or more. */
static void add_options(clv_table *t, const remedies *r, const clv_memory *m, int kind)
{
    const char *options[MOST_OPTIONS];
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (bytes_of(&r->item[i].memory, kind) <= bytes_of(m, kind) - bytes_of(m, kind) / 20)
            options[n++] = r->item[i].option;
    clv_table_texts(t, kinds[kind].name, options, n);
}

/* The options that each suffice: of one that is not enough nobody should think that it is. */
static void add_enough(clv_table *t, const remedies *r, double limit)
{
    const char *options[MOST_OPTIONS];
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if ((double)r->item[i].memory.total <= limit)
            options[n++] = r->item[i].option;
    if (n > 0)
        clv_table_texts(t, "enough", options, n);
    else
        clv_table_text(t, "enough", "none of these options alone");
}

static void add_advice(clv_table *t, const clv_memory *m, const remedies *r)
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

static void add_remedies(clv_table *t, const clv_memory *m, const clv_plan_option *given, double limit)
{
    remedies *r = calloc(1, sizeof *r);
    if (!r)
        return;
    r->given = given;
    r->total = m->total;
    find_remedies(r);
    add_enough(t, r, limit);
    add_advice(t, m, r);
    free(r);
}

void clv_plan_fit_add(clv_table *t, const clv_program *program, const clv_plan_option *given, clv_memory_limit limit)
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
        add_remedies(t, &m, given, limit.bytes);
}
