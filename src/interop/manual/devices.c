/* devices.c - how devices differ inside shard_map: which parts they have, whether their sum is meant, and what is
 * wrong with a psum or with out_specs.
 *
 * Of each value and axis: the same on all devices; parts of a dimension (in_specs, psum_scatter); partial sums
 * (contractions and sums over a dimension of which devices have parts); or something else. Linear ops keep partial
 * sums. The rules are those of JAX's check_vma, with the reason kept for which devices differ.
 */
#include <math.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "interop/manual/manual.h"

/* ---- ops ---- */

static bool is(const mlir_op *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

static bool is_linear(const mlir_op *op)
{
    static const char *const names[] = {"stablehlo.negate", "stablehlo.convert",   "stablehlo.reshape",
                                        "stablehlo.slice",  "stablehlo.transpose", "stablehlo.broadcast_in_dim",
                                        "stablehlo.pad",    "stablehlo.gather",    "stablehlo.dynamic_slice",
                                        "stablehlo.scatter"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(op, names[i]))
            return true;
    return false;
}

static bool varies(const importer *im, const imported *x, int axis)
{
    int64_t extents[MANUAL_AXES];
    manual_extents(im, x, extents);
    return extents[axis] > 1;
}

/* ---- where dimensions go: -1: not to one of the result ---- */

static int through_list(const importer *im, const mlir_op *op, const char *pretty, const char *generic, int dim,
                        bool inverse)
{
    int64_t list[CLV_MAX_RANK];
    int n;
    if (import_op_ints(list, &n, im, op, pretty, 0, NULL) != CLV_OK ||
        (n == 0 && import_op_ints(list, &n, im, op, generic, 0, NULL) != CLV_OK))
        return -1;
    for (int i = 0; inverse && i < n; i++)
        if (list[i] == dim)
            return i;
    return !inverse && dim < n ? (int)list[dim] : -1;
}

/* The major dimension of the result that begins where `dim` does. */
static int through_reshape(const clv_type *from, const clv_type *to, int dim)
{
    int64_t before = 1, passed = 1;
    for (int d = 0; d < dim; d++)
        before *= from->shape[d];
    for (int d = 0; d < to->rank; d++) {
        if (passed == before && (to->shape[d] > 1 || from->shape[dim] == 1))
            return d;
        passed *= to->shape[d];
    }
    return -1;
}

static int through_reduce(const importer *im, const mlir_op *op, int dim)
{
    int64_t dims[CLV_MAX_RANK];
    int n, before = 0;
    if (import_op_ints(dims, &n, im, op, "dimensions", 0, NULL) != CLV_OK)
        return -1;
    for (int i = 0; i < n; i++) {
        if (dims[i] == dim)
            return -1;
        before += dims[i] < dim;
    }
    return dim - before;
}

static int through(const importer *im, const mlir_op *op, const clv_type *from, const clv_type *to, int dim)
{
    if (is(op, "stablehlo.broadcast_in_dim"))
        return through_list(im, op, "dims", "broadcast_dimensions", dim, false);
    if (is(op, "stablehlo.transpose"))
        return through_list(im, op, "dims", "permutation", dim, true);
    if (is(op, "stablehlo.reshape"))
        return through_reshape(from, to, dim);
    if (is(op, "stablehlo.reduce"))
        return through_reduce(im, op, dim);
    bool same = from->rank == to->rank && dim < to->rank && from->shape[dim] == to->shape[dim];
    bool keeps = is(op, "stablehlo.slice") || is(op, "stablehlo.pad") || is(op, "stablehlo.concatenate") ||
                 is(op, "sdy.sharding_constraint");
    return same && (keeps || importer_find(op->name)->elementwise) ? dim : -1;
}

/* ---- products ---- */

typedef struct product {
    int64_t batch[2][CLV_MAX_RANK], contract[2][CLV_MAX_RANK];
    int n_batch, n_contract;
} product;

static bool read_product(product *p, const importer *im, const mlir_op *op)
{
    static const char *const keys[2][2] = {{"lhs_batching_dimensions", "lhs_contracting_dimensions"},
                                           {"rhs_batching_dimensions", "rhs_contracting_dimensions"}};
    const mlir_attr *numbers = mlir_find_attr(op->attrs, op->n_attrs, "dot_dimension_numbers");
    const mlir_attr *attrs = numbers ? numbers->items : op->attrs;
    int n = numbers ? numbers->n : op->n_attrs;
    for (int s = 0; s < 2; s++)
        if (import_ints(p->batch[s], &p->n_batch, im, op, attrs, n, numbers ? keys[s][0] : "batching_dims", s, NULL) !=
                CLV_OK ||
            import_ints(p->contract[s], &p->n_contract, im, op, attrs, n, numbers ? keys[s][1] : "contracting_dims", s,
                        NULL) != CLV_OK)
            return false;
    return true;
}

static int place_in(const int64_t *list, int n, int dim)
{
    for (int i = 0; i < n; i++)
        if (list[i] == dim)
            return i;
    return -1;
}

/* The result's dimension of a free or batch dimension of an operand. */
static int through_product(const product *p, int side, const clv_type *left, int dim)
{
    int at = place_in(p->batch[side], p->n_batch, dim), free = p->n_batch;
    if (at >= 0)
        return at;
    for (int d = 0; d < dim; d++)
        free += place_in(p->batch[side], p->n_batch, d) < 0 && place_in(p->contract[side], p->n_contract, d) < 0;
    return free + (side == 1 ? left->rank - p->n_batch - p->n_contract : 0);
}

static int follow_product(const product *p, const imported *in, const bool *vary, int axis)
{
    int how[2] = {in[0].devices.how[axis], in[1].devices.how[axis]}, to[2] = {-1, -1}, at[2] = {-1, -1};
    if (vary[0] != vary[1] && how[vary[0] ? 0 : 1] == DEVICES_PARTIAL)
        return DEVICES_PARTIAL;
    for (int s = 0; s < 2; s++) {
        if (!vary[s] || how[s] < DEVICES_SPLIT)
            continue;
        at[s] = place_in(p->contract[s], p->n_contract, how[s] - DEVICES_SPLIT);
        if (at[s] < 0)
            to[s] = through_product(p, s, &in[0].type, how[s] - DEVICES_SPLIT);
    }
    if (vary[0] && vary[1])
        return at[0] >= 0 && at[0] == at[1]   ? DEVICES_PARTIAL
               : to[0] >= 0 && to[0] == to[1] ? DEVICES_SPLIT + to[0]
                                              : DEVICES_OTHER;
    int only = vary[0] ? to[0] : to[1];
    return only >= 0 ? DEVICES_SPLIT + only : DEVICES_OTHER;
}

/* ---- following ---- */

/* How the operands of an op have an axis. */
typedef struct census {
    int partial, split, other, same; /* numbers of operands */
    int extreme, local;              /* of the others */
    int to;                          /* the dimension of the result that all split ones give; -1: none */
    bool adds;                       /* one that is the same is not 0 */
} census;

static census count_operands(const importer *im, const mlir_op *op, const imported *in, const imported *out, int axis)
{
    census c = {.to = -2};
    for (int i = 0; i < op->n_operands; i++) {
        double real;
        int64_t whole;
        if (!varies(im, &in[i], axis)) {
            c.same++;
            c.adds = c.adds || !imported_number(&in[i], &real, &whole) || real != 0;
            continue;
        }
        int how = in[i].devices.how[axis];
        c.partial += how == DEVICES_PARTIAL;
        c.other += how == DEVICES_OTHER || how == DEVICES_EXTREME || how == DEVICES_LOCAL;
        c.extreme += how == DEVICES_EXTREME;
        c.local += how == DEVICES_LOCAL;
        if (how < DEVICES_SPLIT)
            continue;
        c.split++;
        int to = through(im, op, &in[i].type, &out->type, how - DEVICES_SPLIT);
        c.to = c.to == -2 || c.to == to ? to : -1;
    }
    return c;
}

static bool sums(const mlir_op *op)
{
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].text && strcmp(op->attrs[i].text, "stablehlo.add") == 0)
            return true;
    return op->n_regions == 1 && op->regions[0].n_ops == 2 && is(&op->regions[0].ops[0], "stablehlo.add");
}

