/* reshard_state.c - the reshard search's state: a layout as sub-axes per dimension, with byte counts and bounds. */
#include "partition/reshard/reshard_state.h"

#include <string.h>

#include "partition/reshard/axis_division.h"
#include "tensor/gcd.h"
#include "tensor/reshard_volume.h"

/* -- sub-axes -- */

/* Divides the sub-axes of `a` where a block count of `b` in the same dimension falls inside one: then a permute can
 * bring part of the blocks into place. */
static void divide_by_sizes(clv_axis_division *divisions, const clv_layout *a, const clv_layout *b)
{
    for (int d = 0; d < a->rank; d++) {
        int64_t blocks = 1;
        for (int i = a->begin[d]; i < a->begin[d + 1]; i++) {
            clv_subaxis sub = a->axes[i];
            int64_t other = 1;
            for (int j = b->begin[d]; j < b->begin[d + 1]; j++) {
                other *= b->axes[j].size;
                int64_t part = other / blocks;
                if (other % blocks != 0 || part <= 1 || part >= sub.size || sub.size % part != 0)
                    continue;
                clv_axis_division_add(&divisions[sub.axis], sub.pre * part);
            }
            blocks *= sub.size;
        }
    }
}

/* Whether every block of a layout has the same size. */
static bool is_even(const clv_layout *layout, const int64_t *shape)
{
    for (int d = 0; d < layout->rank; d++)
        if (shape[d] / layout->alignment[d] % clv_layout_block_count(layout, d) != 0)
            return false;
    return true;
}

/* Divides every axis into primes, unless that makes too many: for uneven shards, a part of an axis may shard a
 * dimension of 3 better than the whole. */
static void divide_into_primes(clv_axis_division *divisions, const clv_mesh *mesh)
{
    enum { FEW = 5 };
    clv_axis_division fine[CLV_MAX_AXES];
    int subaxes = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        fine[a] = divisions[a];
        for (int i = 0; i + 1 < fine[a].n; i++) {
            int64_t size = fine[a].at[i + 1] / fine[a].at[i], prime = 2;
            while (prime * prime <= size && size % prime != 0)
                prime++;
            if (subaxes++ > FEW)
                return;
            if (size % prime == 0 && prime < size)
                clv_axis_division_add(&fine[a], fine[a].at[i] * prime);
        }
    }
    if (subaxes <= FEW)
        memcpy(divisions, fine, (size_t)mesh->n_axes * sizeof *divisions);
}

/* Divides an axis that crosses hosts into the parts across and inside hosts: collectives may use the faster link first.
 * If hosts have 8 ranks, of an axis of 12 aligned runs of 4 are inside hosts. The axis of pipeline stages has one rank
 * in the problem, and all in the cost model. */
static void divide_by_hosts(clv_axis_division *divisions, const clv_mesh *mesh, const clv_cost_model *cost)
{
    int64_t left = cost->machine->ranks_per_host; /* ranks of a host, divided by those of inner axes */
    for (int a = mesh->n_axes - 1; a >= 0 && left > 1; a--) {
        int64_t size = cost->mesh.axis[a].size;
        if (mesh->axis[a].size > 1)
            clv_axis_division_add(&divisions[a], size / clv_gcd(size, left));
        left = left % size == 0 ? left / size : 1;
    }
}

static void find_inter_host_axes(clv_reshard_problem *problem)
{
    problem->inter_host = 0;
    problem->intra_host = 1;
    for (int a = 0; problem->cost && a < problem->n_subaxes; a++)
        if (clv_cost_crosses_hosts(problem->cost, &problem->subaxis[a], 1))
            problem->inter_host |= (clv_subaxis_set)1 << a;
        else
            problem->intra_host *= problem->subaxis[a].size;
}

bool clv_reshard_find_subaxes(clv_reshard_problem *problem, const clv_layout *from, const clv_layout *to)
{
    clv_axis_division divisions[CLV_MAX_AXES];
    const clv_mesh *mesh = problem->mesh;
    clv_axis_divisions_init(divisions, mesh);
    if (!clv_axis_divisions_add_layout(divisions, from) || !clv_axis_divisions_add_layout(divisions, to))
        return false;
    divide_by_sizes(divisions, from, to);
    divide_by_sizes(divisions, to, from);
    if (from->reduction != CLV_REDUCTION_NONE && !(is_even(from, problem->shape) && is_even(to, problem->shape)))
        divide_into_primes(divisions, mesh);
    if (problem->cost && !problem->cost->uniform_links)
        divide_by_hosts(divisions, mesh, problem->cost);
    problem->n_subaxes = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        for (int i = 0; i + 1 < divisions[a].n; i++) {
            if (problem->n_subaxes == CLV_MAX_SUBAXES)
                return false;
            problem->subaxis[problem->n_subaxes++] = clv_axis_division_subaxis(&divisions[a], a, i);
        }
    find_inter_host_axes(problem);
    return true;
}

