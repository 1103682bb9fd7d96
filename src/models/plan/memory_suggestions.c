/* memory_suggestions.c - clv_plan_find_suggestions: option changes that reduce a plan's memory per rank. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "models/plan/plan_internal.h"

enum { VALUE_TEXT = CLV_MESH_TEXT, MOST_CHANGES = CLV_MAX_AXES + 10 };

typedef struct suggestion {
    const char *option;
    char value[VALUE_TEXT];
    clv_memory memory;
    double seconds;
    int tried; /* which one it was, for those that need as much */
} suggestion;

struct clv_plan_suggestions {
    int n;
    suggestion item[MOST_CHANGES];
};

/* While they are found. */
typedef struct search {
    clv_plan_options given;
    int64_t total; /* as given */
    clv_plan_suggestions *found;
} search;

static clv_status measure(clv_memory *out, double *seconds, const clv_plan_options *options, clv_error *err)
{
    clv_program *program;
    clv_prediction predicted = {.size = sizeof predicted};
    CLV_TRY(clv_plan_compile(&program, options, err));
    *out = (clv_memory){.size = sizeof *out};
    clv_status status = clv_program_memory_on(program, options->compile.machine, out, err);
    if (status == CLV_OK)
        status = clv_program_predict(program, options->compile.machine, &predicted, err);
    *seconds = predicted.seconds;
    out->peak = NULL; /* the program's */
    clv_program_free(program);
    return status;
}

/* Keeps the change when it can be planned and a rank needs less. */
static void try_change(search *s, const clv_plan_options *changed, const char *option, const char *value)
{
    clv_plan_suggestions *r = s->found;
    suggestion *item = &r->item[r->n];
    if (r->n == MOST_CHANGES || measure(&item->memory, &item->seconds, changed, NULL) != CLV_OK)
        return;
    item->option = option;
    item->tried = r->n;
    snprintf(item->value, sizeof item->value, "%s", value);
    r->n += item->memory.total < s->total;
}

/* Each axis of the mesh twice as long. */
static void try_axes(search *s)
{
    for (int a = 0; s->given.mesh && a < s->given.mesh->n_axes; a++) {
        clv_plan_options changed = s->given;
        clv_mesh more = *s->given.mesh;
        char text[CLV_MESH_TEXT];
        more.axis[a].size *= 2;
        changed.mesh = &more;
        clv_mesh_print(text, sizeof text, &more);
        try_change(s, &changed, "mesh", text);
    }
}

static void try_rules(search *s)
{
    static const char *const presets[] = {"zero1",   "fsdp", "zero1+megatron-sp", "megatron-sp", "fsdp+megatron-sp",
                                          "gspmd-2d"};
    for (size_t i = 0; s->given.mesh && i < sizeof presets / sizeof *presets; i++) {
        clv_plan_options changed = s->given;
        clv_axis_rules rules;
        if (clv_axis_rules_preset(&rules, presets[i], s->given.mesh, NULL) != CLV_OK)
            continue;
        changed.rules = &rules;
        changed.sp = false;
        try_change(s, &changed, "rules", presets[i]);
    }
}

static void try_sizes(search *s)
{
    clv_plan_options half = s->given, narrow = s->given, reshard = s->given, again = s->given;
    clv_recompute *mode = &again.compile.recompute;
    char batch[32];
    half.batch = (half.batch ? half.batch : CLV_PLAN_BATCH) / 2;
    snprintf(batch, sizeof batch, "%lld", (long long)half.batch);
    if (half.batch > 0)
        try_change(s, &half, "batch", batch);
    narrow.dtype = CLV_BF16;
    try_change(s, &narrow, "dtype", clv_dtype_name(narrow.dtype));
    reshard.compile.reshard_after_forward = CLV_RESHARD_ALL;
    try_change(s, &reshard, "reshard_after_forward", "");
    for (*mode = CLV_RECOMPUTE_SELECTIVE; *mode <= CLV_RECOMPUTE_FULL; (*mode)++)
        if (*mode > s->given.compile.recompute)
            try_change(s, &again, "recompute", clv_recompute_name(*mode));
}

static int by_total(const void *a, const void *b)
{
    int64_t x = ((const suggestion *)a)->memory.total, y = ((const suggestion *)b)->memory.total;
    return x != y ? (x < y ? -1 : 1) : ((const suggestion *)a)->tried - ((const suggestion *)b)->tried;
}

clv_status clv_plan_find_suggestions(clv_plan_suggestions **out, const clv_plan_options *options, clv_error *err)
{
    CLV_TRY(clv_require(out && options, __func__, "out and options", err));
    clv_plan_suggestions *r = calloc(1, sizeof *r);
    if (!r)
        return clv_fail_memory(err, "suggestions", sizeof *r);
    search s = {.found = r};
    clv_memory memory;
    double seconds;
    clv_status status = clv_plan_parse_options(&s.given, options, __func__, err);
    s.given.compile.explain = NULL;
    if (status == CLV_OK)
        status = measure(&memory, &seconds, &s.given, err);
    if (status != CLV_OK) {
        free(r);
        return status;
    }
    s.total = memory.total;
    try_axes(&s);
    try_rules(&s);
    try_sizes(&s);
    qsort(r->item, (size_t)r->n, sizeof *r->item, by_total);
    *out = r;
    return CLV_OK;
}

void clv_plan_suggestions_free(clv_plan_suggestions *suggestions)
{
    free(suggestions);
}

int clv_plan_suggestion_count(const clv_plan_suggestions *suggestions)
{
    return suggestions ? suggestions->n : 0;
}

clv_status clv_plan_suggestion_at(const clv_plan_suggestions *suggestions, int i, clv_plan_suggestion *out,
                                  clv_error *err)
{
    CLV_TRY(clv_require(suggestions && out, __func__, "suggestions and out", err));
    if (i < 0 || i >= suggestions->n)
        return clv_fail(err, CLV_EINVAL, "%s: there is no suggestion %d; there are %d", __func__, i, suggestions->n);
    const suggestion *item = &suggestions->item[i];
    const clv_plan_suggestion info = {
        .option = item->option, .value = item->value, .memory = &item->memory, .seconds = item->seconds};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}