static int follow_reduce(const mlir_op *op, const census *c, const devices *notes, int axis)
{
    bool add = sums(op);
    if (c->split == 1 && c->to >= 0)
        return DEVICES_SPLIT + c->to;
    if (c->split == 1)
        return !add ? DEVICES_EXTREME : notes->shifted >> axis & 1 ? DEVICES_LOCAL : DEVICES_PARTIAL;
    return c->partial && add ? DEVICES_PARTIAL : DEVICES_OTHER;
}

/* A softmax and its parts: what is left of a device's part when its largest element is subtracted, its sum, and what is
 * divided by that; OTHER: it is none of these. */
static int follow_softmax(const mlir_op *op, const census *c, devices *notes, int axis)
{
    bool subtracts = is(op, "stablehlo.subtract"), alone = !c->split && !c->partial && c->other == 1;
    bool moves = is_linear(op) || is(op, "stablehlo.select") || is(op, "stablehlo.maximum");
    if (c->extreme && !c->local && !c->split && !c->partial && moves)
        return DEVICES_EXTREME;
    if (c->local && alone && (moves || is(op, "stablehlo.log")))
        return DEVICES_LOCAL;
    if (c->local == 1 && c->extreme == 1 && is(op, "stablehlo.add")) /* logsumexp */
        return DEVICES_LOCAL;
    if (c->split == 1 && c->extreme == 1 && c->to >= 0 && subtracts) {
        notes->shifted |= 1u << axis;
        return DEVICES_SPLIT + c->to;
    }
    if (c->local && c->local == c->other && !c->partial && (subtracts || is(op, "stablehlo.divide"))) {
        notes->shifted &= ~(1u << axis);
        notes->softmax = op;
        notes->softmax_axes |= 1u << axis;
        return c->split == 1 && c->to >= 0 ? DEVICES_SPLIT + c->to : DEVICES_OTHER;
    }
    if (c->other > c->local && is(op, "stablehlo.multiply")) { /* weighted by what each device has */
        notes->softmax = NULL;
        notes->softmax_axes = 0;
    }
    return DEVICES_OTHER;
}

