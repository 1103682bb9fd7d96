/* graph.c - graph builder: values, ops, state, scopes, outputs; records the first error. */
#include "graph/graph.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/error.h"
#include "base/text/c_locale.h"
#include "cleave/text.h"
#include "tensor/parse_print.h"

clv_status clv_graph_new(clv_graph **out, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh, __func__, "out and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    clv_graph *graph = calloc(1, sizeof *graph);
    clv_arena *arena = clv_arena_new();
    if (!graph || !arena) {
        free(graph);
        clv_arena_free(arena);
        return clv_fail_memory(err, "a graph", sizeof *graph);
    }
    graph->arena = arena;
    graph->mesh = *mesh;
    graph->scope = "";
    graph->n_values = 1;
    graph->gradient_of = -1;
    *out = graph;
    return CLV_OK;
}

void clv_graph_free(clv_graph *graph)
{
    if (!graph)
        return;
    clv_arena_free(graph->arena);
    free(graph);
}

clv_status clv_graph_status(const clv_graph *graph, clv_error *err)
{
    CLV_TRY(clv_require(graph != NULL, __func__, "a graph", err));
    if (graph->error.code != CLV_OK && err && err->code == CLV_OK)
        *err = graph->error;
    return graph->error.code;
}

/* CLV_ENOMEM stays: a builder may have stopped between two values of one op. */
clv_status clv_graph_clear_error(clv_graph *graph)
{
    CLV_TRY(clv_require(graph != NULL, __func__, "a graph", NULL));
    if (graph->error.code != CLV_ENOMEM)
        graph->error = (clv_error){0};
    return graph->error.code;
}

const clv_mesh *clv_graph_mesh(const clv_graph *graph)
{
    return graph ? &graph->mesh : NULL;
}

bool clv_valid(clv_value value)
{
    return value.id > 0;
}

clv_type clv_graph_type(const clv_graph *graph, clv_value value)
{
    return graph && clv_valid(value) && value.id < graph->n_values ? graph->values[value.id].type : (clv_type){0};
}

clv_value clv_graph_fail(clv_graph *graph, clv_status code, const char *format, ...)
{
    if (!graph)
        return CLV_NONE;
    char text[sizeof graph->error.message];
    va_list args;
    va_start(args, format);
    clv_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clv_fail(&graph->error, code, "%s", text);
    return CLV_NONE;
}

bool clv_graph_require(clv_graph *graph, bool given, const char *call, const char *what)
{
    if (clv_graph_ok(graph) && !given)
        clv_require(false, call, what, &graph->error);
    return clv_graph_ok(graph);
}

/* Whether a name is printable UTF-8 on one line, as it appears in messages, programs and files. */
static bool require_name(clv_graph *graph, const char *what, const char *name)
{
    size_t length = strlen(name);
    if (clv_graph_ok(graph) && clv_printable(NULL, 0, name, length) != length)
        clv_graph_fail(graph, CLV_EINVAL, "%s is named '%s'; valid: UTF-8 without control characters", what, name);
    return clv_graph_ok(graph);
}

bool clv_graph_options_copy_in(clv_graph *graph, void *out, size_t size, size_t first, const void *given,
                               const char *call)
{
    if (clv_graph_ok(graph))
        clv_options_copy_in(out, size, first, given, call, &graph->error);
    return clv_graph_ok(graph);
}

bool clv_graph_require_zeros(clv_graph *graph, const int64_t *reserved, int n, const char *call)
{
    for (int i = 0; clv_graph_ok(graph) && i < n; i++)
        if (reserved[i] != 0)
            clv_graph_fail(graph, CLV_EUNSUPPORTED,
                           "%s: an option that this version of the library does not have is set (reserved[%d])", call,
                           i);
    return clv_graph_ok(graph);
}

