/* layouts.c - the layouts that a plan search considers: meshes of so many ranks, with the presets that fit them. */
#include "models/plan/search/layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The product of the axes that split a logical axis. */
static int64_t ranks_over(const clv_mesh *mesh, const clv_axis_rules *rules, clv_logical_axis name)
{
    int64_t ranks = 1;
    for (int r = 0; r < rules->n; r++)
        for (int k = 0; strcmp(rules->rule[r].name, name) == 0 && k < rules->rule[r].n_axes; k++)
            ranks *= mesh->axis[rules->rule[r].axis[k]].size;
    return ranks;
}

/* Rules without what the step has no use for: a generated sequence is whole on all ranks, and inference has no
 * optimizer. */
static clv_axis_rules effective_rules(const clv_plan_search_space *space, const clv_axis_rules *rules)
{
    bool whole_sequences = space->generates && !space->shape.bidirectional;
    clv_axis_rules kept = whole_sequences ? clv_axis_rules_without(rules, CLV_SEQ) : *rules;
    if (!space->trains)
        kept.n_optimizer = 0;
    return kept;
}

static bool same_rules(const clv_axis_rules *a, const clv_axis_rules *b)
{
    bool same = a->n == b->n && a->n_optimizer == b->n_optimizer;
    for (int r = 0; same && r < a->n; r++)
        same = strcmp(a->rule[r].name, b->rule[r].name) == 0 && a->rule[r].n_axes == b->rule[r].n_axes &&
               memcmp(a->rule[r].axis, b->rule[r].axis, (size_t)a->rule[r].n_axes * sizeof(int)) == 0;
    return same;
}

/* Whether another preset gives this step the same layouts. */
static bool is_listed(const clv_layout_list *list, const clv_plan_search_space *space,
                      const clv_plan_search_layout *layout)
{
    const clv_axis_rules rules = effective_rules(space, &layout->rules);
    for (int i = 0; i < list->n; i++) {
        const clv_axis_rules other = effective_rules(space, &list->item[i].rules);
        if (clv_mesh_equal(&list->item[i].mesh, &layout->mesh) && same_rules(&rules, &other))
            return true;
    }
    return false;
}

/* Every preset, or the one that is asked for, on a mesh. */
static clv_status add_mesh(clv_layout_list *list, const clv_plan_search_space *space, const clv_mesh *mesh,
                           clv_error *err)
{
    for (int i = 0; clv_axis_rules_preset_name(i); i++) {
        clv_plan_search_layout layout = {.mesh = *mesh};
        const char *preset = clv_axis_rules_preset_name(i);
        clv_error *why = list->refused.code ? NULL : &list->refused;
        if (space->rules && strcmp(space->rules, preset) != 0)
            continue;
        if (clv_axis_rules_preset(&layout.rules, preset, mesh, why) != CLV_OK)
            continue;
        layout.rows = ranks_over(mesh, &layout.rules, CLV_BATCH);
        if (layout.rows > space->batch || ranks_over(mesh, &layout.rules, CLV_HEADS) > space->shape.heads)
            continue;
        if (!is_listed(list, space, &layout) && (space->devices > 1 || list->n == 0))
            CLV_TRY(clv_layout_list_append(list, &layout, err));
    }
    return CLV_OK;
}

/* Two axes; one alone if the other one has a single rank. */
static clv_mesh mesh_of(const char *outer, int64_t outer_size, const char *inner, int64_t inner_size)
{
    clv_mesh mesh = {0};
    const clv_axis axes[] = {{.size = outer_size}, {.size = inner_size}};
    const char *names[] = {outer, inner};
    for (int a = 0; a < 2; a++) {
        if (axes[a].size == 1 && (a == 0 || mesh.n_axes > 0))
            continue;
        mesh.axis[mesh.n_axes] = axes[a];
        snprintf(mesh.axis[mesh.n_axes++].name, CLV_AXIS_NAME_SIZE, "%s", names[a]);
    }
    return mesh;
}