/* How the result has an axis; notes what is odd. */
static int follow_axis(const mlir_op *op, const census *c, devices *notes, int axis)
{
    if (is(op, "stablehlo.reduce"))
        return follow_reduce(op, c, notes, axis);
    int softmax = follow_softmax(op, c, notes, axis);
    if (softmax != DEVICES_OTHER)
        return softmax;
    bool adds = is(op, "stablehlo.add") || is(op, "stablehlo.subtract"), one = c->partial == 1;
    bool selects = is(op, "stablehlo.select") && !c->adds;
    bool linear = is_linear(op) || is(op, "stablehlo.concatenate") || is(op, "sdy.sharding_constraint");
    if (c->partial && !c->split && !c->other) {
        if (adds && c->adds)
            notes->counted = op;
        if (adds || linear || selects || (one && (is(op, "stablehlo.multiply") || is(op, "stablehlo.divide"))))
            return DEVICES_PARTIAL;
    }
    if (!notes->bent && c->partial && !adds && !linear && !(one && is(op, "stablehlo.multiply")) &&
        !is(op, "stablehlo.select"))
        notes->bent = op;
    if (c->split && !c->partial && !c->other && c->to >= 0)
        return DEVICES_SPLIT + c->to;
    return DEVICES_OTHER;
}

static void keep_notes(devices *to, const devices *from)
{
    to->partial = to->partial ? to->partial : from->partial;
    to->again = to->again ? to->again : from->again;
    to->again_axes |= from->again_axes;
    to->bent = to->bent ? to->bent : from->bent;
    to->bent_axes |= from->bent_axes;
    to->counted = to->counted ? to->counted : from->counted;
    to->divided = to->divided ? to->divided : from->divided;
    to->shifted |= from->shifted;
    to->softmax = to->softmax ? to->softmax : from->softmax;
    to->softmax_axes |= from->softmax_axes;
    to->scaled_axes |= from->scaled_axes;
    to->mean_axes |= from->mean_axes;
    to->means = to->means ? to->means : from->means;
    to->means_axes |= from->means_axes;
    to->psum_axes |= from->psum_axes;
}

