/* reshard_planner.c - plans any layout change as the cheapest sequence of collectives.
 *
 * Partial axes that `to` shares stay partial. The searches (reshard_reduction_search.c, reshard_collective_search.c)
 * reduce the others and reshard, on states of sub-axes (reshard_state.h). At the end a mask makes the partial axes that
 * only `to` has.
 */
#include "partition/reshard/reshard_planner.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/reshard/reshard_state.h"
#include "tensor/reshard_volume.h"

/* -- axes of groups -- */

/* Removes the common prefix of two lists of sub-axes. */
static void drop_common(clv_subaxis *a, int *n, clv_subaxis *b, int *m)
{
    int i = 0, j = 0, kept = 0;
    while (i < *n && j < *m && a[i].axis == b[j].axis && a[i].pre == b[j].pre) {
        int32_t size = a[i].size < b[j].size ? a[i].size : b[j].size;
        if (a[i].size % size != 0 || b[j].size % size != 0)
            break;
        a[i].pre *= size, a[i].size /= size;
        b[j].pre *= size, b[j].size /= size;
        i += a[i].size == 1;
        j += b[j].size == 1;
    }
    for (; i < *n; i++)
        a[kept++] = a[i];
    *n = kept;
    for (kept = 0; j < *m; j++)
        b[kept++] = b[j];
    *m = kept;
}

static void add_axes(clv_reshard_step *step, const clv_subaxis *subs, int n)
{
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (int j = 0; j < step->n_axes; j++)
            known |= clv_subaxis_overlap(step->axes[j], subs[i]);
        if (!known && step->n_axes < CLV_MAX_SUBAXES)
            step->axes[step->n_axes++] = subs[i];
    }
}

/* The axes of a step that reshards: those that shard a dimension differently afterwards, first the removed ones, then
 * the added ones. A rank's group over them holds all that the rank lacks, because a common prefix stays in place. */
static void find_axes(clv_reshard_step *step)
{
    clv_subaxis left[CLV_MAX_RANK][CLV_MAX_SUBAXES], come[CLV_MAX_RANK][CLV_MAX_SUBAXES];
    int n[CLV_MAX_RANK], m[CLV_MAX_RANK], rank = step->from.rank;
    for (int d = 0; d < rank; d++) {
        const clv_subaxis *a, *b;
        n[d] = clv_layout_axes(&a, &step->from, d);
        m[d] = clv_layout_axes(&b, &step->to, d);
        memcpy(left[d], a, (size_t)n[d] * sizeof *a);
        memcpy(come[d], b, (size_t)m[d] * sizeof *b);
        if (n[d] == 0 || m[d] == 0 || step->from.alignment[d] == step->to.alignment[d])
            drop_common(left[d], &n[d], come[d], &m[d]);
    }
    for (int d = 0; d < rank; d++)
        add_axes(step, left[d], n[d]);
    for (int d = 0; d < rank; d++)
        add_axes(step, come[d], m[d]);
    step->n_axes = clv_subaxes_normalize(step->axes, step->n_axes);
}

/* -- emission -- */

typedef struct emitter {
    clv_reshard_step steps[RESHARD_STEPS + 1];
    clv_reshard_plan plan;
    clv_reshard_draft draft;
    clv_reshard_workspace workspace;
    const int64_t *shape;
    int64_t elem_size;
    int n_subaxes;
} emitter;

enum { FEW_SUBAXES = 5 }; /* with more, planning twice takes too long */

