/* jax_format.c - layouts as a JAX mesh with PartitionSpecs, and rules from them.
 *
 *   {"mesh": {"data": 2, "model": 4},
 *    "specs": {"model.layers.*.self_attn.q_proj.weight": ["model", null], ...},
 *    "views": {...}        shapes of fused tensors, whose specs are those of their parts
 *    "optimizer": {...}    specs of moments, where they differ
 *    "inputs": {"ids": ["data", null]},
 *    "activations": {"residual": ["data", "model", null], "logits": ["data", null, "model"]}}
 */
#include <stdio.h>

#include "graph/graph.h"
#include "models/formats/formats.h"

static const char before[] =
    "# Layouts as cleave exports them: a mesh, and a PartitionSpec for each tensor by its name (* is any layer).\n"
    "import fnmatch, json\n"
    "import jax, numpy\n"
    "from jax.sharding import Mesh, NamedSharding, PartitionSpec\n"
    "\n";
static const char behind[] =
    "\n"
    "def make_mesh(devices=None):\n"
    "    sizes = tuple(LAYOUT[\"mesh\"].values())\n"
    "    devices = jax.devices() if devices is None else devices\n"
    "    return Mesh(numpy.array(devices)[: numpy.prod(sizes)].reshape(sizes), tuple(LAYOUT[\"mesh\"]))\n"
    "\n"
    "def matches(name, pattern):\n"
    "    return name == pattern or fnmatch.fnmatchcase(name, pattern.replace(\"[\", \"[[]\"))\n"
    "\n"
    "def spec(name, kind=\"specs\"):\n"
    "    \"\"\"Of a parameter; kind: specs, optimizer (of its moments), inputs, activations.\"\"\"\n"
    "    for pattern, axes in LAYOUT.get(kind, {}).items():\n"
    "        if matches(name, pattern):\n"
    "            return PartitionSpec(*[tuple(a) if isinstance(a, list) else a for a in axes])\n"
    "    return spec(name) if kind == \"optimizer\" else PartitionSpec()\n"
    "\n"
    "def view(name, shape):\n"
    "    \"\"\"The shape that a parameter's spec is for: its own, or of a fused one that of its parts.\"\"\"\n"
    "    return next((tuple(v) for p, v in LAYOUT[\"views\"].items() if matches(name, p)), shape)\n"
    "\n"
    "def sharding(mesh, name, kind=\"specs\"):\n"
    "    return NamedSharding(mesh, spec(name, kind))\n";

/* ---- writing ---- */

/* Whether each stored dimension is split by the first of its parts alone. */
static bool fits_stored(const clv_format_tensor *t, const clv_layout *layout)
{
    const clv_subaxis *unused;
    for (int d = 1; d < t->rank; d++)
        if (t->part[d] == t->part[d - 1] && clv_layout_axes(&unused, layout, d) > 0)
            return false;
    return true;
}

/* The spec of the stored tensor, or of its view. */
static clv_status spec_of(json_t **out, const clv_format_tensor *t, const clv_layout *layout, bool viewed,
                          const clv_mesh *mesh, clv_error *err)
{
    clv_layout stored = clv_layout_replicated(t->stored_rank);
    if (viewed)
        return clv_format_spec(out, t->name, t->rank, t->shape, layout, mesh, err);
    for (int d = 0; d < t->rank; d++) {
        const clv_subaxis *subs;
        const int n = clv_layout_axes(&subs, layout, d);
        if (n > 0 && t->shape[d] % clv_layout_block_count(layout, d) != 0)
            return clv_format_spec(out, t->name, t->rank, t->shape, layout, mesh, err); /* which says why not */
        if (n > 0)
            CLV_TRY(clv_layout_set_dim(&stored, mesh, t->part[d], subs, n, 1, err));
    }
    return clv_format_spec(out, t->name, t->stored_rank, t->stored, &stored, mesh, err);
}

static clv_status put_tensor(json_t *specs, json_t *views, json_t *optimizer, const clv_format_tensor *t,
                             const clv_mesh *mesh, clv_error *err)
{
    const bool viewed = !fits_stored(t, &t->layout) || !fits_stored(t, &t->optimizer);
    json_t *spec;
    CLV_TRY(spec_of(&spec, t, &t->layout, viewed, mesh, err));
    json_object_set_new(specs, t->name, spec);
    if (viewed) {
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->shape[d]));
        json_object_set_new(views, t->name, shape);
    }
    if (clv_layout_equal(&t->layout, &t->optimizer))
        return CLV_OK;
    CLV_TRY(spec_of(&spec, t, &t->optimizer, viewed, mesh, err));
    json_object_set_new(optimizer, t->name, spec);
    return CLV_OK;
}