static int64_t size_of(const importer *im, uint32_t axes)
{
    int64_t n = 1;
    for (int i = 0; i < im->manual->n; i++)
        n *= axes >> i & 1 ? im->manual->size[i] : 1;
    return n;
}

/* A division by the number of devices takes back that their sum counted a value once for each: pmean. One of a sum by
 * how many elements it has makes a mean of it. */
static void follow_division(const importer *im, const mlir_op *op, const imported *in, devices *to)
{
    double real;
    int64_t whole;
    bool divides = is(op, "stablehlo.divide");
    if (op->n_operands != 2 || !(divides || is(op, "stablehlo.multiply")))
        return;
    for (int i = divides ? 1 : 0; i < 2; i++) {
        if (!imported_number(&in[i], &real, &whole) || real == 0)
            continue;
        double by = divides ? real : 1 / real;
        if (by >= 2 && by < 1e9 && by == (double)(int64_t)by)
            to->divided = (int64_t)by;
        bool of_psum = by == (double)size_of(im, to->psum_axes);
        if (to->again && (of_psum || by == (double)size_of(im, to->again_axes))) {
            to->again = NULL;
            to->again_axes = 0;
        }
        if (to->means && (of_psum || by == (double)size_of(im, to->means_axes))) {
            to->means = NULL;
            to->means_axes = 0;
        }
        int64_t summed = in[1 - i].devices.summed;
        for (int a = 0; a < im->manual->n; a++) {
            if (summed > 1 && by == (double)summed && to->how[a] == DEVICES_PARTIAL)
                to->mean_axes |= 1u << a;
            else if (to->mean_axes >> a & 1 && by == (double)im->manual->size[a])
                to->mean_axes &= ~(1u << a);
        }
    }
}

/* Axes whose devices have parts of a tensor that is multiplied by 1/n, n being the number of its elements, or of its
 * rows: the gradient of the mean of each device's part. Not if n may also be the number of devices, or count what all
 * of them have. */
static uint32_t scaled_as_mean(const importer *im, const mlir_op *op, const imported *in)
{
    double real;
    int64_t whole;
    uint32_t axes = 0;
    for (int i = 0; i < 2 && op->n_operands == 2 && is(op, "stablehlo.multiply"); i++) {
        const clv_type *type = &in[i].type;
        if (!imported_number(&in[i], &real, &whole) || real == 0)
            continue;
        const int64_t all = clv_type_elems(type), last = type->rank > 1 ? type->shape[type->rank - 1] : 1;
        const int64_t rows = last > 0 ? all / last : 0;
        const double n = 1 / fabs(real), close = 1e-6 * n;
        for (int a = 0; a < im->manual->n; a++) {
            const double times = (double)im->manual->size[a];
            const bool averages = fabs(n - times) <= close || fabs(n - (double)size_of(im, UINT32_MAX)) <= close;
            const bool of_part = fabs(n - (double)all) <= close || (fabs(n - (double)rows) <= close && rows != last),
                       of_all = fabs(n - times * (double)rows) <= close || fabs(n - times * (double)all) <= close;
            if (varies(im, &in[1 - i], a) && n > 1 && of_part && !of_all && !averages)
                axes |= 1u << a;
        }
    }
    return axes;
}

