/* imported_search.c - `cleave plan --search` of a program of StableHLO text: each mesh of its axes, with the layouts
 * that the text states, and with those that are found for what it does not state.
 */
#include "cli/evaluation/imported_search.h"

#include <stdlib.h>
#include <string.h>

#include "cli/evaluation/imported_run.h"
#include "cli/reports/collective_tables.h"

/* Layouts are found for programs of at most so many instructions: it takes a second for a thousand. */
enum { MOST_MESHES = 4096, MOST_LISTED = 10, MOST_INSTRUCTIONS = 4096 };

typedef struct candidate {
    clv_mesh mesh;
    bool found, fits;
    double seconds, comm_share, bytes;
    int64_t memory;
} candidate;

typedef struct search {
    const clv_plan_option *option;
    clv_import *program;
    candidate *all;
    int n;
    double limit;
    bool too_large; /* for layouts to be found */
} search;

/* The axes of --mesh, of the text, or data and model. */
static clv_status find_axes(clv_mesh *out, const clv_plan_option *o, const clv_import *program, clv_error *err)
{
    if (o->mesh.text)
        return clv_mesh_option_parse(out, o->mesh.text, err);
    return clv_import_mesh(program, out) ? CLV_OK : clv_mesh_parse(out, "data=1,model=1", err);
}

static clv_status price(search *s, const clv_mesh *mesh, bool found, clv_error *err)
{
    clv_program *compiled;
    clv_prediction p = {.size = sizeof p};
    clv_memory memory = {.size = sizeof memory};
    clv_compile_options options = s->option->plan.compile;
    const clv_import_options how = {.size = sizeof how, .no_patterns = s->option->no_patterns};
    options.search_layouts = found;
    CLV_TRY(clv_imported_compile(&compiled, s->program, mesh, &options, &how, err));
    clv_status status = clv_program_predict(compiled, s->option->machine, &p, err);
    if (status == CLV_OK)
        status = clv_program_memory_on(compiled, s->option->machine, &memory, err);
    s->too_large = s->too_large || clv_program_instruction_count(compiled) > MOST_INSTRUCTIONS;
    if (status == CLV_OK)
        s->all[s->n++] = (candidate){.mesh = *mesh,
                                     .found = found,
                                     .fits = s->limit <= 0 || (double)memory.total <= s->limit,
                                     .seconds = p.seconds,
                                     .comm_share = p.seconds > 0 ? p.communication / p.seconds : 0,
                                     .bytes = clv_collectives_total_bytes(compiled),
                                     .memory = memory.total};
    clv_program_free(compiled);
    return status;
}

/* Every way to write `ranks` as a product over the axes from `axis` on. */
static clv_status each_mesh(search *s, clv_mesh *mesh, int axis, int64_t ranks, clv_error *err)
{
    clv_status status = CLV_OK;
    if (axis == mesh->n_axes - 1) {
        mesh->axis[axis].size = ranks;
        for (int found = 0; found < 2 - s->too_large && status == CLV_OK && s->n < MOST_MESHES; found++)
            status = price(s, mesh, found, err);
        return status;
    }
    for (int64_t size = 1; size <= ranks && status == CLV_OK; size++)
        if (ranks % size == 0) {
            mesh->axis[axis].size = size;
            status = each_mesh(s, mesh, axis + 1, ranks / size, err);
        }
    return status;
}

static int by_fit_and_seconds(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->fits != y->fits)
        return y->fits - x->fits;
    if (!x->fits)
        return (x->memory > y->memory) - (x->memory < y->memory);
    if (x->seconds != y->seconds)
        return (x->seconds > y->seconds) - (x->seconds < y->seconds);
    return x->found - y->found;
}

static void list(clv_invocation *run, const search *s, int64_t most)
{
    clv_table *t = run->table = clv_table_new("candidates");
    for (int i = 0; i < s->n && i < most; i++) {
        const candidate *c = &s->all[i];
        char text[CLV_MESH_TEXT];
        clv_mesh_print(text, sizeof text, &c->mesh);
        clv_table_begin_row(t);
        clv_table_text(t, "mesh", text);
        clv_table_text(t, "layouts", c->found ? "found" : "stated");
        clv_table_seconds(t, "seconds", c->seconds);
        clv_table_fraction(t, "comm_share", c->comm_share);
        clv_table_bytes(t, "bytes", c->bytes);
        clv_table_bytes(t, "memory", (double)c->memory);
        clv_table_bool(t, "fits", c->fits);
    }
    clv_table_begin_top_level(t);
    clv_table_text(t, "program", s->option->plan.model);
    clv_table_int(t, "candidates_priced", s->n);
    clv_table_text(t, "layouts_found", s->too_large ? "no: more than 4096 instructions" : "yes");
}

static clv_status run_search(clv_invocation *run, search *s, const clv_imported_search *how, clv_error *err)
{
    clv_mesh mesh;
    clv_machine_info machine = {.size = sizeof machine};
    CLV_TRY(find_axes(&mesh, s->option, s->program, err));
    CLV_TRY(clv_machine_get_info(s->option->machine, &machine, err));
    int64_t ranks = how->devices ? how->devices : clv_mesh_rank_count(&mesh);
    s->limit = how->memory_limit ? (double)how->memory_limit : machine.memory_bytes;
    CLV_TRY(each_mesh(s, &mesh, 0, ranks, err));
    qsort(s->all, (size_t)s->n, sizeof *s->all, by_fit_and_seconds);
    list(run, s, how->most ? how->most : MOST_LISTED);
    return CLV_OK;
}

clv_status clv_imported_search_report(clv_invocation *run, clv_plan_option *option, const clv_imported_search *how,
                                      clv_error *err)
{
    search s = {.option = option, .all = calloc(MOST_MESHES + 1, sizeof *s.all)};
    if (!s.all)
        return clv_fail_memory(err, "candidates", MOST_MESHES * sizeof *s.all);
    clv_status status = clv_imported_read(&s.program, option->plan.model, option->mesh.layouts, err);
    if (status == CLV_OK)
        status = run_search(run, &s, how, err);
    clv_import_free(s.program);
    free(s.all);
    return status;
}
