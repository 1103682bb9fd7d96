/* region.c - sdy.manual_computation: operands to values of devices, the region, and its results to whole tensors. */
#include <string.h>

#include "base/text/c_locale.h"
#include "interop/manual/manual.h"

/* ---- device dimensions ---- */

int manual_lead(const importer *im, const imported *x)
{
    if (!im->manual || !clv_valid(x->value) || im->manual->n == 0)
        return 0;
    return clv_graph_type(im->graph, x->value).rank == im->manual->n + x->type.rank ? im->manual->n : 0;
}

void manual_extents(const importer *im, const imported *x, int64_t *extents)
{
    bool lead = manual_lead(im, x) > 0;
    clv_type have = clv_graph_type(im->graph, x->value);
    for (int i = 0; i < im->manual->n; i++)
        extents[i] = lead ? have.shape[i] : 1;
}

/* A device's type with device dimensions before it. */
static clv_status leading_type(clv_type *out, const importer *im, const clv_type *type, const int64_t *extents,
                               clv_error *err)
{
    int k = im->manual->n;
    if (type->rank + k > CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT,
                        "%s: a tensor of %d dimensions inside shard_map on %d mesh axes; together at most %d",
                        im->module->file, type->rank, k, CLV_MAX_RANK);
    *out = (clv_type){.dtype = type->dtype, .rank = type->rank + k};
    memcpy(out->shape, extents, (size_t)k * sizeof *extents);
    memcpy(out->shape + k, type->shape, (size_t)type->rank * sizeof *extents);
    return CLV_OK;
}

clv_status manual_lift(imported *out, importer *im, const imported *x, const int64_t *extents, clv_error *err)
{
    static const int64_t ones[MANUAL_AXES] = {1, 1, 1, 1, 1, 1};
    clv_type type, compact;
    imported lifted = *x;
    CLV_TRY(leading_type(&type, im, &x->type, extents, err));
    lifted.type = type;
    lifted.iota = x->iota ? x->iota + im->manual->n : 0;
    if (manual_lead(im, x) == 0 && !(x->known && x->known->splat && !clv_valid(x->value))) {
        clv_value local = imported_compact(im, x);
        clv_type have = clv_graph_type(im->graph, local);
        if (have.rank > 0) {
            CLV_TRY(leading_type(&compact, im, &have, ones, err));
            local = clv_reshape(im->graph, local, compact.rank, compact.shape);
        }
        lifted.value = local;
        lifted.known = NULL;
    }
    *out = lifted;
    return CLV_OK;
}

clv_status manual_spread(clv_value *out, importer *im, const imported *x, const int64_t *extents, clv_error *err)
{
    imported lifted;
    CLV_TRY(manual_lift(&lifted, im, x, extents, err));
    *out = imported_whole(im, &lifted);
    return CLV_OK;
}

imported manual_settle(importer *im, clv_type type, clv_value value)
{
    clv_type have = clv_graph_type(im->graph, value);
    bool same = have.rank == im->manual->n + type.rank;
    for (int i = 0; same && i < im->manual->n; i++)
        same = have.shape[i] == 1;
    return imported_of(type, same ? clv_reshape(im->graph, value, type.rank, have.shape + im->manual->n) : value);
}

clv_value manual_arrange(importer *im, clv_value value, const int *order, int n, int rank, const int64_t *shape)
{
    bool moves = false;
    for (int i = 0; i < n; i++)
        moves = moves || order[i] != i;
    value = moves ? clv_transpose(im->graph, value, order) : value;
    return clv_reshape(im->graph, value, rank, shape);
}

/* The axis of the graph's mesh for a device dimension; size 0: it has none, or one rank. */
static clv_subaxis graph_axis(const importer *im, int i)
{
    int at;
    const clv_mesh *mesh = clv_graph_mesh(im->graph);
    if (clv_mesh_find(&at, mesh, im->manual->mesh->axis[im->manual->axis[i]].name, NULL) != CLV_OK ||
        mesh->axis[at].size == 1)
        return (clv_subaxis){0};
    return clv_mesh_whole_axis(mesh, at);
}

void manual_name_last(importer *im, const mlir_op *collective)
{
    const char *dot = collective ? strrchr(collective->name, '.') : NULL;
    const char *name = dot ? clv_arena_format(im->graph->arena, "%s%s", im->graph->scope, dot + 1) : NULL;
    if (name && clv_graph_ok(im->graph))
        im->graph->ops[im->graph->n_ops - 1].name = name;
}