bool clv_graph_require_enum(clv_graph *graph, const char *what, int kind, const clv_enum_name *kinds)
{
    char names[256];
    clv_text list = {.out = names, .size = sizeof names};
    for (int i = 0; kinds[i].name; i++) {
        if (kinds[i].value == kind)
            return true;
        clv_text_add(&list, "%s%s", i ? ", " : "", kinds[i].name);
    }
    if (clv_graph_ok(graph))
        clv_graph_fail(graph, CLV_EINVAL, "%s%s: there is no kind %d; valid: %s", graph->scope, what, kind, names);
    return false;
}

clv_layout clv_graph_layout(clv_graph *graph, int rank, const char *text)
{
    clv_layout layout = clv_layout_replicated(rank);
    if (clv_graph_require(graph, text != NULL, __func__, "a text"))
        clv_layout_parse(&layout, text, &graph->mesh, rank, &graph->error);
    return layout;
}

void clv_graph_push_scope(clv_graph *graph, const char *format, ...)
{
    if (!graph || !format) {
        clv_graph_fail(graph, CLV_EINVAL, "clv_graph_push_scope needs a format");
        return;
    }
    va_list args;
    va_start(args, format);
    const char *name = clv_arena_vformat(graph->arena, format, args);
    va_end(args);
    if (name && !require_name(graph, "a scope", name))
        return;
    const char *scope = name ? clv_arena_format(graph->arena, "%s%s.", graph->scope, name) : NULL;
    if (!scope || clv_arena_grow(graph->arena, &graph->outer_scopes, &graph->depth_capacity, graph->depth,
                                 sizeof *graph->outer_scopes) != 0) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for a scope under '%s'", graph->scope);
        return;
    }
    graph->outer_scopes[graph->depth++] = graph->scope;
    graph->scope = scope;
}

void clv_graph_pop_scope(clv_graph *graph)
{
    if (!graph)
        return;
    if (graph->depth > 0)
        graph->scope = graph->outer_scopes[--graph->depth];
    else
        clv_graph_fail(graph, CLV_EINVAL, "clv_graph_pop_scope without a push before it");
}

void clv_begin_block(clv_graph *graph)
{
    if (graph)
        graph->n_blocks += graph->in_block++ == 0;
}

void clv_end_block(clv_graph *graph)
{
    if (!graph)
        return;
    if (graph->in_block > 0)
        graph->in_block--;
    else
        clv_graph_fail(graph, CLV_EINVAL, "clv_end_block without a block that has begun");
}

void clv_graph_set_stage(clv_graph *graph, const char *axis, int stage)
{
    int index;
    clv_layout layout = clv_layout_replicated(0);
    if (!clv_graph_require(graph, axis != NULL || stage < 0, __func__, "an axis"))
        return;
    const int before = graph->stage - 1;
    graph->stage = 0;
    if (stage < 0 || clv_mesh_find(&index, &graph->mesh, axis, &graph->error) != CLV_OK ||
        clv_layout_set_stages(&layout, &graph->mesh, index, stage < CLV_MAX_STAGES ? 1u << stage : 0, &graph->error) !=
            CLV_OK)
        return;
    if (graph->stage_axis > 0 && graph->stage_axis != index + 1) {
        clv_graph_fail(graph, CLV_EAXIS, "a stage of axis '%s'; the graph has stages of axis '%s'", axis,
                       graph->mesh.axis[graph->stage_axis - 1].name);
        return;
    }
    if (graph->mesh.axis[index].size == 1)
        return;
    graph->stage_axis = index + 1;
    graph->stage = stage + 1;
    graph->returns_to_stage = graph->returns_to_stage || stage < before;
}

/* ---- types ---- */

