/* layout.c - layouts (sharding of a tensor over mesh axes): build, query, check and normalize. Every function leaves
 * a layout in normal form.
 */
#include "cleave/layout.h"

#include <string.h>

#include "base/error.h"

clv_layout clv_layout_replicated(int rank)
{
    rank = rank < 0 || rank > CLV_MAX_RANK ? 0 : rank;
    clv_layout layout = {.rank = rank};
    for (int d = 0; d < CLV_MAX_RANK; d++)
        layout.alignment[d] = 1;
    return layout;
}

/* ---- sub-axes ---- */

static bool is_valid_subaxis(clv_subaxis sub)
{
    return sub.pre >= 1 && sub.size >= 1;
}

/* x:(p)s covers the factors [p, p*s) of the axis. Two are disjoint only if one's end divides the other's start:
 * with 6 = 2*3 = 3*2, x:(1)2 and x:(3)2 do not overlap as numbers, yet share coordinates. */
bool clv_subaxis_overlap(clv_subaxis a, clv_subaxis b)
{
    if (a.axis != b.axis || a.size == 1 || b.size == 1 || !is_valid_subaxis(a) || !is_valid_subaxis(b))
        return false;
    return b.pre % ((int64_t)a.pre * a.size) != 0 && a.pre % ((int64_t)b.pre * b.size) != 0;
}

bool clv_subaxis_contains(clv_subaxis sub, clv_subaxis part)
{
    return sub.axis == part.axis && is_valid_subaxis(sub) && is_valid_subaxis(part) && part.pre % sub.pre == 0 &&
           ((int64_t)sub.pre * sub.size) % ((int64_t)part.pre * part.size) == 0;
}

int clv_subaxes_normalize(clv_subaxis *subs, int n)
{
    if (!subs)
        return 0;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        clv_subaxis *last = kept > 0 ? &subs[kept - 1] : NULL;
        if (subs[i].size == 1)
            continue;
        if (last != NULL && last->axis == subs[i].axis && (int64_t)last->pre * last->size == subs[i].pre &&
            (int64_t)last->size * subs[i].size <= INT32_MAX)
            last->size *= subs[i].size;
        else
            subs[kept++] = subs[i];
    }
    return kept;
}

static bool comes_before(clv_subaxis a, clv_subaxis b)
{
    return a.axis != b.axis ? a.axis < b.axis : a.pre < b.pre;
}

static void sort_subaxes(clv_subaxis *subs, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && comes_before(subs[j], subs[j - 1]); j--) {
            clv_subaxis swap = subs[j];
            subs[j] = subs[j - 1];
            subs[j - 1] = swap;
        }
}

static clv_status check_subaxis(clv_subaxis sub, const clv_mesh *mesh, clv_error *err)
{
    if (sub.axis < 0 || sub.axis >= mesh->n_axes || sub.axis >= CLV_MAX_AXES)
        return clv_fail(err, CLV_EAXIS, "layout: axis index %d; the mesh has %d axes", (int)sub.axis, mesh->n_axes);
    const clv_axis *axis = &mesh->axis[sub.axis];
    if (sub.pre < 1 || sub.size < 1 || axis->size % ((int64_t)sub.pre * sub.size) != 0)
        return clv_fail(err, CLV_EAXIS, "layout: sub-axis %s:(%d)%d does not divide axis %s of size %lld", axis->name,
                        (int)sub.pre, (int)sub.size, axis->name, (long long)axis->size);
    return CLV_OK;
}

/* ---- queries ---- */

/* Whether d is a dimension, or rank for the partial axes, and its range of axes is valid. */
static bool is_dim_or_partial(const clv_layout *layout, int d)
{
    return layout && d >= 0 && d <= layout->rank && d <= CLV_MAX_RANK && layout->begin[d] <= layout->begin[d + 1] &&
           layout->begin[d + 1] <= CLV_MAX_SUBAXES;
}

int clv_layout_axes(const clv_subaxis **out, const clv_layout *layout, int d)
{
    if (!out || !is_dim_or_partial(layout, d))
        return 0;
    *out = layout->axes + layout->begin[d];
    return layout->begin[d + 1] - layout->begin[d];
}

int64_t clv_layout_block_count(const clv_layout *layout, int d)
{
    if (!is_dim_or_partial(layout, d))
        return 0;
    int64_t blocks = 1;
    for (int i = layout->begin[d]; i < layout->begin[d + 1] && blocks > 0; i++) {
        blocks *= layout->axes[i].size;
        blocks = blocks <= INT32_MAX ? blocks : 0;
    }
    return blocks > 0 ? blocks : 0;
}

