/* reshard_collective_search.c - layout changes without reduction: all_gather, all_to_all, permute, or exchange.
 *
 * In: two states that are partial alike. Out: steps from one to the other. No plan moves less than max over ranks of
 * |to_r \ from_r|, and an exchange moves exactly that. So the search considers only sequences *without slack*: after
 * each step its bytes and the bytes still missing must add up to the bound, which leaves few states. It deepens by the
 * number of collectives, so the first depth with a solution is the shortest; among equals the one with the least memory
 * wins. If only some axes cross hosts, more steps may take less time: first over the network while shards are small,
 * then inside hosts. Where that needs the sub-axes across hosts to be innermost, one step with slack makes them so.
 *
 *   all_gather  one dimension loses its innermost sub-axes
 *   all_to_all  some dimensions lose their innermost sub-axes, others gain them as innermost ones, in one step
 *   permute     every dimension keeps its number of blocks; ranks swap whole shards
 *   exchange    anything else: every rank receives exactly the elements that it lacks
 */
#include <stdbool.h>
#include <string.h>

#include "partition/reshard/reshard_state.h"

typedef struct search {
    const clv_reshard_problem *problem;
    const clv_reshard_state *from, *to;
    int budget;
    clv_reshard_draft *path, *best;
    bool mixed; /* clv_reshard_mixes_links */
    bool slack; /* the first step of the path is one of make_inter_host_innermost */
    bool found;
    double best_score; /* of an exchange until something is found */
    int64_t best_held;
} search;

/* -- naming a step -- */

static bool is_permute(const clv_reshard_problem *p, const clv_reshard_state *from, const clv_reshard_state *to)
{
    for (int d = 0; d < p->rank; d++)
        if (from->alignment[d] != to->alignment[d] || clv_reshard_blocks(p, from, d) != clv_reshard_blocks(p, to, d))
            return false;
    return true;
}

/* The collective that leads from -> to in one step; CLV_STEP_EXCHANGE if none does. */
static clv_step_kind name_step(const clv_reshard_problem *p, const clv_reshard_state *from, const clv_reshard_state *to)
{
    clv_subaxis_set lost = from->cut & ~to->cut, gained = to->cut & ~from->cut, moved = 0;
    int shrinking = 0;
    bool one_way = true; /* no dimension both loses and gains */
    for (int d = 0; d < p->rank; d++) {
        int same = clv_reshard_state_common_prefix(from, to, d);
        one_way &= same == from->n[d] || same == to->n[d];
        shrinking += same < from->n[d];
        for (int i = same; i < from->n[d]; i++)
            moved |= (clv_subaxis_set)1 << from->subaxis[d][i];
    }
    if (one_way && gained == 0 && lost == moved)
        return shrinking == 1 ? CLV_STEP_ALL_GATHER : CLV_STEP_EXCHANGE;
    if (one_way && gained == 0 && lost == 0)
        return CLV_STEP_ALL_TO_ALL;
    return is_permute(p, from, to) ? CLV_STEP_PERMUTE : CLV_STEP_EXCHANGE;
}

/* -- candidates for a next state -- */

/* Slices dimensions by unused sub-axes as far towards `to` as possible. */
static void slice_toward(clv_reshard_state *s, const search *q)
{
    for (int d = 0; d < q->problem->rank; d++)
        while (s->n[d] < q->to->n[d] && clv_reshard_state_is_prefix(s, q->to, d) &&
               ((s->cut | s->partial) >> q->to->subaxis[d][s->n[d]] & 1u) == 0)
            clv_reshard_state_append(s, q->problem, d, q->to->subaxis[d][s->n[d]]);
}

/* Appends unused sub-axes of the set `choice`, in order, until dimension d has `blocks` blocks. */
static bool fill(clv_reshard_state *s, const clv_reshard_problem *p, int d, int64_t blocks, clv_subaxis_set choice)
{
    int64_t have = clv_reshard_blocks(p, s, d);
    for (int a = 0; a < p->n_subaxes && have < blocks; a++)
        if ((choice & ~s->cut & ~s->partial) >> a & 1u && blocks % (have * p->subaxis[a].size) == 0) {
            clv_reshard_state_append(s, p, d, a);
            have *= p->subaxis[a].size;
        }
    return have == blocks;
}