int clv_type_print(char *out, size_t size, const clv_type *type)
{
    char text[CLV_TYPE_TEXT];
    if (!type || type->rank < 0 || type->rank > CLV_MAX_RANK)
        return snprintf(out, out ? size : 0, "%s", "");
    int n = snprintf(text, sizeof text, "%s[", clv_dtype_name(type->dtype));
    for (int d = 0; d < type->rank; d++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", d ? "," : "", (long long)type->shape[d]);
    snprintf(text + n, sizeof text - (size_t)n, "]");
    return snprintf(out, out ? size : 0, "%s", text);
}

bool clv_type_equal(const clv_type *a, const clv_type *b)
{
    if (!a || !b || a->dtype != b->dtype || a->rank != b->rank || a->rank > CLV_MAX_RANK)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

int64_t clv_view_elems(const clv_view *view)
{
    if (!view || view->rank < 0 || view->rank > CLV_MAX_RANK)
        return 0;
    int64_t elems = 1;
    for (int d = 0; d < view->rank; d++)
        elems *= view->shape[d];
    return elems;
}

size_t clv_view_byte_size(const clv_view *view)
{
    return view ? (size_t)clv_view_elems(view) * clv_dtype_size(view->dtype) : 0;
}

int64_t clv_type_elems(const clv_type *type)
{
    int64_t elems = 1;
    bool fits = true;
    if (!type || type->rank < 0 || type->rank > CLV_MAX_RANK)
        return 0;
    for (int d = 0; d < type->rank; d++) {
        if (type->shape[d] <= 0)
            return 0;
        fits = fits && !__builtin_mul_overflow(elems, type->shape[d], &elems);
    }
    return fits ? elems : INT64_MAX;
}

static clv_status check_type(const clv_type *type, clv_error *err)
{
    if (type->rank < 0 || type->rank > CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT, "a tensor of %d dimensions; valid: 0 to %d", type->rank, CLV_MAX_RANK);
    return clv_shape_check(type->shape, type->rank, type->dtype, err);
}

/* ---- values and ops ---- */

static clv_value add_value(clv_graph *graph, const clv_value_info *info)
{
    if (clv_arena_grow(graph->arena, &graph->values, &graph->value_capacity, graph->n_values, sizeof *info) != 0)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for value %d", graph->n_values);
    graph->values[graph->n_values] = *info;
    return (clv_value){graph->n_values++};
}

/* ---- inputs and state by name ---- */

/* The slot that holds a name, or the empty one where it belongs. n_slots is a power of two. */
static int *slot_of(const clv_graph *graph, const char *name)
{
    uint32_t mask = (uint32_t)graph->n_slots - 1;
    for (uint32_t at = clv_hash_text(name) & mask;; at = (at + 1) & mask)
        if (graph->slots[at] == 0 || strcmp(graph->values[graph->slots[at]].name, name) == 0)
            return &graph->slots[at];
}

/* Room for one more, at most half full. */
static bool grow_names(clv_graph *graph)
{
    if (2 * (graph->n_names + 1) <= graph->n_slots)
        return true;
    int n = graph->n_slots ? 2 * graph->n_slots : 64, old_n = graph->n_slots;
    int *slots = clv_arena_alloc(graph->arena, (size_t)n, sizeof *slots), *old = graph->slots;
    if (!slots)
        return false;
    graph->slots = slots;
    graph->n_slots = n;
    for (int i = 0; i < old_n; i++)
        if (old[i] > 0)
            *slot_of(graph, graph->values[old[i]].name) = old[i];
    return true;
}

clv_value clv_graph_find_input_or_state(const clv_graph *graph, const char *name)
{
    return (clv_value){graph->n_slots > 0 ? *slot_of(graph, name) : 0};
}

clv_value clv_graph_find_input_or_state_in_scope(clv_graph *graph, const char *name)
{
    const char *full = clv_arena_format(graph->arena, "%s%s", graph->scope, name);
    return full ? clv_graph_find_input_or_state(graph, full)
                : clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", name);
}

/* An input or state: a named value that no op makes. */
static clv_value add_named(clv_graph *graph, clv_value_source source, const char *name, clv_value_info *info,
                           const int64_t *shape, const clv_layout *layout)
{
    if (!clv_graph_ok(graph))
        return CLV_NONE;
    if (!name || !name[0] || (!shape && info->type.rank > 0))
        return clv_graph_fail(graph, CLV_EINVAL, "%san input or state needs a name and a shape", graph->scope);
    if (!require_name(graph, source == CLV_FROM_STATE ? "state" : "an input", name))
        return CLV_NONE;
    info->source = source;
    info->op = -1;
    if (info->type.rank >= 0 && info->type.rank <= CLV_MAX_RANK && info->type.rank > 0)
        memcpy(info->type.shape, shape, (size_t)info->type.rank * sizeof *shape);
    info->name = clv_arena_format(graph->arena, "%s%s", source == CLV_FROM_STATE ? graph->scope : "", name);
    if (!info->name)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", name);
    clv_error why = {0};
    if (check_type(&info->type, &why) != CLV_OK)
        return clv_graph_fail(graph, why.code, "%s: %s", info->name, why.message);
    if (!grow_names(graph))
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name '%s'", info->name);
    if (*slot_of(graph, info->name) > 0)
        return clv_graph_fail(graph, CLV_EEXIST, "an input or state named '%s' exists already", info->name);
    info->stated = layout != NULL;
    info->layout = layout ? *layout : clv_layout_replicated(info->type.rank);
    if (info->layout.rank != info->type.rank)
        return clv_graph_fail(graph, CLV_ESHAPE, "%s: its layout is for %d dimensions, the tensor has %d", info->name,
                              info->layout.rank, info->type.rank);
    if (clv_layout_check(&info->layout, &graph->mesh, info->type.shape, &why) != CLV_OK)
        return clv_graph_fail(graph, why.code, "%s: %s", info->name, why.message);
    if (clv_layout_is_partial(&info->layout))
        return clv_graph_fail(graph, CLV_EINVAL, "%s: inputs and state cannot be stated partial", info->name);
    int *slot = slot_of(graph, info->name);
    clv_value made = add_value(graph, info);
    if (clv_valid(made)) {
        *slot = made.id;
        graph->n_names++;
    }
    return made;
}

clv_value clv_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                    const clv_layout *layout)
{
    clv_value_info info = {.type = {.dtype = dtype, .rank = rank}};
    return add_named(graph, CLV_FROM_INPUT, name, &info, shape, layout);
}

clv_value clv_state_with_role(clv_graph *graph, clv_state_role role, const char *name, clv_dtype dtype, int rank,
                              const int64_t *shape, const clv_layout *layout, clv_init init)
{
    static const clv_enum_name kinds[] = {CLV_ENUM_NAME(CLV_INIT_ZEROS),   CLV_ENUM_NAME(CLV_INIT_ONES),
                                          CLV_ENUM_NAME(CLV_INIT_NORMAL),  CLV_ENUM_NAME(CLV_INIT_LECUN_NORMAL),
                                          CLV_ENUM_NAME(CLV_INIT_UNIFORM), {0}};
    static const clv_enum_name roles[] = {CLV_ENUM_NAME(CLV_ROLE_PARAMETER),
                                          CLV_ENUM_NAME(CLV_ROLE_OPTIMIZER),
                                          CLV_ENUM_NAME(CLV_ROLE_CACHE),
                                          CLV_ENUM_NAME(CLV_ROLE_BUFFER),
                                          {0}};
    if (!clv_graph_require_enum(graph, name ? name : "state", (int)init.kind, kinds) ||
        !clv_graph_require_enum(graph, name ? name : "state", (int)role, roles))
        return CLV_NONE;
    if (clv_graph_ok(graph) && !isfinite(init.scale))
        return clv_graph_fail(graph, CLV_EINVAL, "%s%s: an init of scale %g; valid: finite", graph->scope,
                              name ? name : "state", init.scale);
    if (clv_graph_ok(graph) && role == CLV_ROLE_PARAMETER && !clv_dtype_is_float(dtype))
        return clv_graph_fail(
            graph, CLV_EDTYPE,
            "%s%s: a parameter of %s; valid: f32, bf16, f64, f16, or another role (clv_state_with_role)", graph->scope,
            name ? name : "state", clv_dtype_name(dtype));
    if (clv_graph_ok(graph) && graph->reuses_state && clv_valid(clv_graph_find_input_or_state_in_scope(graph, name)))
        return clv_graph_find_input_or_state_in_scope(graph, name);
    clv_value_info info = {.type = {.dtype = dtype, .rank = rank}, .init = init, .role = role};
    clv_value value = add_named(graph, CLV_FROM_STATE, name, &info, shape, layout);
    if (clv_valid(value))
        graph->values[value.id].stated = true;
    return value;
}

clv_value clv_state(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                    const clv_layout *layout, clv_init init)
{
    return clv_state_with_role(graph, CLV_ROLE_PARAMETER, name, dtype, rank, shape, layout, init);
}

void clv_keep_stationary(clv_graph *graph, clv_value value, const char *axis)
{
    if (!clv_graph_require(graph, axis != NULL, __func__, "an axis"))
        return;
    int index;
    if (clv_graph_ok(graph) && value.id >= graph->n_values)
        clv_graph_fail(graph, CLV_EINVAL, "clv_keep_stationary: the value is none of this graph");
    if (clv_graph_ok(graph) && clv_valid(value) && clv_mesh_find(&index, &graph->mesh, axis, &graph->error) == CLV_OK)
        graph->values[value.id].stationary_axes |= 1u << index;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_annotation(const clv_value_annotation *a, const clv_value_annotation *b)
{
    bool same = a && same_text(a->what, b->what) && same_text(a->rules, b->rules);
    for (int d = 0; same && d < CLV_MAX_RANK; d++)
        same = same_text(a->dim[d], b->dim[d]);
    return same;
}

static bool keep_text(clv_graph *graph, const char **text)
{
    if (*text)
        *text = clv_arena_string(graph->arena, *text);
    return *text != NULL;
}

/* Copies an annotation; consecutive equal ones share a copy, as a layer annotates many values alike. */
static const clv_value_annotation *keep_annotation(clv_graph *graph, const clv_value_annotation *annotation)
{
    if (same_annotation(graph->last_annotation, annotation))
        return graph->last_annotation;
    clv_value_annotation *kept = clv_arena_copy(graph->arena, annotation, sizeof *annotation);
    bool ok =
        kept && (!kept->what || keep_text(graph, &kept->what)) && (!kept->rules || keep_text(graph, &kept->rules));
    for (int d = 0; ok && d < CLV_MAX_RANK; d++)
        ok = !kept->dim[d] || keep_text(graph, &kept->dim[d]);
    if (!ok)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the names of dimensions");
    else
        graph->last_annotation = kept;
    return ok ? kept : NULL;
}

void clv_graph_annotate(clv_graph *graph, clv_value value, const clv_value_annotation *annotation)
{
    if (clv_graph_ok(graph) && clv_valid(value))
        graph->values[value.id].annotation = keep_annotation(graph, annotation);
}

void clv_name_dims(clv_graph *graph, clv_value value, const char *const *names)
{
    clv_value_annotation annotation = {0};
    if (!clv_graph_require(graph, names != NULL, __func__, "names") || !clv_valid(value))
        return;
    if (value.id >= graph->n_values) {
        clv_graph_fail(graph, CLV_EINVAL, "clv_name_dims: the value is none of this graph");
        return;
    }
    if (graph->values[value.id].annotation)
        annotation = *graph->values[value.id].annotation;
    for (int d = 0; d < graph->values[value.id].type.rank; d++) {
        if (names[d] && !require_name(graph, "a dimension", names[d]))
            return;
        annotation.dim[d] = names[d];
    }
    clv_graph_annotate(graph, value, &annotation);
}

const char *clv_graph_name_of(const clv_graph *graph, int value)
{
    const clv_value_info *info = &graph->values[value];
    return info->source == CLV_FROM_OP ? graph->ops[info->op].name : info->name;
}

clv_value clv_graph_unconstrained(const clv_graph *graph, clv_value value)
{
    while (clv_valid(value) && graph->values[value.id].source == CLV_FROM_OP &&
           clv_op_constraint_of(&graph->ops[graph->values[value.id].op]))
        value.id = graph->ops[graph->values[value.id].op].in[0];
    return value;
}

int clv_graph_parameters(const clv_graph *graph, clv_value *out, int room)
{
    if (!graph)
        return 0;
    room = out ? room : 0;
    int n = 0;
    for (int v = 1; v < graph->n_values; v++) {
        const clv_value_info *info = &graph->values[v];
        if (info->source != CLV_FROM_STATE || info->role != CLV_ROLE_PARAMETER)
            continue;
        if (n < room)
            out[n] = (clv_value){v};
        n++;
    }
    return n;
}

const char *clv_value_name(const clv_graph *graph, clv_value value)
{
    return graph && clv_valid(value) && value.id < graph->n_values ? graph->values[value.id].name : NULL;
}

clv_layout clv_value_layout(const clv_graph *graph, clv_value value)
{
    if (!graph || !clv_valid(value) || value.id >= graph->n_values)
        return clv_layout_replicated(0);
    const clv_value_info *info = &graph->values[value.id];
    return info->stated ? info->layout : clv_layout_replicated(info->type.rank);
}

void clv_assign(clv_graph *graph, clv_value state, clv_value value)
{
    if (!clv_graph_ok(graph) || !clv_valid(state) || !clv_valid(value))
        return;
    if (state.id >= graph->n_values || value.id >= graph->n_values) {
        clv_graph_fail(graph, CLV_EINVAL, "clv_assign: a value is none of this graph");
        return;
    }
    clv_value_info *info = &graph->values[state.id];
    if (info->source != CLV_FROM_STATE)
        clv_graph_fail(graph, CLV_EINVAL, "clv_assign: the target is not state");
    else if (info->assigned > 0)
        clv_graph_fail(graph, CLV_EINVAL, "state '%s' is assigned twice", info->name);
    else if (!clv_type_equal(&info->type, &graph->values[value.id].type))
        clv_graph_fail(graph, CLV_ESHAPE, "state '%s' is assigned a value of another shape or dtype", info->name);
    else
        info->assigned = value.id;
}

void clv_output(clv_graph *graph, const char *name, clv_value value, const clv_layout *layout)
{
    if (!clv_graph_ok(graph) || !clv_valid(value))
        return;
    if (!name || !name[0] || value.id >= graph->n_values) {
        clv_graph_fail(graph, CLV_EINVAL, "an output needs a name and a value of this graph");
        return;
    }
    if (!require_name(graph, "an output", name))
        return;
    clv_graph_output output = {.value = value.id, .stated = layout != NULL};
    output.name = clv_arena_string(graph->arena, name);
    if (layout)
        output.layout = *layout;
    for (int i = 0; i < graph->n_outputs; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) {
            clv_graph_fail(graph, CLV_EEXIST, "an output named '%s' exists already", name);
            return;
        }
    clv_error why = {0};
    if (layout && (layout->rank != graph->values[value.id].type.rank ||
                   clv_layout_check(layout, &graph->mesh, graph->values[value.id].type.shape, &why) != CLV_OK)) {
        clv_graph_fail(graph, CLV_ESHAPE, "output '%s': its layout does not fit the tensor %s", name, why.message);
        return;
    }
    if (layout && clv_layout_is_partial(layout)) {
        clv_graph_fail(
            graph, CLV_EINVAL,
            "output '%s' cannot be stated partial: a rank would give its addend, not the value; state a layout "
            "without '+ sum' or '+ max'",
            name);
        return;
    }
    if (!output.name ||
        clv_arena_grow(graph->arena, &graph->outputs, &graph->output_capacity, graph->n_outputs, sizeof output) != 0) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for output '%s'", name);
        return;
    }
    graph->outputs[graph->n_outputs++] = output;
}

/* ---- ops ---- */

const char *clv_op_scoped_name(const clv_op *op)
{
    return op ? op->name : NULL;
}

const void *clv_op_attrs(const clv_op *op)
{
    return op ? op->attrs : NULL;
}

int clv_op_operand_count(const clv_op *op)
{
    return op ? op->n_in : 0;
}

clv_value clv_op_operand(const clv_op *op, int i)
{
    return (clv_value){op && i >= 0 && i < op->n_in ? op->in[i] : 0};
}

clv_value clv_op_result(const clv_op *op, int i)
{
    return (clv_value){op && i >= 0 && i < op->n_out ? op->out[i] : 0};
}

/* Gathers operand types; false when an operand is missing (a failed builder before, or too few operands). */
static bool operand_types(clv_graph *graph, const clv_op_def *def, const clv_value *in, int n_in, clv_type *types)
{
    if (n_in > def->max_in || n_in > CLV_MAX_IN) {
        clv_graph_fail(graph, CLV_EINVAL, "%s%s takes at most %d operands, %d given", graph->scope, def->name,
                       def->max_in, n_in);
        return false;
    }
    for (int i = 0; i < n_in; i++) {
        types[i] = clv_graph_type(graph, in[i]);
        if (!clv_valid(in[i]) && i < def->min_in) {
            clv_graph_fail(graph, CLV_EINVAL, "%s%s: operand %d is missing", graph->scope, def->name, i);
            return false;
        }
        if (in[i].id >= graph->n_values) {
            clv_graph_fail(graph, CLV_EINVAL, "%s%s: operand %d is not a value of this graph", graph->scope, def->name,
                           i);
            return false;
        }
    }
    if (n_in < def->min_in)
        clv_graph_fail(graph, CLV_EINVAL, "%s%s takes at least %d operands, %d given", graph->scope, def->name,
                       def->min_in, n_in);
    return clv_graph_ok(graph);
}

void clv_graph_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                    clv_value *out)
{
    for (int o = 0; o < def->n_out; o++)
        out[o] = CLV_NONE;
    clv_type types[CLV_MAX_IN] = {0};
    if (!clv_graph_ok(graph) || !operand_types(graph, def, in, n_in, types))
        return;
    const int of = graph->gradient_of;
    clv_op op = {.id = graph->n_ops,
                 .def = def,
                 .microbatch = graph->microbatch,
                 .stage = of >= 0              ? graph->ops[of].stage
                          : graph->in_backward ? 0
                                               : graph->stage,
                 .backward = graph->in_backward,
                 .update = graph->in_update && !graph->in_backward,
                 .gradient_of = graph->gradient_of,
                 .block = graph->in_block > 0 && !graph->in_backward ? graph->n_blocks : 0,
                 .n_in = n_in,
                 .n_out = def->n_out};
    op.attrs = attrs ? clv_arena_copy(graph->arena, attrs, def->attrs_size) : NULL;
    op.name = clv_arena_format(graph->arena, "%s%s", graph->scope, def->name);
    if (!op.name || (attrs && !op.attrs) ||
        clv_arena_grow(graph->arena, &graph->ops, &graph->op_capacity, graph->n_ops, sizeof op) != 0) {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for op %s", def->name);
        return;
    }
    for (int i = 0; i < n_in; i++)
        op.in[i] = in[i].id;
    const clv_dtype unstated = (clv_dtype)INT_MIN;
    clv_type results[CLV_MAX_OUT] = {0};
    clv_error why = {0};
    for (int o = 0; o < def->n_out; o++)
        results[o].dtype = unstated;
    clv_status status = clv_check_callback_status(&why, def->shape(&op, types, results, &why), "its shape()");
    for (int o = 0; status == CLV_OK && o < def->n_out; o++)
        status = results[o].dtype == unstated ? clv_fail(&why, CLV_EINVAL, "its shape() states no type of result %d", o)
                                              : check_type(&results[o], &why);
    if (status != CLV_OK) {
        clv_graph_fail(graph, status, "%s: %s", op.name, why.message[0] ? why.message : clv_status_text(status));
        return;
    }
    for (int o = 0; o < def->n_out; o++) {
        clv_value_info info = {.type = results[o], .source = CLV_FROM_OP, .op = op.id};
        out[o] = add_value(graph, &info);
        op.out[o] = out[o].id;
    }
    if (clv_graph_ok(graph))
        graph->ops[graph->n_ops++] = op;
}

clv_value clv_graph_emit_one(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in)
{
    clv_value out[CLV_MAX_OUT];
    clv_graph_emit(graph, def, attrs, in, n_in, out);
    return out[0];
}