/* -- states -- */

/* The parts of a layout's sub-axis are consecutive in the problem, major first; the first one. */
static int first_part(const clv_reshard_problem *problem, clv_subaxis sub)
{
    int i = 0;
    while (problem->subaxis[i].axis != sub.axis || problem->subaxis[i].pre != sub.pre)
        i++;
    return i;
}

void clv_reshard_state_from_layout(clv_reshard_state *out, const clv_reshard_problem *problem, const clv_layout *layout)
{
    memset(out, 0, sizeof *out);
    for (int d = 0; d <= layout->rank; d++) {
        for (int i = layout->begin[d]; i < layout->begin[d + 1]; i++) {
            int64_t left = layout->axes[i].size;
            for (int a = first_part(problem, layout->axes[i]); left > 1; left /= problem->subaxis[a++].size) {
                if (d < layout->rank) {
                    out->subaxis[d][out->n[d]++] = (uint8_t)a;
                    out->cut |= (clv_subaxis_set)1 << a;
                } else
                    out->partial |= (clv_subaxis_set)1 << a;
            }
        }
        if (d < layout->rank)
            out->alignment[d] = layout->alignment[d];
    }
}

clv_layout clv_reshard_state_to_layout(const clv_reshard_problem *problem, const clv_reshard_state *state)
{
    clv_layout layout = clv_layout_replicated(problem->rank);
    clv_subaxis subs[CLV_MAX_SUBAXES];
    for (int d = 0; d <= problem->rank; d++) {
        int n = 0, begin = layout.begin[d];
        if (d < problem->rank) {
            for (; n < state->n[d]; n++)
                subs[n] = problem->subaxis[state->subaxis[d][n]];
            layout.alignment[d] = state->alignment[d];
        } else
            for (int a = 0; a < problem->n_subaxes; a++)
                if ((state->partial >> a & 1u) != 0)
                    subs[n++] = problem->subaxis[a];
        n = clv_subaxes_normalize(subs, n);
        memcpy(layout.axes + begin, subs, (size_t)n * sizeof subs[0]);
        layout.begin[d + 1] = (uint8_t)(begin + n);
    }
    layout.reduction = state->partial != 0 ? problem->reduction : CLV_REDUCTION_NONE;
    return layout;
}

void clv_reshard_state_append(clv_reshard_state *state, const clv_reshard_problem *problem, int d, int subaxis)
{
    if (state->n[d] == 0)
        state->alignment[d] = problem->alignment[d];
    state->subaxis[d][state->n[d]++] = (uint8_t)subaxis;
    state->cut |= (clv_subaxis_set)1 << subaxis;
}

void clv_reshard_state_truncate(clv_reshard_state *state, int d, int count)
{
    for (; count > 0; count--)
        state->cut &= ~((clv_subaxis_set)1 << state->subaxis[d][--state->n[d]]);
    if (state->n[d] == 0)
        state->alignment[d] = 1;
}

bool clv_reshard_state_is_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d)
{
    if (a->n[d] == 0)
        return true;
    return a->n[d] <= b->n[d] && a->alignment[d] == b->alignment[d] &&
           memcmp(a->subaxis[d], b->subaxis[d], a->n[d]) == 0;
}

bool clv_reshard_state_equal(const clv_reshard_problem *problem, const clv_reshard_state *a, const clv_reshard_state *b)
{
    for (int d = 0; d < problem->rank; d++)
        if (a->n[d] != b->n[d] || !clv_reshard_state_is_prefix(a, b, d))
            return false;
    return a->partial == b->partial;
}

/* -- sizes -- */

int64_t clv_reshard_group_size(const clv_reshard_problem *problem, clv_subaxis_set subaxes)
{
    int64_t size = 1;
    for (; subaxes != 0; subaxes &= subaxes - 1)
        size *= problem->subaxis[__builtin_ctz(subaxes)].size;
    return size;
}

int64_t clv_reshard_blocks(const clv_reshard_problem *problem, const clv_reshard_state *state, int d)
{
    int64_t blocks = 1;
    for (int i = 0; i < state->n[d]; i++)
        blocks *= problem->subaxis[state->subaxis[d][i]].size;
    return blocks;
}

int64_t clv_reshard_local_bytes(const clv_reshard_problem *problem, const clv_reshard_state *state)
{
    int64_t bytes = problem->elem_size;
    for (int d = 0; d < problem->rank; d++) {
        int64_t units = problem->shape[d] / state->alignment[d], blocks = clv_reshard_blocks(problem, state, d);
        bytes *= (units + blocks - 1) / blocks * state->alignment[d];
    }
    return bytes;
}