/* Adds the spec of an activation, whose sizes are not checked: a batch may be any. */
static clv_status put_activation(json_t *to, const char *name, const clv_format_input *in, int rank,
                                 const clv_logical_axis *names, clv_error *err)
{
    const clv_mesh *mesh = in->plan->mesh;
    const int64_t zeros[CLV_MAX_RANK] = {0};
    clv_layout layout;
    json_t *spec;
    CLV_TRY(clv_axis_rules_layout(&layout, in->plan->rules, mesh, rank, names, err));
    CLV_TRY(clv_format_spec(&spec, name, rank, zeros, &layout, mesh, err));
    json_object_set_new(to, name, spec);
    return CLV_OK;
}

static clv_status put_activations(json_t *inputs, json_t *activations, const clv_format_input *in, clv_error *err)
{
    CLV_TRY(put_activation(inputs, "ids", in, 2, (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED}, err));
    CLV_TRY(put_activation(activations, "residual", in, 3, (clv_logical_axis[]){CLV_BATCH, CLV_SEQ, CLV_EMBED}, err));
    CLV_TRY(put_activation(activations, "heads", in, 4,
                           (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED, CLV_HEADS, CLV_UNNAMED}, err));
    CLV_TRY(put_activation(activations, "mlp", in, 3, (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED, CLV_MLP}, err));
    return put_activation(activations, "logits", in, 3, (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED, CLV_VOCAB}, err);
}

clv_status clv_jax_write(char **out, const clv_format_input *in, clv_error *err)
{
    json_t *specs = json_object(), *views = json_object(), *optimizer = json_object(), *inputs = json_object(),
           *activations = json_object();
    clv_status status = put_activations(inputs, activations, in, err);
    for (int i = 0; status == CLV_OK && i < in->model->n; i++)
        status = put_tensor(specs, views, optimizer, &in->model->tensors[i], in->plan->mesh, err);
    json_t *document =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "mesh", clv_format_mesh(in->plan->mesh), "specs", specs, "views",
                  views, "optimizer", optimizer, "inputs", inputs, "activations", activations);
    if (status == CLV_OK)
        return clv_format_python(out, before, document, behind, err);
    json_decref(document);
    return status;
}

clv_status clv_jax_write_tensors(char **out, const clv_graph *graph, clv_error *err)
{
    json_t *specs = json_object(), *spec;
    clv_status status = CLV_OK;
    for (int v = 1; status == CLV_OK && v < graph->n_values; v++) {
        const clv_value_info *info = &graph->values[v];
        if (info->source == CLV_FROM_OP || !info->stated)
            continue;
        status =
            clv_format_spec(&spec, info->name, info->type.rank, info->type.shape, &info->layout, &graph->mesh, err);
        if (status == CLV_OK)
            json_object_set_new(specs, info->name, spec);
    }
    json_t *document = json_pack("{s:o, s:o, s:{}}", "mesh", clv_format_mesh(&graph->mesh), "specs", specs, "views");
    if (status == CLV_OK)
        return clv_format_python(out, before, document, behind, err);
    json_decref(document);
    return status;
}

/* ---- reading ---- */

/* One dimension of a spec: null, an axis, or a list of axes. */
static clv_status read_axes(int *axis, int *n, const json_t *entry, const clv_mesh *mesh, const char *name,
                            clv_error *err)
{
    const size_t count = json_is_array(entry) ? json_array_size(entry) : !json_is_null(entry);
    clv_error why = {0};
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(entry) ? json_array_get(entry, i) : entry;
        if (!json_is_string(one) || *n == CLV_MAX_RULE_AXES)
            return clv_fail(err, CLV_EFORMAT, "%s: a spec has null, an axis or a list of axes for each dimension",
                            name);
        const clv_status status =
            clv_axis_rules_append_axis(axis, n, mesh, json_string_value(one), (int)json_string_length(one), &why);
        if (status != CLV_OK)
            return clv_fail(err, status, "%s: %s", name, why.message);
    }
    return CLV_OK;
}