/* Slices every dimension by unused sub-axes into as many blocks as `to` has, so that a permute can finish. */
static bool slice_to_sizes(clv_reshard_state *s, const search *q)
{
    const clv_reshard_problem *p = q->problem;
    for (int d = 0; d < p->rank; d++) {
        clv_subaxis_set wanted = 0;
        int64_t blocks = clv_reshard_blocks(p, q->to, d);
        for (int i = 0; i < q->to->n[d]; i++)
            wanted |= (clv_subaxis_set)1 << q->to->subaxis[d][i];
        if (blocks % clv_reshard_blocks(p, s, d) != 0)
            return false;
        if (!fill(s, p, d, blocks, wanted) && !fill(s, p, d, blocks, ~(clv_subaxis_set)0))
            return false;
    }
    return true;
}

/* The permute after which each dimension is sharded as in `to`, as far as its number of blocks allows; the other blocks
 * are made by sub-axes that are gathered, or moved elsewhere, later. */
static bool permute_toward(clv_reshard_state *s, const clv_reshard_state *from, const search *q)
{
    const clv_reshard_problem *p = q->problem;
    memset(s, 0, sizeof *s);
    s->partial = from->partial;
    for (int d = 0; d < p->rank; d++) {
        int64_t blocks = clv_reshard_blocks(p, from, d), have = 1;
        s->alignment[d] = from->alignment[d];
        for (int i = 0; i < q->to->n[d] && from->alignment[d] == q->to->alignment[d]; i++) {
            have *= p->subaxis[q->to->subaxis[d][i]].size;
            if (blocks % have != 0)
                break;
            s->subaxis[d][s->n[d]++] = q->to->subaxis[d][i];
            s->cut |= (clv_subaxis_set)1 << q->to->subaxis[d][i];
        }
    }
    for (int d = 0; d < p->rank; d++) {
        int64_t blocks = clv_reshard_blocks(p, from, d), alignment = s->alignment[d];
        clv_subaxis_set own = 0;
        for (int i = 0; i < from->n[d]; i++)
            own |= (clv_subaxis_set)1 << from->subaxis[d][i];
        bool filled = fill(s, p, d, blocks, own & ~q->to->cut) || fill(s, p, d, blocks, own) ||
                      fill(s, p, d, blocks, ~(clv_subaxis_set)0);
        s->alignment[d] = alignment;
        if (!filled)
            return false;
    }
    return true;
}

/* Number of innermost sub-axes of dimension d that are in the set. */
static int suffix_in(const clv_reshard_state *s, int d, clv_subaxis_set set)
{
    int count = 0;
    while (count < s->n[d] && (set >> s->subaxis[d][s->n[d] - 1 - count] & 1u) != 0)
        count++;
    return count;
}

/* The all_to_all after which dimensions (all, or `only`) have gained the next sub-axes of `to` that are innermost in
 * other dimensions. False if there are none. */
static bool all_to_all_toward(clv_reshard_state *s, const search *q, int only)
{
    const clv_reshard_problem *p = q->problem;
    int gain[CLV_MAX_RANK] = {0};
    clv_subaxis_set wanted, ready;
    for (int d = 0; d < p->rank; d++)
        if ((only < 0 || d == only) && clv_reshard_state_is_prefix(s, q->to, d))
            gain[d] = q->to->n[d] - s->n[d];
    do { /* drop sub-axes that are wanted but not innermost elsewhere, until all are */
        wanted = ready = 0;
        for (int d = 0; d < p->rank; d++)
            for (int i = 0; i < gain[d]; i++)
                wanted |= (clv_subaxis_set)1 << q->to->subaxis[d][s->n[d] + i];
        for (int d = 0; d < p->rank; d++)
            for (int i = gain[d] == 0 ? suffix_in(s, d, wanted) : 0; i > 0; i--)
                ready |= (clv_subaxis_set)1 << s->subaxis[d][s->n[d] - i];
        for (int d = 0; d < p->rank; d++)
            for (int i = 0; i < gain[d]; i++)
                if ((ready >> q->to->subaxis[d][s->n[d] + i] & 1u) == 0)
                    gain[d] = i;
    } while (wanted != ready);
    if (wanted == 0)
        return false;
    for (int d = 0; d < p->rank; d++)
        if (gain[d] == 0)
            clv_reshard_state_truncate(s, d, suffix_in(s, d, wanted));
    for (int d = 0; d < p->rank; d++)
        for (int i = 0; i < gain[d]; i++)
            clv_reshard_state_append(s, p, d, q->to->subaxis[d][s->n[d]]);
    return true;
}