clv_value manual_constrain(importer *im, const mlir_op *collective, clv_value value, uint32_t gone, int dim,
                           const int *order, int n)
{
    const clv_mesh *mesh = clv_graph_mesh(im->graph);
    clv_type have = clv_graph_type(im->graph, value);
    clv_layout layout = clv_layout_replicated(have.rank);
    if (!im->manual->whole || !clv_valid(value))
        return value;
    for (int i = 0; i < im->manual->n; i++) {
        clv_subaxis axis = graph_axis(im, i);
        if (!(gone >> i & 1) && axis.size > 0 && have.shape[i] > 1)
            (void)clv_layout_shard_dim(&layout, mesh, i, axis, NULL);
    }
    for (int i = 0; dim >= 0 && i < n; i++) {
        clv_subaxis axis = graph_axis(im, order[i]);
        if (axis.size > 0)
            (void)clv_layout_shard_dim(&layout, mesh, im->manual->n + dim, axis, NULL);
    }
    value = clv_constrain(im->graph, value, &layout);
    manual_name_last(im, collective);
    return value;
}

void manual_keep(importer *im, clv_value value, uint32_t axes)
{
    for (int i = 0; clv_valid(value) && i < im->manual->n; i++)
        if (axes >> i & 1 && graph_axis(im, i).size > 0)
            clv_keep_stationary(im->graph, value, im->manual->mesh->axis[im->manual->axis[i]].name);
}

const char *manual_axis_names(importer *im, uint32_t axes)
{
    const char *names = "";
    for (int i = 0; names && i < im->manual->n; i++)
        if (axes >> i & 1)
            names = clv_arena_format(im->arena, "%s%s%s", names, names[0] ? ", " : "",
                                     im->manual->mesh->axis[im->manual->axis[i]].name);
    return names ? names : "";
}

/* ---- in_shardings and out_shardings ---- */

/* The device dimensions that split each dimension, major to minor. */
typedef struct split {
    int n[CLV_MAX_RANK];
    int axis[CLV_MAX_RANK][MANUAL_AXES];
    int64_t parts[CLV_MAX_RANK];
    uint32_t axes;
} split;

/* Of a sharding's text, the axes that the region is manual over. */
static clv_status read_split(split *out, const importer *im, const mlir_attr *sharding, int rank, uint32_t axes,
                             clv_error *err)
{
    clv_mesh mesh = {0};
    int dimension[CLV_MAX_AXES];
    char text[CLV_LAYOUT_TEXT];
    clv_layout layout;
    clv_error why = {0};
    *out = (split){0};
    for (int i = 0; i < im->manual->n; i++)
        if (axes >> i & 1) {
            dimension[mesh.n_axes] = i;
            mesh.axis[mesh.n_axes++] = im->manual->mesh->axis[im->manual->axis[i]];
        }
    if (rank > CLV_MAX_RANK || !sharding->text)
        return mlir_fail(im->module, sharding->at, err, CLV_EUNSUPPORTED, "a sharding is needed");
    CLV_TRY(import_sharding_text(text, sharding->text, rank, &mesh, im->module, sharding->at, err));
    if (text[0] && clv_layout_parse(&layout, text, &mesh, rank, &why) != CLV_OK)
        return mlir_fail(im->module, sharding->at, err, CLV_EUNSUPPORTED, "%s", why.message);
    for (int d = 0; d < rank; d++)
        out->parts[d] = 1;
    for (int d = 0; text[0] && d < rank; d++) {
        const clv_subaxis *subs;
        out->n[d] = clv_layout_axes(&subs, &layout, d);
        for (int i = 0; i < out->n[d]; i++) {
            if (subs[i].pre != 1 || subs[i].size != mesh.axis[subs[i].axis].size || i == MANUAL_AXES)
                return mlir_fail(im->module, sharding->at, err, CLV_EUNSUPPORTED, "sub-axes of a manual axis");
            out->axis[d][i] = dimension[subs[i].axis];
            out->axes |= 1u << out->axis[d][i];
            out->parts[d] *= subs[i].size;
        }
    }
    return CLV_OK;
}

/* Dimensions of a value between its whole and its devices' form: device dimensions of what is around it, then each
 * dimension as its devices, major to minor, and a device's part. `device` and `part` say where each one is. */
typedef struct between {
    int rank, device[MANUAL_AXES], first[CLV_MAX_RANK], part[CLV_MAX_RANK];
    int64_t shape[CLV_MAX_RANK];
} between;