int64_t clv_layout_block_index(const clv_layout *layout, const clv_mesh *mesh, int d, int64_t rank)
{
    if (!mesh || clv_layout_block_count(layout, d) == 0)
        return 0;
    int64_t block = 0;
    for (int i = layout->begin[d]; i < layout->begin[d + 1]; i++)
        block = block * layout->axes[i].size + clv_mesh_coordinate(mesh, layout->axes[i], rank);
    return block;
}

bool clv_layout_uses_subaxis(const clv_layout *layout, clv_subaxis sub)
{
    if (!layout || !is_dim_or_partial(layout, layout->rank))
        return false;
    for (int i = 0; i < layout->begin[layout->rank + 1]; i++)
        if (clv_subaxis_overlap(layout->axes[i], sub))
            return true;
    return false;
}

bool clv_layout_is_partial(const clv_layout *layout)
{
    return layout && layout->reduction != CLV_REDUCTION_NONE;
}

bool clv_layout_equal(const clv_layout *a, const clv_layout *b)
{
    if (!a || !b || !is_dim_or_partial(a, a->rank))
        return false;
    if (a->rank != b->rank || a->reduction != b->reduction || a->stage_axis != b->stage_axis || a->stages != b->stages)
        return false;
    for (int d = 0; d <= a->rank + 1; d++)
        if (a->begin[d] != b->begin[d])
            return false;
    for (int d = 0; d < a->rank; d++)
        if (a->alignment[d] != b->alignment[d])
            return false;
    return memcmp(a->axes, b->axes, a->begin[a->rank + 1] * sizeof a->axes[0]) == 0;
}

/* ---- building ---- */

/* Checks that the range of axes of each dimension, and of the partial axes, is valid. */
static clv_status check_ranges(const clv_layout *layout, clv_error *err)
{
    if (layout->rank < 0 || layout->rank > CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT, "layout: %d dimensions; a tensor has 0 to %d", layout->rank, CLV_MAX_RANK);
    if (layout->begin[0] != 0)
        return clv_fail(err, CLV_EINVAL, "layout: the axes of dimension 0 begin at %d", layout->begin[0]);
    for (int d = 0; d <= layout->rank; d++)
        if (!is_dim_or_partial(layout, d))
            return clv_fail(err, CLV_EINVAL, "layout: the axes of dimension %d end at %d", d, layout->begin[d + 1]);
    return CLV_OK;
}

/* Replaces the axes of dimension d (rank: the partial axes) by n others, and checks the invariants. */
static clv_status replace_axes(clv_layout *layout, const clv_mesh *mesh, int d, const clv_subaxis *subs, int n,
                               clv_error *err)
{
    clv_layout next = *layout;
    int end = layout->begin[layout->rank + 1], tail = end - layout->begin[d + 1];
    clv_subaxis fresh[2 * CLV_MAX_SUBAXES];
    if (n < 0 || n > 2 * CLV_MAX_SUBAXES)
        return clv_fail(err, CLV_ELIMIT, "layout: %d sub-axes; at most %d", n, CLV_MAX_SUBAXES);
    for (int j = 0; j < end; j++)
        CLV_TRY(check_subaxis(layout->axes[j], mesh, err));
    for (int i = 0; i < n; i++) {
        fresh[i] = subs[i];
        CLV_TRY(check_subaxis(fresh[i], mesh, err));
        for (int j = 0; j < end; j++)
            if ((j < layout->begin[d] || j >= layout->begin[d + 1]) && clv_subaxis_overlap(layout->axes[j], fresh[i]))
                return clv_fail(err, CLV_EAXIS, "layout: axis %s is used twice", mesh->axis[fresh[i].axis].name);
        for (int j = 0; j < i; j++)
            if (clv_subaxis_overlap(fresh[j], fresh[i]))
                return clv_fail(err, CLV_EAXIS, "layout: axis %s is used twice", mesh->axis[fresh[i].axis].name);
    }
    if (d == layout->rank)
        sort_subaxes(fresh, n);
    n = clv_subaxes_normalize(fresh, n);
    if (layout->begin[d] + n + tail > CLV_MAX_SUBAXES)
        return clv_fail(err, CLV_ELIMIT, "layout: more than %d sub-axes", CLV_MAX_SUBAXES);
    memcpy(next.axes + next.begin[d], fresh, (size_t)n * sizeof *fresh);
    memcpy(next.axes + next.begin[d] + n, layout->axes + layout->begin[d + 1], (size_t)tail * sizeof *fresh);
    for (int e = d + 1; e <= layout->rank + 1; e++)
        next.begin[e] = (uint8_t)(layout->begin[e] - layout->begin[d + 1] + layout->begin[d] + n);
    *layout = next;
    return CLV_OK;
}