/* `axes`: of a step that reduces or masks; n_axes 0: of one that reshards. */
static void emit(emitter *e, clv_step_kind kind, const clv_layout *from, const clv_layout *to, double bytes,
                 const clv_subaxis *axes, int n_axes)
{
    clv_reshard_step *step = &e->steps[e->plan.n_steps++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    step->from = *from;
    step->to = *to;
    step->bytes = bytes;
    if (n_axes == 0)
        find_axes(step);
    else {
        memcpy(step->axes, axes, (size_t)n_axes * sizeof *axes);
        step->n_axes = clv_subaxes_normalize(step->axes, n_axes);
    }
    e->plan.bytes += bytes;
    e->plan.moves += clv_step_moves(kind);
}

/* Peak memory. A slice of `from` is a view unless it is the result; a mask or an all_reduce of an earlier step's result
 * is in place. */
static void find_peak(emitter *e, const clv_layout *from)
{
    int64_t base = clv_layout_max_elems(from, e->shape) * e->elem_size, peak = base;
    bool made = false;
    for (int i = 0; i < e->plan.n_steps; i++) {
        const clv_reshard_step *step = &e->steps[i];
        int64_t out = clv_layout_max_elems(&step->to, e->shape) * e->elem_size;
        bool view = !made && step->kind == CLV_STEP_SLICE && i + 1 < e->plan.n_steps;
        bool in_place = made && (step->kind == CLV_STEP_MASK || step->kind == CLV_STEP_ALL_REDUCE);
        if (view || in_place)
            continue;
        peak = base + out > peak ? base + out : peak;
        base = out;
        made = true;
    }
    e->plan.peak_bytes = peak;
}

static int list_subaxes(clv_subaxis *out, const clv_reshard_problem *p, clv_subaxis_set subaxes)
{
    int n = 0;
    for (int a = 0; a < p->n_subaxes; a++)
        if ((subaxes >> a & 1u) != 0)
            out[n++] = p->subaxis[a];
    return n;
}

/* The first and last layouts are the given ones: their alignments may differ from those of the states. */
static void emit_draft(emitter *e, const clv_reshard_problem *p, const clv_reshard_draft *draft,
                       const clv_reshard_state *start, const clv_layout *from, const clv_layout *to)
{
    const clv_reshard_state *in = start;
    clv_layout before = *from;
    for (int i = 0; i < draft->n; in = &draft->state[i++]) {
        const clv_reshard_state *out = &draft->state[i];
        clv_subaxis axes[CLV_MAX_SUBAXES];
        clv_layout after = i + 1 < draft->n ? clv_reshard_state_to_layout(p, out) : *to;
        int n = list_subaxes(axes, p, in->partial & ~out->partial);
        emit(e, draft->kind[i], &before, &after, draft->bytes[i], axes, n);
        before = after;
    }
}

/* Where it makes no difference for a dimension (heads that divide evenly), uses the alignment of the other layout, so
 * that prefixes match. */
static void match_alignments(clv_reshard_state *a, const clv_reshard_state *b, const clv_reshard_problem *p)
{
    for (int d = 0; d < p->rank; d++) {
        int64_t blocks = clv_reshard_blocks(p, a, d);
        if (a->n[d] > 0 && b->n[d] > 0 && p->shape[d] / a->alignment[d] % blocks == 0 &&
            p->shape[d] / b->alignment[d] % blocks == 0)
            a->alignment[d] = b->alignment[d];
    }
}

static void plan_subaxes(emitter *e, clv_reshard_problem *p, const clv_layout *from, const clv_layout *to)
{
    clv_reshard_state start, end, target;
    clv_reshard_draft *draft = &e->draft;
    clv_reshard_state_from_layout(&start, p, from);
    clv_reshard_state_from_layout(&end, p, to);
    clv_subaxis_set keep = from->reduction == to->reduction ? start.partial & end.partial : 0;
    target = end;
    target.partial = keep;
    clv_layout before_mask = clv_reshard_state_to_layout(p, &target);
    match_alignments(&start, &target, p);
    match_alignments(&target, &start, p);
    clv_reshard_search_reductions(draft, p, &start, &target);
    emit_draft(e, p, draft, &start, from, &before_mask);
    if (end.partial != keep) {
        clv_subaxis axes[CLV_MAX_SUBAXES];
        emit(e, CLV_STEP_MASK, draft->n > 0 ? &before_mask : from, to, 0, axes,
             list_subaxes(axes, p, end.partial & ~keep));
    }
}

/* Plans for sub-axes that do not nest: all_reduce, exchange, mask, as far as needed. */
static void plan_coarse(emitter *e, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to)
{
    const clv_subaxis *axes;
    clv_layout whole = clv_layout_without_partial(from), target = clv_layout_without_partial(to);
    double local = (double)(clv_layout_max_elems(from, e->shape) * e->elem_size), n = 1;
    int n_axes = clv_layout_axes(&axes, from, from->rank);
    for (int i = 0; i < n_axes; i++)
        n *= axes[i].size;
    if (n_axes > 0)
        emit(e, CLV_STEP_ALL_REDUCE, from, &whole, 2 * local * (n - 1) / n, axes, n_axes);
    double missing = (double)(clv_max_received_elems(&target, &whole, mesh, e->shape) * e->elem_size);
    if (!clv_layout_equal(&whole, &target))
        emit(e, missing > 0 ? CLV_STEP_EXCHANGE : CLV_STEP_SLICE, &whole, &target, missing, NULL, 0);
    n_axes = clv_layout_axes(&axes, to, to->rank);
    if (n_axes > 0)
        emit(e, CLV_STEP_MASK, &target, to, 0, axes, n_axes);
}

/* -- the interface -- */

static clv_status check(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to, const int64_t *shape,
                        clv_dtype dtype, clv_error *err)
{
    if (from->rank != to->rank)
        return clv_fail(err, CLV_ESHAPE, "reshard: from a tensor of %d dimensions to one of %d", from->rank, to->rank);
    CLV_TRY(clv_layout_check(from, mesh, shape, err));
    CLV_TRY(clv_layout_check(to, mesh, shape, err));
    return clv_shape_check(shape, to->rank, dtype, err);
}

static void plan(emitter *e, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to, clv_dtype dtype,
                 const clv_cost_model *cost)
{
    clv_reshard_problem p = {.workspace = &e->workspace,
                             .mesh = mesh,
                             .shape = e->shape,
                             .cost = cost,
                             .rank = from->rank,
                             .dtype = dtype,
                             .elem_size = e->elem_size,
                             .reduction = from->reduction};
    memcpy(p.alignment, to->alignment, sizeof p.alignment);
    if (!clv_layout_same_shards(from, to, mesh, e->shape)) {
        if (clv_reshard_find_subaxes(&p, from, to))
            plan_subaxes(e, &p, from, to);
        else
            plan_coarse(e, mesh, from, to);
    }
    e->n_subaxes = p.n_subaxes;
    find_peak(e, from);
}

clv_step_cost clv_reshard_step_cost(const clv_cost_model *cost, const clv_reshard_step *step, const int64_t *shape,
                                    clv_dtype dtype)
{
    clv_step_route route = clv_cost_route(cost, step->kind, step->axes, step->n_axes);
    clv_step_cost c = clv_cost_step(cost, step->kind, dtype, step->bytes, route);
    if (!clv_step_moves(step->kind) && !cost->slices_are_free) {
        int64_t elems = clv_layout_max_elems(&step->to, shape);
        c.start_s = c.seconds = clv_cost_copy_seconds(cost, (double)(elems * (int64_t)clv_dtype_size(dtype)));
    }
    return c;
}

static void predict_plan(emitter *e, const clv_cost_model *cost, clv_dtype dtype)
{
    for (int i = 0; i < e->plan.n_steps; i++) {
        clv_step_cost c = clv_reshard_step_cost(cost, &e->steps[i], e->shape, dtype);
        e->plan.seconds += c.seconds;
        e->plan.start_s += c.start_s;
    }
}

static void begin(emitter *e, const int64_t *shape, clv_dtype dtype)
{
    e->plan = (clv_reshard_plan){0};
    e->shape = shape;
    e->elem_size = (int64_t)clv_dtype_size(dtype);
}

/* With two links the search is cut short and may miss a plan that it finds for uniform links: takes that if better. */
static clv_status improve(emitter *e, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                          clv_dtype dtype, const clv_cost_model *cost, clv_error *err)
{
    clv_cost_model alike;
    emitter *other = malloc(sizeof *other);
    if (other == NULL)
        return clv_fail_memory(err, "a reshard plan", sizeof *other);
    clv_cost_model_make(&alike, mesh, NULL);
    begin(other, e->shape, dtype);
    plan(other, mesh, from, to, dtype, &alike);
    predict_plan(other, cost, dtype);
    if (clv_cost_compare(other->plan.seconds, e->plan.seconds) < 0)
        *e = *other;
    free(other);
    return CLV_OK;
}

clv_status clv_reshard_plan_make(clv_reshard_plan *out, clv_arena *arena, const clv_mesh *mesh, const clv_layout *from,
                                 const clv_layout *to, const int64_t *shape, clv_dtype dtype,
                                 const clv_cost_model *cost, bool by_bytes, clv_error *err)
{
    CLV_TRY(check(mesh, from, to, shape, dtype, err));
    emitter *e = malloc(sizeof *e); /* too large for a thread's stack */
    if (e == NULL)
        return clv_fail_memory(err, "a reshard plan", sizeof *e);
    clv_status status = CLV_OK;
    begin(e, shape, dtype);
    plan(e, mesh, from, to, dtype, by_bytes ? NULL : cost);
    if (cost)
        predict_plan(e, cost, dtype);
    if (cost && !by_bytes && !cost->uniform_links && e->n_subaxes <= FEW_SUBAXES)
        status = improve(e, mesh, from, to, dtype, cost, err);
    size_t size = (size_t)e->plan.n_steps * sizeof e->steps[0];
    e->plan.steps = clv_arena_copy(arena, e->steps, size);
    if (status == CLV_OK && !e->plan.steps)
        status = clv_fail_memory(err, "a reshard plan", size);
    if (status == CLV_OK)
        *out = e->plan;
    free(e);
    return status;
}

int64_t clv_reshard_lower_bound(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                const int64_t *shape, clv_dtype dtype)
{
    if (clv_layout_is_partial(from))
        return -1;
    return clv_layout_max_received_elems(to, from, mesh, shape) * (int64_t)clv_dtype_size(dtype);
}