static bool add_dim(between *b, int64_t size)
{
    if (b->rank == CLV_MAX_RANK)
        return false;
    b->shape[b->rank++] = size;
    return true;
}

static clv_status lay_out(between *out, const importer *im, const mlir_op *op, const split *s, const clv_type *local,
                          const int64_t *around, clv_error *err)
{
    bool fits = true;
    *out = (between){0};
    for (int i = 0; i < im->manual->n; i++) {
        out->device[i] = -1;
        if (around[i] > 1) {
            out->device[i] = out->rank;
            fits = fits && add_dim(out, around[i]);
        }
    }
    for (int d = 0; d < local->rank; d++) {
        out->first[d] = out->rank;
        for (int i = 0; i < s->n[d]; i++) {
            out->device[s->axis[d][i]] = out->rank;
            fits = fits && add_dim(out, im->manual->size[s->axis[d][i]]);
        }
        out->part[d] = out->rank;
        fits = fits && add_dim(out, local->shape[d]);
    }
    return fits ? CLV_OK
                : import_fail(im, op, err, CLV_ELIMIT, "a tensor of more than %d dimensions, with one for each axis",
                              CLV_MAX_RANK);
}

/* What the devices have of an operand. */
static clv_status enter(imported *out, importer *im, const mlir_op *op, int i, const imported *x,
                        const mlir_attr *sharding, const mlir_type *type, uint32_t axes, clv_error *err)
{
    split s;
    between b;
    clv_type local;
    int order[CLV_MAX_RANK], n = 0, k = im->manual->n;
    int64_t around[MANUAL_AXES], shape[CLV_MAX_RANK];
    CLV_TRY(import_type(&local, im, type, err));
    CLV_TRY(read_split(&s, im, sharding, x->type.rank, axes, err));
    for (int d = 0; d < x->type.rank; d++)
        if (local.rank != x->type.rank || local.shape[d] * s.parts[d] != x->type.shape[d])
            return import_fail(im, op, err, CLV_ESHAPE, "operand %d: %s is not what a device has of it", i, type->text);
    *out = *x;
    out->type = local;
    if (s.axes == 0)
        return CLV_OK;
    manual_extents(im, x, around);
    CLV_TRY(lay_out(&b, im, op, &s, &local, around, err));
    clv_value value;
    if (manual_lead(im, x))
        CLV_TRY(manual_spread(&value, im, x, around, err));
    else {
        clv_layout layout;
        bool stated;
        mlir_attr stating = *sharding;
        stating.key = "sdy.sharding";
        value = imported_whole(im, x);
        CLV_TRY(import_sharding(&layout, &stated, im, &stating, 1, x->type.rank, err));
        if (stated && im->manual->whole)
            value = clv_constrain(im->graph, value, &layout);
    }
    value = clv_reshape(im->graph, value, b.rank, b.shape);
    for (int a = 0; a < k; a++) {
        shape[a] = b.device[a] < 0 ? 1 : b.shape[b.device[a]];
        if (b.device[a] >= 0)
            order[n++] = b.device[a];
    }
    for (int d = 0; d < local.rank; d++) {
        order[n++] = b.part[d];
        shape[k + d] = local.shape[d];
    }
    if (k + local.rank > CLV_MAX_RANK)
        return import_fail(im, op, err, CLV_ELIMIT, "a tensor of %d dimensions on %d mesh axes; together at most %d",
                           local.rank, k, CLV_MAX_RANK);
    value = manual_arrange(im, value, order, n, k + local.rank, shape);
    *out = imported_of(local, manual_constrain(im, NULL, value, 0, -1, NULL, 0));
    out->devices = x->devices;
    if (x->devices.specs && strcmp(x->devices.specs, sharding->text) == 0)
        return CLV_OK;
    if (x->devices.specs)
        out->devices = (devices){0};
    for (int d = 0; d < local.rank; d++)
        for (int a = 0; a < s.n[d]; a++)
            out->devices.how[s.axis[d][a]] = (uint8_t)(DEVICES_SPLIT + d);
    return CLV_OK;
}

/* Of devices that are said to have the same, the first one counts. */
static clv_value first_device(importer *im, clv_value value, uint32_t axes)
{
    clv_type have = clv_graph_type(im->graph, value);
    int64_t begin[CLV_MAX_RANK] = {0};
    bool cuts = false;
    for (int i = 0; i < im->manual->n; i++)
        if (axes >> i & 1 && have.shape[i] > 1) {
            have.shape[i] = 1;
            cuts = true;
        }
    return cuts ? clv_slice(im->graph, value, begin, have.shape) : value;
}