clv_status clv_layout_set_dim(clv_layout *layout, const clv_mesh *mesh, int d, const clv_subaxis *subs, int n,
                              int64_t alignment, clv_error *err)
{
    CLV_TRY(clv_require_count(n, 0, __func__, "sub-axes", err));
    CLV_TRY(clv_require(layout && mesh && (subs || n == 0), __func__, "a layout, a mesh and sub-axes", err));
    CLV_TRY(check_ranges(layout, err));
    if (d < 0 || d >= layout->rank)
        return clv_fail(err, CLV_EINVAL, "layout: dimension %d of a tensor with %d", d, layout->rank);
    if (alignment < 1)
        return clv_fail(err, CLV_EINVAL, "layout: alignment %lld; at least 1", (long long)alignment);
    CLV_TRY(replace_axes(layout, mesh, d, subs, n, err));
    layout->alignment[d] = layout->begin[d + 1] > layout->begin[d] ? alignment : 1;
    return CLV_OK;
}

clv_status clv_layout_shard_dim(clv_layout *layout, const clv_mesh *mesh, int d, clv_subaxis sub, clv_error *err)
{
    CLV_TRY(clv_require(layout && mesh, __func__, "a layout and a mesh", err));
    clv_subaxis subs[CLV_MAX_SUBAXES + 1];
    const clv_subaxis *old;
    CLV_TRY(check_ranges(layout, err));
    if (d < 0 || d >= layout->rank)
        return clv_fail(err, CLV_EINVAL, "layout: dimension %d of a tensor with %d", d, layout->rank);
    int n = clv_layout_axes(&old, layout, d);
    memcpy(subs, old, (size_t)n * sizeof *old);
    subs[n] = sub;
    return clv_layout_set_dim(layout, mesh, d, subs, n + 1, layout->alignment[d], err);
}

clv_status clv_layout_add_partial(clv_layout *layout, const clv_mesh *mesh, clv_reduction reduction, clv_subaxis sub,
                                  clv_error *err)
{
    CLV_TRY(clv_require(layout && mesh, __func__, "a layout and a mesh", err));
    clv_subaxis subs[CLV_MAX_SUBAXES + 1];
    const clv_subaxis *old;
    CLV_TRY(check_ranges(layout, err));
    int n = clv_layout_axes(&old, layout, layout->rank);
    if (reduction != CLV_REDUCTION_SUM && reduction != CLV_REDUCTION_MAX)
        return clv_fail(err, CLV_EINVAL, "layout: a partial tensor combines by sum or max");
    if (n > 0 && layout->reduction != reduction)
        return clv_fail(err, CLV_EINVAL, "layout: partial sums and maxima do not mix in one tensor");
    memcpy(subs, old, (size_t)n * sizeof *old);
    subs[n] = sub;
    CLV_TRY(replace_axes(layout, mesh, layout->rank, subs, n + 1, err));
    layout->reduction = layout->begin[layout->rank + 1] > layout->begin[layout->rank] ? reduction : CLV_REDUCTION_NONE;
    return CLV_OK;
}

clv_layout clv_layout_without_partial(const clv_layout *layout)
{
    if (!layout || check_ranges(layout, NULL) != CLV_OK)
        return clv_layout_replicated(0);
    clv_layout whole = *layout;
    whole.begin[whole.rank + 1] = whole.begin[whole.rank];
    whole.reduction = CLV_REDUCTION_NONE;
    return whole;
}

/* Bits of all coordinates of a mesh axis; 0: too many. */
static uint32_t all_stages(const clv_mesh *mesh, int axis)
{
    const int64_t n = mesh->axis[axis].size;
    return n > CLV_MAX_STAGES ? 0 : n == CLV_MAX_STAGES ? UINT32_MAX : (1u << n) - 1;
}

static clv_status check_stages(const clv_layout *layout, const clv_mesh *mesh, int axis, uint32_t stages,
                               clv_error *err)
{
    if (axis < 0 || axis >= mesh->n_axes)
        return clv_fail(err, CLV_EAXIS, "layout: stages of axis index %d; the mesh has %d axes", axis, mesh->n_axes);
    const uint32_t all = all_stages(mesh, axis);
    if (all == 0)
        return clv_fail(err, CLV_EAXIS, "layout: axis %s has %lld stages; valid: at most %d", mesh->axis[axis].name,
                        (long long)mesh->axis[axis].size, CLV_MAX_STAGES);
    if (stages == 0 || (stages & ~all))
        return clv_fail(err, CLV_EINVAL, "layout: stages 0x%x of axis %s; valid: some of 0x%x", stages,
                        mesh->axis[axis].name, all);
    for (int i = 0; i < layout->begin[layout->rank + 1]; i++)
        if (layout->axes[i].axis == axis)
            return clv_fail(err, CLV_EAXIS, "layout: axis %s has the stages, so it splits no dimension",
                            mesh->axis[axis].name);
    return CLV_OK;
}