void devices_follow(const importer *im, const mlir_op *op, const imported *in, imported *out)
{
    product p = {0};
    bool dot = is(op, "stablehlo.dot_general") && op->n_operands == 2 && read_product(&p, im, op);
    for (int o = 0; o < op->n_results; o++) {
        devices to = {0};
        for (int i = 0; i < op->n_operands; i++)
            keep_notes(&to, &in[i].devices);
        to.scaled_axes |= scaled_as_mean(im, op, in);
        for (int a = 0; a < im->manual->n; a++) {
            if (!varies(im, &out[o], a))
                continue;
            const bool vary[2] = {dot && varies(im, &in[0], a), dot && varies(im, &in[1], a)};
            const mlir_op *bent = to.bent;
            census c = count_operands(im, op, in, &out[o], a);
            int how = dot ? follow_product(&p, in, vary, a) : follow_axis(op, &c, &to, a);
            if (how == DEVICES_PARTIAL && to.shifted >> a & 1) /* of a product */
                how = DEVICES_LOCAL;
            if (how < DEVICES_SPLIT)
                to.shifted &= ~(1u << a);
            if (c.partial + c.split + c.other > 1 && !is(op, "stablehlo.add"))
                to.mean_axes &= ~(1u << a);
            if (dot && c.partial && how != DEVICES_PARTIAL)
                to.bent = to.bent ? to.bent : op;
            if (how == DEVICES_PARTIAL && c.partial == 0) {
                to.partial = op;
                to.mean_axes |= to.scaled_axes & 1u << a;
            }
            if (to.bent != bent)
                to.bent_axes |= 1u << a;
            to.how[a] = (uint8_t)how;
        }
        if (is(op, "stablehlo.reduce") && clv_type_elems(&out[o].type) > 0)
            to.summed = clv_type_elems(&in[o].type) / clv_type_elems(&out[o].type);
        else if (is_linear(op))
            to.summed = in[0].devices.summed;
        follow_division(im, op, in, &to);
        out[o].devices = to;
    }
}

/* ---- faults ---- */

static const char *place_of(importer *im, const mlir_op *op)
{
    int line;
    const char *file = mlir_loc_file(im->module, op->loc, &line), *dot = strrchr(op->name, '.'),
               *slash = strrchr(im->module->file, '/');
    return clv_arena_format(im->arena, "%.200s:%d.%.60s",
                            file    ? file
                            : slash ? slash + 1
                                    : im->module->file,
                            file ? line : op->at.line, dot ? dot + 1 : op->name);
}

static void add_softmax_fault(importer *im, const char *tensor, const devices *d)
{
    const char *names = manual_axis_names(im, d->softmax_axes);
    const char *text = clv_arena_format(
        im->arena,
        "%s divides by the sum of a device's part alone, of a dimension of which devices of %s have parts, as "
        "a softmax does: pmax and psum over %s before it",
        place_of(im, d->softmax), names, names);
    import_add_fault(
        im, (import_fault){.kind = "missing psum", .tensor = tensor, .at = d->softmax, .axes = names, .text = text});
}

void devices_summed(importer *im, const mlir_op *op, const imported *in, uint32_t axes, imported *out)
{
    uint32_t alike = 0, reduced = 0;
    double real;
    int64_t whole;
    out->devices = in->devices;
    for (int i = 0; i < im->manual->n; i++) {
        if (axes >> i & 1 && varies(im, in, i))
            reduced |= 1u << i;
        else if (axes >> i & 1)
            alike |= 1u << i;
    }
    devices *to = &out->devices;
    const char *names = manual_axis_names(im, reduced);
    if (reduced && to->bent)
        import_add_fault(
            im, (import_fault){.kind = "psum too late",
                               .tensor = place_of(im, op),
                               .at = to->bent,
                               .axes = names,
                               .text = clv_arena_format(
                                   im->arena, "%s is not linear, and takes a partial sum over %s; psum before it",
                                   place_of(im, to->bent), names)});
    if (reduced && to->counted)
        import_add_fault(im, (import_fault){.kind = "counted too often",
                                            .tensor = place_of(im, op),
                                            .at = to->counted,
                                            .axes = names,
                                            .text = clv_arena_format(
                                                im->arena,
                                                "%s adds to a partial sum what is the same on all devices of "
                                                "%s, and the psum counts it %lld times; add it after the psum",
                                                place_of(im, to->counted), names, (long long)size_of(im, reduced))});
    if (reduced && to->softmax)
        add_softmax_fault(im, place_of(im, op), to);
    if (reduced) {
        to->means = reduced & to->mean_axes ? op : to->means;
        to->means_axes |= reduced & to->mean_axes;
        to->bent = to->counted = to->partial = to->softmax = NULL;
        to->bent_axes = to->softmax_axes = to->mean_axes = 0;
    }
    to->psum_axes = axes;
    int64_t times = size_of(im, alike);
    bool number = imported_number(in, &real, &whole);
    bool scaled = to->divided == times || to->divided == size_of(im, im->manual->axes);
    if (times > 1 && !scaled && !(number && real * (double)times <= 1)) {
        to->again = op;
        to->again_axes = alike;
    }
    to->divided = times > 1 && scaled ? 0 : to->divided;
}