/* -- the search -- */

/* Extends the path by a step of so many bytes. */
static void extend(search *q, clv_step_kind kind, const clv_reshard_state *state, int64_t bytes)
{
    const clv_reshard_state *from = q->path->n > 0 ? &q->path->state[q->path->n - 1] : q->from;
    clv_reshard_draft_push(q->path, q->problem, kind, from, state, (double)bytes);
}

/* Peak memory of the path: input and output of a step; a slice of the start is a view. */
static int64_t held_bytes(const search *q)
{
    int64_t most = 0, in = clv_reshard_local_bytes(q->problem, q->from);
    for (int i = 0; i < q->path->n; i++) {
        int64_t out = clv_reshard_local_bytes(q->problem, &q->path->state[i]);
        if (i == 0 && q->path->n > 1 && q->path->kind[i] == CLV_STEP_SLICE)
            continue;
        most = in + out > most ? in + out : most;
        in = out;
    }
    return most;
}

/* Whether a path needs no more memory than its two ends together, as an exchange does. Gathers over several dimensions
 * may need half of the result more. */
static bool fits(const search *q, int64_t held)
{
    bool gathers = true;
    for (int i = 0; i < q->path->n; i++)
        gathers &=
            q->path->kind[i] == CLV_STEP_ALL_GATHER || (i == 0 && (q->path->kind[i] == CLV_STEP_SLICE || q->slack));
    return gathers || held <= clv_reshard_local_bytes(q->problem, q->from) + clv_reshard_local_bytes(q->problem, q->to);
}

static double path_score(const search *q)
{
    double score = 0;
    for (int i = 0; i < q->path->n; i++)
        score += q->path->score[i];
    return score;
}

/* Whether a path becomes the best: no worse than an exchange, or better than the best, or equal with less memory. */
static bool is_taken(const search *q, double score, int64_t held)
{
    int order = clv_cost_compare(score, q->best_score);
    return q->found ? order < 0 || (order == 0 && held < q->best_held) : order <= 0;
}

/* Ends the path with a step of so many bytes to `to`. */
static void finish(search *q, clv_step_kind kind, int64_t missing)
{
    extend(q, kind, q->to, missing);
    int64_t held = held_bytes(q);
    double score = path_score(q);
    if (fits(q, held) && is_taken(q, score, held)) {
        *q->best = *q->path;
        q->best_score = score;
        q->best_held = held;
        q->found = true;
    }
    q->path->n--;
}

/* Whether the path with `moves` more collectives may take less than the best score. */
static bool may_take_less(const search *q, const clv_reshard_state *from, int64_t missing, int moves)
{
    double network = clv_reshard_inter_host_bytes_bound(q->problem, from->cut, q->to->cut);
    double least = path_score(q) + clv_reshard_score_bound(q->problem, (double)missing, moves, network);
    return clv_cost_compare(least, q->best_score) < 0;
}

/* Whether `moves` more collectives may lead to a better plan, which is possible only if links are mixed. */
static bool may_do_better(const search *q, const clv_reshard_state *from, int64_t missing, int moves)
{
    return q->mixed && q->found && may_take_less(q, from, missing, moves);
}

static void deepen(search *q, const clv_reshard_state *from, int64_t missing, int moves);