/* The whole tensor of a result. */
static clv_status leave(imported *out, importer *im, const mlir_op *op, int i, const imported *x,
                        const mlir_attr *sharding, uint32_t axes, clv_error *err)
{
    split s;
    between b;
    clv_type type, local = x->type;
    clv_value value;
    int k = im->manual->n, n = 0, order[CLV_MAX_RANK], along[MANUAL_AXES] = {0};
    int64_t extents[MANUAL_AXES], rest[MANUAL_AXES], shape[CLV_MAX_RANK];
    CLV_TRY(import_type(&type, im, &op->result_types[i], err));
    CLV_TRY(read_split(&s, im, sharding, type.rank, axes, err));
    for (int d = 0; d < type.rank; d++)
        if (local.rank != type.rank || local.shape[d] * s.parts[d] != type.shape[d])
            return import_fail(im, op, err, CLV_ESHAPE, "result %d is not %s", i, op->result_types[i].text);
    for (int d = 0; d < type.rank; d++)
        for (int a = 0; a < s.n[d]; a++)
            along[s.axis[d][a]] = d;
    CLV_TRY(devices_check_result(im, op, i, x, s.axes, along, axes & ~s.axes, err));
    manual_extents(im, x, extents);
    if (s.axes == 0 && manual_lead(im, x) == 0) {
        *out = *x;
        out->type = type;
        return CLV_OK;
    }
    for (int a = 0; a < k; a++)
        extents[a] = s.axes >> a & 1 ? im->manual->size[a] : extents[a];
    CLV_TRY(manual_spread(&value, im, x, extents, err));
    value = first_device(im, value, axes & ~s.axes);
    for (int a = 0; a < k; a++)
        rest[a] = axes >> a & 1 ? 1 : extents[a];
    CLV_TRY(lay_out(&b, im, op, &s, &local, rest, err));
    /* from the devices' order to that of `b`: position p of b is dimension order[p] of the value without 1s */
    int at[MANUAL_AXES], dense = 0;
    int64_t packed[CLV_MAX_RANK];
    for (int a = 0; a < k; a++) {
        at[a] = b.device[a] < 0 ? -1 : dense;
        if (b.device[a] >= 0)
            packed[dense++] = b.shape[b.device[a]];
    }
    for (int d = 0; d < local.rank; d++)
        packed[dense + d] = local.shape[d];
    value = clv_reshape(im->graph, value, dense + local.rank, packed);
    for (int a = 0; a < k; a++)
        if (b.device[a] >= 0)
            order[b.device[a]] = at[a];
    for (int d = 0; d < local.rank; d++)
        order[b.part[d]] = dense + d;
    bool outer = false;
    for (int a = 0; a < k; a++)
        outer = outer || rest[a] > 1;
    for (int a = 0; outer && a < k; a++)
        shape[n++] = rest[a];
    for (int d = 0; d < type.rank; d++)
        shape[n++] = type.shape[d];
    value = manual_arrange(im, value, order, b.rank, n, shape);
    *out = imported_of(type, value);
    if (outer) {
        out->devices = x->devices;
        return CLV_OK;
    }
    clv_layout layout;
    bool stated;
    mlir_attr stating = *sharding;
    stating.key = "sdy.sharding";
    CLV_TRY(import_sharding(&layout, &stated, im, &stating, 1, type.rank, err));
    if (stated && im->manual->whole)
        out->value = clv_constrain(im->graph, value, &layout);
    return CLV_OK;
}

/* What is known of a result, for a region that takes it as it was: JAX hands what a backward pass needs from one region
 * to another as parts of a dimension, over all axes. */
static void remember(devices *out, const importer *im, const imported *x, const char *specs)
{
    int64_t extents[MANUAL_AXES];
    manual_extents(im, x, extents);
    *out = x->devices;
    out->specs = specs;
    for (int i = 0; i < im->manual->n; i++)
        if (extents[i] == 1)
            out->how[i] = DEVICES_OTHER;
}

/* ---- the op ---- */

static const mlir_mesh *find_mesh(const importer *im, const char *sharding)
{
    size_t length = sharding && sharding[0] == '@' ? strcspn(sharding + 1, ", >") : 0;
    for (int i = 0; i < im->module->n_meshes; i++)
        if (strlen(im->module->meshes[i].name) == length &&
            strncmp(im->module->meshes[i].name, sharding + 1, length) == 0)
            return &im->module->meshes[i];
    return NULL;
}