/* A spec as a layout of these dimensions, of which later ones may be left out. */
static clv_status read_spec(clv_layout *out, const json_t *spec, int rank, const clv_mesh *mesh, const char *name,
                            clv_error *err)
{
    clv_subaxis subs[CLV_MAX_RULE_AXES];
    int axis[CLV_MAX_RULE_AXES], n;
    clv_error why = {0};
    *out = clv_layout_replicated(rank);
    if (!json_is_array(spec) || json_array_size(spec) > (size_t)rank)
        return clv_fail(err, CLV_EFORMAT, "%s: its spec must be a list for at most %d dimensions", name, rank);
    for (size_t d = 0; d < json_array_size(spec); d++) {
        CLV_TRY(read_axes(axis, &n, json_array_get(spec, d), mesh, name, err));
        for (int i = 0; i < n; i++)
            subs[i] = clv_mesh_whole_axis(mesh, axis[i]);
        if (clv_layout_set_dim(out, mesh, (int)d, subs, n, 1, &why) != CLV_OK)
            return clv_fail(err, why.code, "%s: dimension %d: %s", name, (int)d, why.message);
    }
    return CLV_OK;
}

/* The same of a parameter, in its view: what splits a stored dimension splits the first of its parts. */
static clv_status read_parameter_spec(clv_layout *out, const json_t *spec, const clv_format_tensor *t, bool viewed,
                                      const clv_mesh *mesh, clv_error *err)
{
    clv_layout stored;
    if (viewed)
        return read_spec(out, spec, t->rank, mesh, t->name, err);
    CLV_TRY(read_spec(&stored, spec, t->stored_rank, mesh, t->name, err));
    *out = clv_layout_replicated(t->rank);
    for (int d = 0; d < t->rank; d++) {
        const clv_subaxis *subs;
        const int n = d == 0 || t->part[d] != t->part[d - 1] ? clv_layout_axes(&subs, &stored, t->part[d]) : 0;
        if (n > 0)
            CLV_TRY(clv_layout_set_dim(out, mesh, d, subs, n, 1, err));
    }
    return CLV_OK;
}

/* Notes what splits each named dimension. */
static clv_status note_layout(clv_axis_rules *rules, const clv_layout *layout, const clv_logical_axis *names,
                              const char *tensor, const clv_mesh *mesh, clv_error *err)
{
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *subs;
        int axis[CLV_MAX_RULE_AXES];
        const int n = clv_layout_axes(&subs, layout, d);
        if (n > 0 && !names[d])
            return clv_fail(err, CLV_EUNSUPPORTED, "%s: dimension %d is split, which no rule does", tensor, d);
        for (int i = 0; i < n; i++)
            axis[i] = subs[i].axis;
        if (n > 0)
            CLV_TRY(clv_format_note(rules, names[d], axis, n, tensor, mesh, err));
    }
    return CLV_OK;
}

/* Axes by which moments are split and their parameter is not. */
static void note_optimizer(clv_axis_rules *rules, const clv_layout *moments, const clv_layout *parameter,
                           const clv_mesh *mesh)
{
    for (int a = 0; a < mesh->n_axes; a++) {
        const clv_subaxis whole = clv_mesh_whole_axis(mesh, a);
        bool known = false;
        for (int i = 0; i < rules->n_optimizer; i++)
            known = known || rules->optimizer[i] == a;
        if (!known && clv_layout_uses_subaxis(moments, whole) && !clv_layout_uses_subaxis(parameter, whole))
            rules->optimizer[rules->n_optimizer++] = a;
    }
}

static clv_status check_names(const json_t *specs, const char *key, const clv_format_model *model, const char *where,
                              clv_error *err)
{
    const char *name;
    const json_t *spec;
    json_object_foreach((json_t *)specs, name, spec) if (!clv_format_find(model, name)) return clv_fail(
        err, CLV_EINVAL, "%s: \"%s\": the model has no parameter '%.90s'; the first is '%s'", where, key, name,
        model->tensors[0].name);
    return CLV_OK;
}

/* The spec of a parameter, under its pattern or a layer's name. */
static const json_t *find_spec(const json_t *specs, const clv_format_tensor *t, const clv_format_model *model)
{
    const char *name;
    const json_t *spec;
    json_object_foreach((json_t *)specs, name, spec) if (clv_format_find(model, name) == t) return spec;
    return NULL;
}

/* Each layer's spec is the first one's. */
static clv_status check_layers(const json_t *specs, const clv_format_model *model, clv_error *err)
{
    const char *name;
    const json_t *spec;
    json_object_foreach((json_t *)specs, name, spec) if (
        !json_equal(find_spec(specs, clv_format_find(model, name), model),
                    spec)) return clv_fail(err, CLV_EUNSUPPORTED,
                                           "%.90s: its spec differs from that of other layers; rules have one", name);
    return CLV_OK;
}