/* Whether one collective, with slices before or after it, may lead from s to `to`. */
static bool may_end(const search *q, const clv_reshard_state *s)
{
    clv_reshard_state sliced = *s, sized = *s;
    if (clv_reshard_local_bytes(q->problem, s) >= clv_reshard_local_bytes(q->problem, q->to) ||
        name_step(q->problem, s, q->to) != CLV_STEP_EXCHANGE)
        return true; /* a rank may hold all that it needs */
    slice_toward(&sliced, q);
    return name_step(q->problem, &sliced, q->to) != CLV_STEP_EXCHANGE ||
           (slice_to_sizes(&sized, q) && name_step(q->problem, &sized, q->to) != CLV_STEP_EXCHANGE);
}

/* Tries base -> next, which must have no slack. */
static void try_step(search *q, const clv_reshard_state *base, const clv_reshard_state *next, int64_t missing,
                     int moves)
{
    if (q->mixed && clv_reshard_mixes_links(q->problem, next, q->to))
        return; /* a plan that beats one collective across hosts begins or ends inside hosts */
    if (q->budget-- <= 0 || (moves == 2 && !may_end(q, next)))
        return;
    int64_t bytes = clv_reshard_missing_bytes(q->problem, next, base);
    if (bytes == 0 || bytes > missing || bytes + clv_reshard_missing_bytes(q->problem, q->to, next) != missing)
        return;
    extend(q, name_step(q->problem, base, next), next, bytes);
    deepen(q, next, missing - bytes, moves - 1);
    q->path->n--;
}

static void try_steps(search *q, const clv_reshard_state *base, int64_t missing, int moves)
{
    const clv_reshard_problem *p = q->problem;
    clv_reshard_state next;
    for (int d = 0; d < p->rank; d++)
        for (int count = 1; count <= base->n[d]; count++) {
            next = *base;
            clv_reshard_state_truncate(&next, d, count);
            try_step(q, base, &next, missing, moves);
        }
    for (int d = -1; d < p->rank; d++) {
        next = *base;
        if (all_to_all_toward(&next, q, d))
            try_step(q, base, &next, missing, moves);
    }
    if (permute_toward(&next, base, q) && !clv_reshard_state_equal(p, &next, base))
        try_step(q, base, &next, missing, moves);
}

/* A slice, if it loses no needed elements, and then collectives. */
static void slice_then(search *q, const clv_reshard_state *from, const clv_reshard_state *sliced, int64_t missing,
                       int moves)
{
    if (clv_reshard_state_equal(q->problem, sliced, from) ||
        clv_reshard_missing_bytes(q->problem, q->to, sliced) != missing)
        return;
    clv_step_kind kind = name_step(q->problem, sliced, q->to);
    extend(q, CLV_STEP_SLICE, sliced, 0);
    if (kind != CLV_STEP_EXCHANGE)
        finish(q, kind, missing);
    if (moves > 1 && (kind == CLV_STEP_EXCHANGE || may_do_better(q, sliced, missing, 2)))
        try_steps(q, sliced, missing, moves);
    q->path->n--;
}

/* Extends the path from a state that lacks `missing` bytes of `to` by at most `moves` collectives. */
static void deepen(search *q, const clv_reshard_state *from, int64_t missing, int moves)
{
    clv_reshard_state sliced = *from, sized = *from;
    if (q->path->n + 4 > RESHARD_STEPS / 2)
        return;
    if (missing == 0) {
        finish(q, CLV_STEP_SLICE, 0);
        return;
    }
    if (moves == 0 || (q->mixed && q->found && !may_do_better(q, from, missing, 1)))
        return;
    clv_step_kind kind = name_step(q->problem, from, q->to);
    if (kind != CLV_STEP_EXCHANGE) {
        finish(q, kind, missing);
        if (moves == 1 || !may_do_better(q, from, missing, 2))
            return;
    }
    slice_toward(&sliced, q);
    slice_then(q, from, &sliced, missing, moves);
    if (slice_to_sizes(&sized, q))
        slice_then(q, from, &sized, missing, 1);
    if (moves > 1)
        try_steps(q, from, missing, moves);
}