/* "result[0]", or where the region is in Python. */
static const char *result_name(importer *im, const mlir_op *region, int i, bool *of_main)
{
    const char *name = import_result_name(im->program, region->first_result + i);
    *of_main = name != NULL;
    return name ? name : clv_arena_format(im->arena, "result %d of %s", i, place_of(im, region));
}

/* Results that are said to be the same, and are not. */
static void check_claim(importer *im, import_fault fault, const imported *x, uint32_t axes, devices_differ how,
                        const char *output)
{
    const devices *d = &x->devices;
    const char *names = manual_axis_names(im, axes);
    fault.axes = names;
    fault.output = output;
    if (d->again && !(d->again_axes & axes) && how != DEVICES_SPLIT) {
        fault.kind = "wrong axis";
        fault.at = d->again;
        fault.text = clv_arena_format(
            im->arena, "devices of %s have different ones; %s sums over %s, whose devices have the same: psum over %s",
            names, place_of(im, d->again), manual_axis_names(im, d->again_axes), names);
    } else if (how == DEVICES_PARTIAL) {
        fault.kind = "missing psum";
        fault.at = d->partial ? d->partial : fault.at;
        fault.text = clv_arena_format(im->arena,
                                      "a partial sum over %s since %s; out_specs say that all devices have the same: "
                                      "psum over %s",
                                      names, place_of(im, fault.at), names);
    } else if (how == DEVICES_SPLIT) {
        int dim = 0;
        for (int i = 0; i < im->manual->n; i++)
            dim = axes >> i & 1 ? d->how[i] - DEVICES_SPLIT : dim;
        fault.kind = "out_specs";
        fault.text = clv_arena_format(im->arena,
                                      "devices of %s have parts of dimension %d; name %s there in out_specs, or "
                                      "all_gather(axis=%d, tiled=True)",
                                      names, dim, names, dim);
    } else {
        fault.kind = "missing psum";
        fault.text = clv_arena_format(im->arena,
                                      "devices of %s have different ones; out_specs say that all have the same: psum "
                                      "or pmean over %s, or name it in out_specs",
                                      names, names);
    }
    import_add_fault(im, fault);
}

/* The largest difference from the first device, as an output of the program; *name. */
static clv_status add_difference(const char **name, importer *im, const mlir_op *region, int i, const imported *x,
                                 uint32_t axes, clv_error *err)
{
    int64_t extents[MANUAL_AXES], begin[CLV_MAX_RANK] = {0};
    clv_value value;
    *name = clv_arena_format(im->arena, "difference.%d.%d", region->first_result + i, im->graph->n_ops);
    if (!im->differences || !*name)
        return CLV_OK;
    manual_extents(im, x, extents);
    CLV_TRY(manual_spread(&value, im, x, extents, err));
    value = clv_cast(im->graph, value, x->type.dtype == CLV_F64 ? CLV_F64 : CLV_F32);
    clv_type have = clv_graph_type(im->graph, value);
    int dims[CLV_MAX_RANK];
    for (int d = 0; d < have.rank; d++)
        dims[d] = d;
    int64_t one[CLV_MAX_RANK];
    memcpy(one, have.shape, sizeof one);
    for (int a = 0; a < im->manual->n; a++)
        one[a] = axes >> a & 1 ? 1 : one[a];
    clv_value gap = clv_sub(im->graph, value, clv_slice(im->graph, value, begin, one));
    gap = clv_binary(im->graph, CLV_MAXIMUM, gap, clv_unary(im->graph, CLV_NEG, gap));
    if (clv_arena_grow(im->arena, &im->difference, &im->difference_capacity, im->n_differences,
                       sizeof *im->difference) != 0)
        return clv_fail_memory(err, "differences", sizeof *im->difference);
    im->difference[im->n_differences++] =
        (import_difference){*name, clv_reduce(im->graph, CLV_MAX, gap, dims, have.rank, false)};
    return clv_graph_status(im->graph, err);
}

