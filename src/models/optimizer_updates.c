/* optimizer_updates.c - builds the end of a training step: gradients, global norm, clipping, AdamW/SGD/Lion update per
 * parameter. */
#include <float.h>

#include "models/adapters/lora_parameters.h"
#include "nn/axis_rules.h"
#include "ops/builtin_ops.h"

/* No weight decay for gains and biases. Biases of heads have several dimensions. */
static bool decays(const clv_graph *graph, clv_value parameter)
{
    const char *part = strrchr(clv_value_name(graph, parameter), '.');
    return clv_graph_type(graph, parameter).rank > 1 && (!part || strcmp(part, ".bias") != 0);
}

/* The layout of a parameter's moments, and of its gradient in the update. */
static clv_layout moments_layout(clv_graph *graph, const clv_model_build_options *build, clv_value parameter)
{
    clv_layout held = clv_value_layout(graph, parameter), moments = held;
    clv_type type = clv_graph_type(graph, parameter);
    if (build->rules.n_optimizer > 0 && clv_graph_ok(graph))
        clv_axis_rules_optimizer_layout(&moments, &build->rules, &graph->mesh, &held, type.shape, &graph->error);
    return moments;
}

static bool is_split_over(const clv_layout *layout, uint32_t axes)
{
    for (int i = 0; i < layout->begin[layout->rank]; i++)
        if (axes >> layout->axes[i].axis & 1)
            return true;
    return false;
}

/* Shared by the updates of all parameters. */
typedef struct updates {
    const clv_model_build_options *build;
    const clv_update_options *how;
    clv_value lr, step, scale; /* scale: factor of gradients; CLV_NONE: 1 */
} updates;

/* The update of one parameter. */
typedef struct update_of {
    clv_value parameter, gradient;
    const clv_layout *moments; /* NULL: the parameter's layout */
    bool decays;
} update_of;

static void update_adamw(clv_graph *graph, const updates *u, const update_of *its)
{
    clv_adamw_options o = *u->how->adamw;
    o.weight_decay = its->decays ? o.weight_decay : 0;
    o.state_layout = its->moments ? its->moments : o.state_layout;
    o.grad_scale = u->scale;
    clv_adamw(graph, its->parameter, its->gradient, u->lr, u->step, &o);
}

static void update_sgd(clv_graph *graph, const updates *u, const update_of *its)
{
    clv_sgd_options o = *u->how->sgd;
    o.weight_decay = its->decays ? o.weight_decay : 0;
    o.state_layout = its->moments ? its->moments : o.state_layout;
    o.grad_scale = u->scale;
    clv_sgd(graph, its->parameter, its->gradient, u->lr, &o);
}

static void update_lion(clv_graph *graph, const updates *u, const update_of *its)
{
    clv_lion_options o = *u->how->lion;
    o.weight_decay = its->decays ? o.weight_decay : 0;
    o.state_layout = its->moments ? its->moments : o.state_layout;
    o.grad_scale = u->scale;
    clv_lion(graph, its->parameter, its->gradient, u->lr, &o);
}