clv_status clv_layout_set_stages(clv_layout *layout, const clv_mesh *mesh, int axis, uint32_t stages, clv_error *err)
{
    CLV_TRY(clv_require(layout && mesh, __func__, "a layout and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    CLV_TRY(check_ranges(layout, err));
    CLV_TRY(check_stages(layout, mesh, axis, stages, err));
    const bool all = stages == all_stages(mesh, axis);
    layout->stage_axis = all ? 0 : (uint8_t)(axis + 1);
    layout->stages = all ? 0 : stages;
    return CLV_OK;
}

bool clv_layout_has_rank(const clv_layout *layout, const clv_mesh *mesh, int64_t rank)
{
    if (!layout || !mesh || layout->stage_axis == 0 || layout->stage_axis > mesh->n_axes)
        return layout && mesh;
    const int64_t stage = clv_mesh_coordinate(mesh, clv_mesh_whole_axis(mesh, layout->stage_axis - 1), rank);
    return stage >= 0 && stage < CLV_MAX_STAGES && (layout->stages >> stage & 1);
}

/* ---- invariants ---- */

static clv_status check_dims(const clv_layout *layout, const int64_t *shape, clv_error *err)
{
    for (int d = 0; d < layout->rank; d++) {
        long long alignment = (long long)layout->alignment[d];
        if (alignment < 1)
            return clv_fail(err, CLV_EINVAL, "layout: alignment %lld of dimension %d; at least 1", alignment, d);
        if (alignment != 1 && layout->begin[d] == layout->begin[d + 1])
            return clv_fail(err, CLV_EINVAL, "layout: dimension %d is not cut, yet has alignment %lld", d, alignment);
        if (shape != NULL && shape[d] < 0)
            return clv_fail(err, CLV_ESHAPE, "layout: dimension %d has size %lld", d, (long long)shape[d]);
        if (shape != NULL && shape[d] % alignment != 0)
            return clv_fail(err, CLV_ESHAPE, "layout: alignment %lld does not divide dimension %d of size %lld",
                            alignment, d, (long long)shape[d]);
    }
    return CLV_OK;
}

static clv_status check_axes(const clv_layout *layout, const clv_mesh *mesh, clv_error *err)
{
    int end = layout->begin[layout->rank + 1];
    for (int i = 0; i < end; i++) {
        clv_subaxis sub = layout->axes[i];
        CLV_TRY(check_subaxis(sub, mesh, err));
        if (sub.size == 1)
            return clv_fail(err, CLV_EINVAL, "layout: not in normal form: sub-axis of size 1");
        for (int j = 0; j < i; j++)
            if (clv_subaxis_overlap(layout->axes[j], sub))
                return clv_fail(err, CLV_EAXIS, "layout: axis %s is used twice", mesh->axis[sub.axis].name);
    }
    for (int d = 0; d <= layout->rank; d++)
        for (int i = layout->begin[d] + 1; i < layout->begin[d + 1]; i++) {
            clv_subaxis pair[2] = {layout->axes[i - 1], layout->axes[i]};
            if (d == layout->rank && comes_before(pair[1], pair[0]))
                return clv_fail(err, CLV_EINVAL, "layout: not in normal form: partial axes are not sorted");
            if (clv_subaxes_normalize(pair, 2) != 2)
                return clv_fail(err, CLV_EINVAL, "layout: not in normal form: neighbours of axis %s are not merged",
                                mesh->axis[pair[0].axis].name);
        }
    return CLV_OK;
}

clv_status clv_layout_check(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, clv_error *err)
{
    CLV_TRY(clv_require(layout && mesh, __func__, "a layout and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    CLV_TRY(check_ranges(layout, err));
    if ((layout->reduction != CLV_REDUCTION_NONE) != (layout->begin[layout->rank + 1] > layout->begin[layout->rank]))
        return clv_fail(err, CLV_EINVAL, "layout: a reduction and partial axes go together");
    if ((unsigned)layout->reduction > CLV_REDUCTION_MAX)
        return clv_fail(err, CLV_EINVAL, "layout: unknown reduction %d", (int)layout->reduction);
    CLV_TRY(check_dims(layout, shape, err));
    if (layout->stage_axis > 0)
        CLV_TRY(check_stages(layout, mesh, layout->stage_axis - 1, layout->stages, err));
    if ((layout->stage_axis > 0) != (layout->stages > 0) ||
        (layout->stages > 0 && layout->stages == all_stages(mesh, layout->stage_axis - 1)))
        return clv_fail(err, CLV_EINVAL,
                        "layout: not in normal form: stages and their axis go together, and some stage "
                        "lacks the tensor");
    return check_axes(layout, mesh, err);
}