static const struct {
    const char *key, *name;
    int rank;
    clv_logical_axis names[4];
} activations[] = {{"inputs", "ids", 2, {CLV_BATCH, CLV_SEQ}},
                   {"activations", "residual", 3, {CLV_BATCH, CLV_SEQ, CLV_EMBED}},
                   {"activations", "heads", 4, {CLV_BATCH, CLV_SEQ, CLV_HEADS, CLV_HEAD_DIM}},
                   {"activations", "mlp", 3, {CLV_BATCH, CLV_SEQ, CLV_MLP}},
                   {"activations", "logits", 3, {CLV_BATCH, CLV_SEQ, CLV_VOCAB}}};

static clv_status read_activations(clv_axis_rules *rules, const clv_mesh *mesh, const json_t *document, clv_error *err)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        const json_t *spec = json_object_get(json_object_get(document, activations[i].key), activations[i].name);
        clv_layout layout;
        if (!spec)
            continue;
        CLV_TRY(read_spec(&layout, spec, activations[i].rank, mesh, activations[i].name, err));
        CLV_TRY(note_layout(rules, &layout, activations[i].names, activations[i].name, mesh, err));
    }
    return CLV_OK;
}

/* Whether the rules give each parameter the layout that it has. */
static clv_status verify(const clv_axis_rules *rules, const clv_mesh *mesh, const clv_layout *layouts,
                         const clv_format_model *model, clv_error *err)
{
    char have[CLV_LAYOUT_TEXT], give[CLV_LAYOUT_TEXT];
    for (int i = 0; i < model->n; i++) {
        const clv_format_tensor *t = &model->tensors[i];
        clv_layout by_rules;
        CLV_TRY(clv_axis_rules_layout(&by_rules, rules, mesh, t->rank, t->names, err));
        if (clv_layout_equal(&by_rules, &layouts[i]))
            continue;
        clv_layout_print(have, sizeof have, &layouts[i], mesh);
        clv_layout_print(give, sizeof give, &by_rules, mesh);
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s is split %.60s; rules that fit the other parameters would split it %.60s, so no rules give "
                        "this layout",
                        t->name, have, give);
    }
    return CLV_OK;
}

/* Queries, keys and values in one tensor are split alike. */
static clv_status note_fused(clv_axis_rules *rules, const clv_format_tensor *t, const clv_mesh *mesh, clv_error *err)
{
    const int *axis;
    const int n = t->row->of > 0 ? clv_format_axes(&axis, rules, CLV_HEADS) : 0;
    return n ? clv_format_note(rules, CLV_KV_HEADS, axis, n, t->name, mesh, err) : CLV_OK;
}

clv_status clv_jax_read(clv_axis_rules *out, const clv_mesh *mesh, const json_t *document,
                        const clv_format_model *model, const char *where, clv_error *err)
{
    const json_t *specs = json_object_get(document, "specs"), *moments = json_object_get(document, "optimizer"),
                 *views = json_object_get(document, "views");
    CLV_FREED clv_layout *layouts = calloc((size_t)model->n + 1, sizeof *layouts);
    clv_axis_rules rules = {0};
    if (!layouts)
        return clv_fail_memory(err, "layouts", (size_t)model->n * sizeof *layouts);
    CLV_TRY(clv_json_check_object(specs, where, err));
    CLV_TRY(check_names(specs, "specs", model, where, err));
    CLV_TRY(check_names(moments, "optimizer", model, where, err));
    CLV_TRY(check_names(views, "views", model, where, err));
    CLV_TRY(clv_format_check_keys(json_object_get(document, "inputs"), "\"inputs\"", "ids", where, err));
    CLV_TRY(clv_format_check_keys(json_object_get(document, "activations"), "\"activations\"",
                                  "residual, heads, mlp, logits", where, err));
    CLV_TRY(check_layers(specs, model, err));
    for (int i = 0; i < model->n; i++) {
        const clv_format_tensor *t = &model->tensors[i];
        const json_t *spec = find_spec(specs, t, model), *of_moments = find_spec(moments, t, model);
        const bool viewed = find_spec(views, t, model);
        clv_layout split;
        layouts[i] = clv_layout_replicated(t->rank);
        if (spec)
            CLV_TRY(read_parameter_spec(&layouts[i], spec, t, viewed, mesh, err));
        CLV_TRY(note_layout(&rules, &layouts[i], t->names, t->name, mesh, err));
        CLV_TRY(note_fused(&rules, t, mesh, err));
        if (of_moments) {
            CLV_TRY(read_parameter_spec(&split, of_moments, t, viewed, mesh, err));
            note_optimizer(&rules, &split, &layouts[i], mesh);
        }
    }
    CLV_TRY(read_activations(&rules, mesh, document, err));
    clv_format_settle(&rules, mesh);
    CLV_TRY(verify(&rules, mesh, layouts, model, err));
    *out = rules;
    return CLV_OK;
}