/* By clv_optimizer. */
static const struct {
    const char *name;
    void (*update)(clv_graph *graph, const updates *u, const update_of *its);
} optimizers[] = {
    [CLV_OPTIMIZER_ADAMW] = {"adamw", update_adamw},
    [CLV_OPTIMIZER_SGD] = {"sgd", update_sgd},
    [CLV_OPTIMIZER_LION] = {"lion", update_lion},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

const char *clv_optimizer_name(clv_optimizer optimizer)
{
    return (unsigned)optimizer < OPTIMIZERS ? optimizers[optimizer].name : "unknown";
}

clv_status clv_optimizer_parse(clv_optimizer *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and a name", err));
    for (int i = 0; i < OPTIMIZERS; i++)
        if (strcmp(optimizers[i].name, name) == 0) {
            *out = (clv_optimizer)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "optimizer '%.64s'; valid: adamw, sgd, lion", name);
}

static void update(clv_graph *graph, const updates *u, clv_value parameter, clv_value gradient,
                   const clv_layout *moments)
{
    const update_of its = {.parameter = parameter,
                           .gradient = gradient,
                           .moments = u->build->rules.n_optimizer > 0 ? moments : NULL,
                           .decays = u->how->decay_all || decays(graph, parameter)};
    optimizers[u->how->optimizer].update(graph, u, &its);
}

/* The norm of the gradients in the layouts of their updates, in which each element exists once. */
static clv_value norm_of(clv_graph *graph, const clv_layout *moments, const clv_value *parameters, clv_value *gradients,
                         int n)
{
    for (int i = 0; i < n; i++)
        gradients[i] = clv_constrain_gradient(graph, parameters[i], gradients[i], &moments[i]);
    return clv_global_norm(graph, gradients, n);
}

/* Moves the trainable parameters to the front: all that updates change, or those of adapters. Returns their number. */
static int filter_trainable(const clv_graph *graph, const clv_model_build_options *build, clv_value *parameters, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (build->adapters ? clv_adapters_has_parameter(build->adapters,
                                                         clv_value_name(graph, parameters[i]) + strlen(graph->scope))
                            : !graph->values[parameters[i].id].untrained)
            parameters[kept++] = parameters[i];
    return kept;
}

/* The factor of gradients: NaN, which updates nothing, if the norm or the loss is not finite. */
static clv_value scale_of(clv_graph *graph, clv_value norm, clv_value loss, double clip)
{
    const clv_layout scalar = clv_layout_replicated(0);
    clv_value nothing = clv_scale(graph, clv_cast(graph, clv_constrain(graph, loss, &scalar), CLV_F32), 0);
    return clv_clip_scale(graph, clv_add(graph, norm, nothing), clip != 0 ? clip : DBL_MAX);
}

/* The gradient of a parameter that the loss does not depend on. */
static clv_value zeros_of(clv_graph *graph, clv_value parameter)
{
    clv_type type = clv_graph_type(graph, parameter);
    return clv_fill(graph, type.dtype, type.rank, type.shape, 0);
}

clv_trainable clv_build_trainable(clv_graph *graph, const clv_model_build_options *build)
{
    clv_trainable t = {.n = clv_graph_parameters(graph, NULL, 0)};
    t.parameters = clv_arena_alloc(graph->arena, (size_t)t.n + 1, sizeof *t.parameters);
    t.gradients = clv_arena_alloc(graph->arena, (size_t)t.n + 1, sizeof *t.gradients);
    clv_layout *moments = clv_arena_alloc(graph->arena, (size_t)t.n + 1, sizeof *moments);
    const clv_layout **shards = clv_arena_alloc(graph->arena, (size_t)t.n + 1, sizeof *shards);
    if (!t.parameters || !t.gradients || !moments || !shards) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for %d gradients", t.n);
        return (clv_trainable){0};
    }
    clv_graph_parameters(graph, t.parameters, t.n);
    t.n = filter_trainable(graph, build, t.parameters, t.n);
    const uint32_t axes = clv_axis_rules_fsdp_or_zero_axes(&build->rules);
    for (int i = 0; i < t.n; i++) {
        moments[i] = moments_layout(graph, build, t.parameters[i]);
        shards[i] = is_split_over(&moments[i], axes) ? &moments[i] : NULL;
    }
    t.moments = moments;
    t.shards = shards;
    return t;
}

clv_value clv_build_updates(clv_graph *graph, const clv_model_build_options *build, const clv_trainable *trained,
                            clv_value loss, const clv_update_options *how, bool output_grad_norm)
{
    if ((unsigned)how->optimizer >= OPTIMIZERS) {
        clv_graph_fail(graph, CLV_EINVAL, "optimizer %d; valid: 0 to %d", (int)how->optimizer, OPTIMIZERS - 1);
        return CLV_NONE;
    }
    updates u = {.build = build, .how = how, .lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL), .step = build->step};
    const clv_layout scalar = clv_layout_replicated(0);
    const int n = trained->n;
    clv_value *parameters = trained->parameters, *gradients = trained->gradients;
    if (!trained->has_gradients)
        clv_gradients_widened(graph, loss, CLV_NONE, parameters, n, u.build->f32_gradients, gradients);
    for (int i = 0; i < n; i++)
        gradients[i] = clv_valid(gradients[i]) ? gradients[i] : zeros_of(graph, parameters[i]);
    graph->in_update = true;
    if (output_grad_norm && clv_graph_ok(graph)) {
        clv_value norm = norm_of(graph, trained->moments, parameters, gradients, n);
        clv_output(graph, "grad_norm", norm, &scalar);
        u.scale = scale_of(graph, norm, loss, how->clip);
    }
    for (int i = 0; i < n; i++)
        update(graph, &u, parameters[i], gradients[i], &trained->moments[i]);
    graph->in_update = false;
    return u.scale;
}