clv_status devices_check_result(importer *im, const mlir_op *region, int i, const imported *x, uint32_t named,
                                const int *along, uint32_t claimed, clv_error *err)
{
    uint32_t by_how[3] = {0}, beside = 0, elsewhere = 0;
    const devices *d = &x->devices;
    bool of_main;
    import_fault fault = {.tensor = result_name(im, region, i, &of_main), .at = region};
    for (int a = 0; a < im->manual->n; a++) {
        int how = d->how[a];
        if (!varies(im, x, a))
            continue;
        if (claimed >> a & 1)
            by_how[how >= DEVICES_SPLIT ? 2 : how == DEVICES_PARTIAL] |= 1u << a;
        else if (named >> a & 1 && of_main) {
            beside |= (uint32_t)(how == DEVICES_PARTIAL) << a;
            elsewhere |= (uint32_t)(how >= DEVICES_SPLIT && how != DEVICES_SPLIT + along[a]) << a;
        }
    }
    uint32_t differ = by_how[0] | by_how[1] | by_how[2];
    const char *output = NULL;
    if (differ)
        CLV_TRY(add_difference(&output, im, region, i, x, differ, err));
    static const devices_differ hows[] = {DEVICES_OTHER, DEVICES_PARTIAL, DEVICES_SPLIT};
    for (int how = 0; how < 3; how++)
        if (by_how[how])
            check_claim(im, fault, x, by_how[how], hows[how], output);
    if (d->again && !(differ && by_how[2] != differ)) {
        fault.kind = "psum too many";
        fault.at = d->again;
        fault.axes = manual_axis_names(im, d->again_axes);
        fault.text = clv_arena_format(im->arena,
                                      "%s sums over %s what all its devices have alike: %lld times as much; leave it "
                                      "out, or pmean",
                                      place_of(im, d->again), fault.axes, (long long)size_of(im, d->again_axes));
        import_add_fault(im, fault);
    }
    if (d->bent && of_main) {
        fault.kind = "psum too late";
        fault.at = d->bent;
        fault.axes = manual_axis_names(im, d->bent_axes);
        fault.text = clv_arena_format(im->arena, "%s is not linear, and takes a partial sum over %s; psum before it",
                                      place_of(im, d->bent), fault.axes);
        import_add_fault(im, fault);
    }
    if (d->softmax && of_main && !differ)
        add_softmax_fault(im, fault.tensor, d);
    if (d->means && of_main) {
        fault.kind = "psum of means";
        fault.at = d->means;
        fault.axes = manual_axis_names(im, d->means_axes);
        fault.text = clv_arena_format(im->arena,
                                      "%s sums over %s what is a mean of each device's part: %lld times the "
                                      "mean; pmean",
                                      place_of(im, d->means), fault.axes, (long long)size_of(im, d->means_axes));
        import_add_fault(im, fault);
    }
    fault.at = region;
    if (beside) {
        fault.kind = "missing psum";
        fault.axes = manual_axis_names(im, beside);
        fault.text = clv_arena_format(im->arena, "partial sums over %s are put side by side: psum_scatter over %s",
                                      fault.axes, fault.axes);
        import_add_fault(im, fault);
    }
    if (elsewhere) {
        fault.kind = "out_specs";
        fault.axes = manual_axis_names(im, elsewhere);
        fault.text = clv_arena_format(
            im->arena, "devices of %s have parts of another dimension than the one that out_specs name", fault.axes);
        import_add_fault(im, fault);
    }
    return CLV_OK;
}