int64_t clv_reshard_missing_bytes(const clv_reshard_problem *problem, const clv_reshard_state *to,
                                  const clv_reshard_state *from)
{
    clv_layout a = clv_reshard_state_to_layout(problem, to), b = clv_reshard_state_to_layout(problem, from);
    return clv_max_received_elems(&a, &b, problem->mesh, problem->shape) * problem->elem_size;
}

double clv_reshard_step_bytes(const clv_reshard_problem *p, clv_step_kind kind, const clv_reshard_state *from,
                              const clv_reshard_state *to)
{
    double n = (double)clv_reshard_group_size(p, from->partial & ~to->partial);
    if (kind == CLV_STEP_REDUCE_SCATTER)
        return (n - 1) * (double)clv_reshard_local_bytes(p, to);
    if (kind == CLV_STEP_ALL_REDUCE)
        return 2 * (double)clv_reshard_local_bytes(p, from) * (n - 1) / n;
    return clv_step_moves(kind) ? (double)clv_reshard_missing_bytes(p, to, from) : 0;
}

/* -- scores -- */

int clv_reshard_state_common_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d)
{
    int i = 0;
    if (a->n[d] > 0 && b->n[d] > 0 && a->alignment[d] != b->alignment[d])
        return 0;
    while (i < a->n[d] && i < b->n[d] && a->subaxis[d][i] == b->subaxis[d][i])
        i++;
    return i;
}

/* The sub-axes of a step's groups: those that it reduces, else those that shard dimensions differently afterwards. */
static clv_subaxis_set group_axes(const clv_reshard_problem *problem, const clv_reshard_state *from,
                                  const clv_reshard_state *to)
{
    clv_subaxis_set reduced = from->partial & ~to->partial, subaxes = 0;
    for (int d = 0; d < problem->rank; d++) {
        int same = clv_reshard_state_common_prefix(from, to, d);
        for (int i = same; i < from->n[d]; i++)
            subaxes |= (clv_subaxis_set)1 << from->subaxis[d][i];
        for (int i = same; i < to->n[d]; i++)
            subaxes |= (clv_subaxis_set)1 << to->subaxis[d][i];
    }
    return reduced != 0 ? reduced : subaxes;
}

static clv_step_route route_over(const clv_reshard_problem *problem, clv_step_kind kind, clv_subaxis_set subaxes)
{
    clv_subaxis axes[CLV_MAX_SUBAXES];
    int n = 0;
    for (clv_subaxis_set left = subaxes; left != 0; left &= left - 1)
        axes[n++] = problem->subaxis[__builtin_ctz(left)];
    return clv_cost_route(problem->cost, kind, axes, n);
}

double clv_reshard_score(const clv_reshard_problem *problem, clv_step_kind kind, double bytes,
                         const clv_reshard_state *from, const clv_reshard_state *to)
{
    if (problem->cost == NULL || !clv_step_moves(kind))
        return problem->cost == NULL ? bytes : 0;
    bool is_uniform = problem->inter_host == 0 && !problem->cost->machine->through_root;
    clv_step_route route = is_uniform ? (clv_step_route){0} : route_over(problem, kind, group_axes(problem, from, to));
    return clv_cost_step(problem->cost, kind, problem->dtype, bytes, route).seconds;
}

double clv_reshard_score_bound(const clv_reshard_problem *problem, double bytes, int moves, double network_bytes)
{
    return problem->cost != NULL
               ? clv_cost_step_seconds_bound(problem->cost, problem->dtype, bytes, moves, network_bytes)
               : bytes;
}

double clv_reshard_inter_host_bytes_bound(const clv_reshard_problem *problem, clv_subaxis_set from_cut,
                                          clv_subaxis_set to_cut)
{
    clv_subaxis_set lost = from_cut & ~to_cut & problem->inter_host;
    if (lost == 0)
        return 0;
    double bytes = (double)problem->elem_size / (double)clv_reshard_group_size(problem, to_cut & problem->inter_host);
    for (int d = 0; d < problem->rank; d++)
        bytes *= (double)problem->shape[d];
    return bytes * (1 - 1 / (double)clv_reshard_group_size(problem, lost)) / problem->intra_host;
}

bool clv_reshard_mixes_links(const clv_reshard_problem *problem, const clv_reshard_state *from,
                             const clv_reshard_state *to)
{
    clv_subaxis_set axes = problem->inter_host != 0 ? group_axes(problem, from, to) : 0;
    return (axes & problem->inter_host) != 0 && (axes & ~problem->inter_host) != 0;
}

/* -- drafts -- */

void clv_reshard_draft_push(clv_reshard_draft *draft, const clv_reshard_problem *problem, clv_step_kind kind,
                            const clv_reshard_state *from, const clv_reshard_state *to, double bytes)
{
    draft->kind[draft->n] = kind;
    draft->bytes[draft->n] = bytes;
    draft->score[draft->n] = clv_reshard_score(problem, kind, bytes, from, to);
    draft->state[draft->n++] = *to;
}