/* Takes the first step, from -> next, and searches from there if that may take less time than the best plan. */
static void try_first_step(search *q, const clv_reshard_state *from, const clv_reshard_state *next)
{
    clv_step_kind kind = name_step(q->problem, from, next);
    int64_t bytes = clv_reshard_missing_bytes(q->problem, next, from),
            missing = clv_reshard_missing_bytes(q->problem, q->to, next);
    if (kind == CLV_STEP_EXCHANGE || bytes == 0)
        return;
    extend(q, kind, next, bytes);
    if (may_take_less(q, next, missing, RESHARD_MIXED_MOVES))
        deepen(q, next, missing, RESHARD_MIXED_MOVES);
    q->path->n--;
}

/* Where a dimension is sharded by sub-axes across hosts, and within each part by sub-axes inside hosts, a gather inside
 * hosts has to come first, and each rank receives all that its host lacks over the network. So the sub-axes inside
 * hosts move to another dimension, by an all_to_all inside hosts, or change places with the others, by a permute. Then
 * each rank receives its part of what the host lacks, and the parts are gathered inside hosts. */
static void make_inter_host_innermost(search *q, const clv_reshard_state *from)
{
    const clv_reshard_problem *p = q->problem;
    q->slack = true;
    for (int d = 0; d < p->rank; d++) {
        int inside = suffix_in(from, d, ~p->inter_host), across = from->n[d] - inside;
        for (int e = 0; inside > 0 && across > 0 && e < p->rank; e++) {
            clv_reshard_state next = *from;
            clv_reshard_state_truncate(&next, d, e == d ? from->n[d] : inside);
            for (int i = 0; i < inside; i++)
                clv_reshard_state_append(&next, p, e, from->subaxis[d][across + i]);
            for (int i = 0; e == d && i < across; i++)
                clv_reshard_state_append(&next, p, d, from->subaxis[d][i]);
            next.alignment[d] = from->alignment[d];
            try_first_step(q, from, &next);
        }
    }
}

void clv_reshard_search_collectives(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                    const clv_reshard_state *start, const clv_reshard_state *to)
{
    const clv_reshard_state *from = draft->n > 0 ? &draft->state[draft->n - 1] : start;
    clv_reshard_workspace *workspace = problem->workspace;
    search q = {.problem = problem,
                .from = from,
                .to = to,
                .budget = RESHARD_COLLECTIVE_EXPANSIONS,
                .path = &workspace->move_path,
                .best = &workspace->move_best};
    q.path->n = q.best->n = 0;
    int64_t missing = clv_reshard_missing_bytes(problem, to, from);
    int deepest = missing > 0 ? problem->rank + 2 : 0;
    if (missing == 0 && clv_reshard_missing_bytes(problem, from, to) == 0) {
        if (draft->n > 0) { /* the same shards: the last step leads to `to` at once */
            const clv_reshard_state *before = draft->n > 1 ? &draft->state[draft->n - 2] : start;
            clv_step_kind kind = draft->kind[--draft->n];
            clv_reshard_draft_push(draft, problem, kind, before, to, clv_reshard_step_bytes(problem, kind, before, to));
        }
        return;
    }
    q.mixed = clv_reshard_mixes_links(problem, from, to);
    if (q.mixed && deepest > RESHARD_MIXED_MOVES)
        deepest = RESHARD_MIXED_MOVES;
    q.best_score = clv_reshard_score(problem, CLV_STEP_EXCHANGE, (double)missing, from, to);
    for (int moves = missing > 0; moves <= deepest && q.budget > 0; moves++) {
        double least = clv_reshard_score_bound(problem, (double)missing, moves, 0);
        if (q.found ? !may_do_better(&q, from, missing, moves) : moves > 1 && clv_cost_compare(least, q.best_score) > 0)
            break; /* the best so far, or an exchange, takes less time */
        deepen(&q, from, missing, moves);
    }
    if (q.mixed && missing > 0)
        make_inter_host_innermost(&q, from);
    if (!q.found)
        clv_reshard_draft_push(draft, problem, CLV_STEP_EXCHANGE, from, to, (double)missing);
    for (int i = 0; q.found && i < q.best->n; i++)
        clv_reshard_draft_push(draft, problem, q.best->kind[i], i > 0 ? &q.best->state[i - 1] : from, &q.best->state[i],
                               q.best->bytes[i]);
}