static clv_status add_sizes(clv_layout_list *list, const clv_plan_search_space *space, int64_t a, int64_t b,
                            clv_error *err)
{
    clv_mesh mesh = mesh_of("data", a, "model", b);
    CLV_TRY(add_mesh(list, space, &mesh, err));
    if (a == 1 || b == 1)
        return CLV_OK;
    mesh = mesh_of("X", a, "Y", b);
    CLV_TRY(add_mesh(list, space, &mesh, err));
    if (!space->both_axis_orders)
        return CLV_OK;
    mesh = mesh_of("model", b, "data", a);
    CLV_TRY(add_mesh(list, space, &mesh, err));
    mesh = mesh_of("Y", b, "X", a);
    return add_mesh(list, space, &mesh, err);
}

/* Data ranks that share the experts, where the family runs. */
static clv_status add_experts(clv_layout_list *list, const clv_plan_search_space *space, int64_t rest, int64_t model,
                              clv_error *err)
{
    for (int64_t expert = 2; expert <= space->moe.experts && expert <= rest; expert++) {
        if (rest % expert != 0 || space->moe.experts % expert != 0)
            continue;
        clv_mesh mesh = mesh_of("data", rest / expert, "expert", expert);
        const clv_mesh inner = mesh_of("model", model, "", 1);
        if (model > 1)
            mesh.axis[mesh.n_axes++] = inner.axis[0];
        CLV_TRY(add_mesh(list, space, &mesh, err));
    }
    return CLV_OK;
}

static bool is_preset(const char *rules)
{
    for (int i = 0; clv_axis_rules_preset_name(i); i++)
        if (strcmp(rules, clv_axis_rules_preset_name(i)) == 0)
            return true;
    return false;
}

static clv_status fail_unknown_preset(const char *name, clv_error *err)
{
    char names[256] = "";
    for (int i = 0, used = 0; clv_axis_rules_preset_name(i) && used < (int)sizeof names; i++)
        used +=
            snprintf(names + used, sizeof names - (size_t)used, "%s%s", i ? ", " : "", clv_axis_rules_preset_name(i));
    return clv_fail(err, CLV_EINVAL, "no preset is called '%s'; a search takes a preset, not a file; valid: %s", name,
                    names);
}

static clv_status fail_empty(const clv_plan_search_space *space, const clv_layout_list *list, clv_error *err)
{
    if ((space->rules || space->base->mesh) && list->refused.code)
        return clv_fail(err, list->refused.code, "%s", list->refused.message);
    return clv_fail(
        err, CLV_EINVAL,
        "%lld devices, a batch of %lld and %lld heads: each rank of the data axis needs a sequence, and each "
        "rank of the model axis a head; valid: fewer devices, or a larger batch",
        (long long)space->devices, (long long)space->batch, (long long)space->shape.heads);
}

static clv_status list_programs(clv_layout_list *list, const clv_plan_search_space *space, clv_error *err)
{
    if (space->base->mesh)
        return add_mesh(list, space, space->base->mesh, err);
    for (int64_t model = 1; model <= space->devices; model++) {
        if (space->devices % model != 0)
            continue;
        CLV_TRY(add_sizes(list, space, space->devices / model, model, err));
        CLV_TRY(add_experts(list, space, space->devices / model, model, err));
    }
    return CLV_OK;
}

clv_status clv_plan_search_space_list(clv_plan_search_layout **out, int *n, const clv_plan_search_space *space,
                                      clv_error *err)
{
    clv_layout_list list = {0};
    if (space->rules && !is_preset(space->rules))
        return fail_unknown_preset(space->rules, err);
    clv_status status = space->programs ? list_programs(&list, space, err) : CLV_OK;
    if (status == CLV_OK && space->planned)
        status = clv_layout_list_add_planned(&list, space, err);
    if (status == CLV_OK && list.n == 0)
        status = fail_empty(space, &list, err);
    if (status != CLV_OK) {
        free(list.item);
        return status;
    }
    *out = list.item;
    *n = list.n;
    return CLV_OK;
}