static clv_status add_axes(manual *m, const importer *im, const mlir_op *op, const mlir_attr *names, clv_error *err)
{
    for (int n = 0; n < names->n; n++) {
        int at;
        if (!names->items[n].text || clv_mesh_find(&at, m->mesh, names->items[n].text, NULL) != CLV_OK)
            return import_fail(im, op, err, CLV_EAXIS, "its mesh has no axis %s",
                               names->items[n].text ? names->items[n].text : "?");
        for (int i = 0; i < m->n; i++)
            if (m->axis[i] == at)
                m->axes |= 1u << i;
    }
    return CLV_OK;
}

/* Whether the axes that are manual are all that the graph's mesh has. */
static bool is_whole(const manual *m, const clv_mesh *mesh)
{
    for (int a = 0; a < mesh->n_axes; a++) {
        bool found = mesh->axis[a].size == 1;
        for (int i = 0; i < m->n; i++)
            found = found || (m->axes >> i & 1 && strcmp(m->mesh->axis[m->axis[i]].name, mesh->axis[a].name) == 0);
        if (!found)
            return false;
    }
    return true;
}

/* The region's mesh and axes; those around it stay manual. */
static clv_status read_region(manual *out, const importer *im, const mlir_op *op, const mlir_attr *shardings,
                              const mlir_attr *axes, clv_error *err)
{
    const mlir_mesh *mesh = NULL;
    for (int s = 0; s < 2; s++)
        for (int i = 0; !mesh && i < shardings[s].n; i++)
            mesh = find_mesh(im, shardings[s].items[i].text);
    *out = (manual){0};
    if (im->manual)
        *out = *im->manual;
    else if (mesh)
        out->mesh = &mesh->mesh;
    if (!out->mesh || (mesh && !im->manual && mesh->mesh.n_axes == 0))
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "its shardings name no mesh of the text");
    for (int a = 0; !im->manual && a < out->mesh->n_axes; a++) {
        if (out->mesh->axis[a].size == 1)
            continue;
        if (out->n == MANUAL_AXES)
            return import_fail(im, op, err, CLV_ELIMIT, "more than %d mesh axes", MANUAL_AXES);
        out->axis[out->n] = a;
        out->size[out->n++] = out->mesh->axis[a].size;
    }
    CLV_TRY(add_axes(out, im, op, axes, err));
    out->whole = is_whole(out, clv_graph_mesh(im->graph));
    return CLV_OK;
}

static clv_status manual_computation(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *ins = mlir_find_attr(op->attrs, op->n_attrs, "in_shardings"),
                    *outs = mlir_find_attr(op->attrs, op->n_attrs, "out_shardings"),
                    *axes = mlir_find_attr(op->attrs, op->n_attrs, "manual_axes");
    const mlir_op *end;
    manual region;
    if (!ins || !outs || !axes || ins->n != op->n_operands || outs->n != op->n_results || op->n_regions != 1 ||
        op->regions[0].n_args != op->n_operands)
        return import_fail(im, op, err, CLV_ESYNTAX, "in_shardings, out_shardings and manual_axes do not fit it");
    const mlir_attr both[2] = {*ins, *outs};
    const manual *around = im->manual;
    CLV_TRY(read_region(&region, im, op, both, axes, err));
    uint32_t own = region.axes & ~(around ? around->axes : 0);
    im->manual = &region;
    for (int i = 0; i < op->n_operands; i++)
        CLV_TRY(enter(&im->values[op->regions[0].args[i]], im, op, i, &in[i], &ins->items[i],
                      &op->regions[0].arg_types[i], own, err));
    CLV_TRY(import_region(im, &op->regions[0], op, &end, err));
    if (end->n_operands != op->n_results)
        return import_fail(im, end, err, CLV_ESYNTAX, "%d values; %d are needed", end->n_operands, op->n_results);
    for (int i = 0; i < op->n_results; i++) {
        const imported *x = &im->values[end->operands[i]];
        CLV_TRY(leave(&out[i], im, op, i, x, &outs->items[i], own, err));
        if (!around)
            remember(&out[i].devices, im, x, outs->items[i].text);
    }
    im->manual = around;
    return CLV_OK;
}

const import_row import_manual_rows[] = {
    {"sdy.manual_computation", manual_computation, 0, false, false},
    {0},
};
