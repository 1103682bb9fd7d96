/* planned_layouts.c - layouts with stages, context and experts that a plan search prices by estimates: the meshes
 * pipe x data x context x expert x model of so many ranks.
 *
 * Rules are those with ZeRO-1 and FSDP, with SP where there is a model axis: without them a rank needs more memory and
 * is no faster.
 */
#include <stdio.h>
#include <string.h>

#include "models/plan/axes/estimate.h"
#include "models/plan/axes/mesh_parts.h"
#include "models/plan/search/layouts.h"

enum { MOST_CONTEXT = 64 }; /* ranks that share a sequence */

/* Sizes of the axes, in their order. */
typedef struct sizes {
    int64_t pipe, data, context, expert, model;
} sizes;

static clv_mesh mesh_of(const sizes *s)
{
    const int64_t size[] = {s->pipe, s->data, s->context, s->expert, s->model};
    static const char *const names[] = {"pipe", "data", "context", "expert", "model"};
    clv_mesh mesh = {0};
    for (size_t a = 0; a < sizeof size / sizeof *size; a++) {
        if (size[a] == 1)
            continue;
        mesh.axis[mesh.n_axes].size = size[a];
        snprintf(mesh.axis[mesh.n_axes++].name, CLV_AXIS_NAME_SIZE, "%s", names[a]);
    }
    return mesh;
}

/* Bytes of a rank's state, gradients aside: parameters are split over stages and model, with FSDP over data, too; the
 * optimizer's copy and moments over all. Experts are split further. */
static double state_of(const clv_plan_search_space *space, const sizes *s, const char *rules)
{
    const double p = space->parameters, bytes = (double)clv_dtype_size(space->base->dtype);
    const bool all = strncmp(rules, "fsdp", 4) == 0,
               alone = strcmp(rules, "dp") == 0 || rules[0] == 'm' || rules[0] == '\0';
    const double split = (double)(s->pipe * s->model * (s->expert > 1 ? s->expert : 1)), n = (double)space->devices;
    const double moments = space->base->lora ? 0 : bytes < 4 ? 12 : 8;
    return bytes * p / (all ? n : split) + moments * p / (alone ? split : n);
}

static clv_status add_rules(clv_layout_list *list, const clv_plan_search_space *space, const sizes *s,
                            const char *rules, clv_error *err)
{
    const clv_plan_options *base = space->base;
    clv_plan_search_layout layout = {.mesh = mesh_of(s),
                                     .rows = s->data * s->expert,
                                     .planned = true,
                                     .stages = s->pipe,
                                     .context = s->context,
                                     .expert = s->expert,
                                     .model = s->model,
                                     .state = state_of(space, s, rules)};
    layout.runs = clv_mesh_of_model_runs(&layout.mesh, &space->moe, space->shape.layers, base->compile.machine) &&
                  clv_axis_rules_preset(&layout.rules, rules[0] ? rules : NULL, &layout.mesh, NULL) == CLV_OK;
    snprintf(layout.rules.name, sizeof layout.rules.name, "%s", rules); /* "": none was asked for */
    if (space->runnable && !layout.runs)
        return CLV_OK;
    return clv_layout_list_append(list, &layout, err);
}

static clv_status add(clv_layout_list *list, const clv_plan_search_space *space, const sizes *s, clv_error *err)
{
    const bool splits = s->model > 1;
    const bool whole = s->pipe == 1 && s->context == 1;
    if ((whole && space->programs) || space->batch % (s->data * s->expert) != 0)
        return CLV_OK;
    if (space->rules)
        return add_rules(list, space, s, space->rules, err);
    if (s->data * s->context * s->expert == 1)
        return add_rules(list, space, s, splits ? "megatron-sp" : "", err);
    CLV_TRY(add_rules(list, space, s, splits ? "zero1+megatron-sp" : "zero1", err));
    return add_rules(list, space, s, splits ? "fsdp+megatron-sp" : "fsdp", err);
}

static clv_status add_experts(clv_layout_list *list, const clv_plan_search_space *space, sizes s, int64_t rest,
                              clv_error *err)
{
    for (s.expert = 1; s.expert <= rest && (s.expert == 1 || s.expert <= space->moe.experts); s.expert++) {
        if (rest % s.expert != 0 || (s.expert > 1 && space->moe.experts % s.expert != 0))
            continue;
        s.data = rest / s.expert;
        CLV_TRY(add(list, space, &s, err));
    }
    return CLV_OK;
}

static clv_status add_context(clv_layout_list *list, const clv_plan_search_space *space, sizes s, int64_t rest,
                              clv_error *err)
{
    for (s.context = 1; s.context <= rest && s.context <= MOST_CONTEXT; s.context++)
        if (rest % s.context == 0 && space->base->seq % s.context == 0)
            CLV_TRY(add_experts(list, space, s, rest / s.context, err));
    return CLV_OK;
}

/* A mesh that is asked for. */
static clv_status add_mesh(clv_layout_list *list, const clv_plan_search_space *space, clv_error *err)
{
    clv_mesh_parts parts;
    CLV_TRY(clv_mesh_parts_split(&parts, space->base->mesh, space->shape.layers, err));
    return add(list, space, &(sizes){parts.pipe, parts.data, parts.context, parts.expert, parts.model}, err);
}

clv_status clv_layout_list_add_planned(clv_layout_list *list, const clv_plan_search_space *space, clv_error *err)
{
    const int64_t most_stages = space->shape.layers < space->devices ? space->shape.layers : space->devices;
    sizes s;
    if (space->base->mesh)
        return add_mesh(list, space, err);
    for (s.pipe = 1; s.pipe <= most_stages; s.pipe++) {
        const int64_t stage = space->devices / s.pipe;
        for (s.model = 1; space->devices % s.pipe == 0 && s.model <= stage && s.model <= space->shape.heads; s.model++)
            if (stage % s.model == 0)
                CLV_TRY(add_context(list, space, s, stage / s.model, err));
    }
    return CLV_OK;
}
