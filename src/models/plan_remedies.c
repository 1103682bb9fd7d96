/* plan_remedies.c - what would make a plan smaller: it is made again with one option changed (plan.h). */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "models/plan.h"

enum { VALUE_TEXT = CLV_MESH_TEXT, MOST_CHANGES = CLV_MAX_AXES + 8 };

typedef struct remedy {
    const char *option;
    char value[VALUE_TEXT];
    clv_memory memory;
    int tried; /* which one it was, for those that need as much */
} remedy;

struct clv_plan_remedies {
    clv_plan_options given; /* while they are found */
    clv_memory memory;      /* as given */
    int n;
    remedy item[MOST_CHANGES];
};

static clv_status measure(clv_memory *out, const clv_plan_options *options, clv_error *err)
{
    clv_program *program;
    CLV_TRY(clv_plan_compile(&program, options, err));
    *out = (clv_memory){.size = sizeof *out};
    clv_status status = clv_program_memory(program, out, err);
    out->peak = NULL; /* the program's */
    clv_program_free(program);
    return status;
}

/* Keeps the change when it can be planned and a rank needs less. */
static void try_change(clv_plan_remedies *r, const clv_plan_options *changed, const char *option, const char *value)
{
    remedy *item = &r->item[r->n];
    if (r->n == MOST_CHANGES || measure(&item->memory, changed, NULL) != CLV_OK)
        return;
    item->option = option;
    item->tried = r->n;
    snprintf(item->value, sizeof item->value, "%s", value);
    r->n += item->memory.total < r->memory.total;
}

/* Each axis of the mesh twice as long. */
static void try_axes(clv_plan_remedies *r)
{
    for (int a = 0; r->given.mesh && a < r->given.mesh->n_axes; a++) {
        clv_plan_options changed = r->given;
        clv_mesh more = *r->given.mesh;
        char text[CLV_MESH_TEXT];
        more.axis[a].size *= 2;
        changed.mesh = &more;
        clv_mesh_print(text, sizeof text, &more);
        try_change(r, &changed, "mesh", text);
    }
}

static void try_rules(clv_plan_remedies *r)
{
    static const char *const presets[] = {"zero1", "fsdp", "megatron-sp", "fsdp+megatron-sp", "gspmd-2d"};
    for (size_t i = 0; r->given.mesh && i < sizeof presets / sizeof *presets; i++) {
        clv_plan_options changed = r->given;
        clv_axis_rules rules;
        if (clv_axis_rules_preset(&rules, presets[i], r->given.mesh, NULL) != CLV_OK)
            continue;
        changed.rules = &rules;
        changed.sp = false;
        try_change(r, &changed, "rules", presets[i]);
    }
}

static void try_sizes(clv_plan_remedies *r)
{
    clv_plan_options half = r->given, narrow = r->given, regather = r->given;
    char batch[32];
    half.batch = (half.batch ? half.batch : CLV_PLAN_BATCH) / 2;
    snprintf(batch, sizeof batch, "%lld", (long long)half.batch);
    if (half.batch > 0)
        try_change(r, &half, "batch", batch);
    narrow.dtype = CLV_BF16;
    try_change(r, &narrow, "dtype", clv_dtype_name(narrow.dtype));
    regather.regather = true;
    try_change(r, &regather, "regather", "");
}

static int by_total(const void *a, const void *b)
{
    int64_t x = ((const remedy *)a)->memory.total, y = ((const remedy *)b)->memory.total;
    return x != y ? (x < y ? -1 : 1) : ((const remedy *)a)->tried - ((const remedy *)b)->tried;
}

clv_status clv_plan_find_remedies(clv_plan_remedies **out, const clv_plan_options *options, clv_error *err)
{
    static const char call[] = "clv_plan_find_remedies";
    CLV_TRY(clv_require(out && options, call, "out and options", err));
    clv_plan_remedies *r = calloc(1, sizeof *r);
    if (!r)
        return clv_fail_memory(err, "remedies", sizeof *r);
    clv_status status = clv_plan_take_options(&r->given, options, call, err);
    r->given.explain = NULL;
    if (status == CLV_OK)
        status = measure(&r->memory, &r->given, err);
    if (status != CLV_OK) {
        free(r);
        return status;
    }
    try_axes(r);
    try_rules(r);
    try_sizes(r);
    qsort(r->item, (size_t)r->n, sizeof *r->item, by_total);
    *out = r;
    return CLV_OK;
}

void clv_plan_remedies_free(clv_plan_remedies *remedies)
{
    free(remedies);
}

int clv_plan_n_remedies(const clv_plan_remedies *remedies)
{
    return remedies ? remedies->n : 0;
}

clv_status clv_plan_remedy_at(const clv_plan_remedies *remedies, int i, clv_plan_remedy *out, clv_error *err)
{
    static const char call[] = "clv_plan_remedy_at";
    CLV_TRY(clv_require(remedies && out, call, "remedies and out", err));
    if (i < 0 || i >= remedies->n)
        return clv_fail(err, CLV_EINVAL, "%s: there is no remedy %d; there are %d", call, i, remedies->n);
    const remedy *item = &remedies->item[i];
    const clv_plan_remedy info = {.option = item->option, .value = item->value, .memory = &item->memory};
    return clv_give_struct(out, sizeof info, sizeof info, &info, call, err);
}
