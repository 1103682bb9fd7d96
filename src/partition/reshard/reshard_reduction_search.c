/* reshard_reduction_search.c - partial axes: chooses reduce_scatter, all_reduce and slices before them.
 *
 * In: two states, of which `to` is partial over fewer sub-axes. Out: the best plan. Partial sub-axes are reduced one at
 * a time by reduce_scatter, after which they shard a dimension as its innermost sub-axis, and the last ones by one
 * all_reduce; slices by unused sub-axes may come first, so that less is reduced. An all_reduce at the end loses
 * nothing, because a reduce_scatter before it only makes it smaller; moving partial values does lose, because they are
 * larger than their sum (uneven shards aside). From each state without partial sub-axes the rest is resharded at the
 * lower bound (reshard_collective_search.c).
 *
 * Depth-first branch and bound, most promising step first. With n ranks left to reduce over, at least
 * l*(n-1)/n + max(0, |to| - l/n) bytes remain, where l is the tensor's bytes divided by the ranks that hold different
 * elements if every axis that is not partial shards it; for even shapes the bound is often tight.
 */
#include <string.h>

#include "partition/reshard/reshard_state.h"

enum { MAX_TIES = 12 }; /* equally cheap plans that are completed to compare their steps and memory */

typedef struct plan_rank {
    double score;
    int exchanges, moves;
    int64_t held;
} plan_rank;

typedef struct search {
    const clv_reshard_problem *problem;
    const clv_reshard_state *from, *to;
    clv_subaxis_set keep; /* partial in both */
    clv_subaxis_set firm; /* shard a dimension of `to` so that ranks that differ only in it have different elements */
    int8_t dim_in_to[CLV_MAX_SUBAXES]; /* the dimension of `to` that a sub-axis shards; -1: none */
    int budget, ties;
    int64_t to_bytes; /* of the largest shard */
    double all_bytes; /* bytes of the whole tensor, divided by the number of ranks */
    clv_reshard_draft *path;
    clv_reshard_draft *best, *trial;
    plan_rank best_rank;
    bool found;
    clv_reshard_missing_entry *counted; /* [RESHARD_MISSING_ENTRIES] */
} search;

/* -- comparing plans -- */

static int compare_ranks(const plan_rank *a, const plan_rank *b)
{
    int score = clv_cost_compare(a->score, b->score);
    if (score != 0)
        return score;
    if (a->exchanges != b->exchanges)
        return a->exchanges < b->exchanges ? -1 : 1;
    if (a->moves != b->moves)
        return a->moves < b->moves ? -1 : 1;
    return a->held < b->held ? -1 : a->held > b->held;
}

static int count_moves(const clv_reshard_draft *draft)
{
    int moves = 0;
    for (int i = 0; i < draft->n; i++)
        moves += clv_step_moves(draft->kind[i]);
    return moves;
}

/* Peak memory if `from` stays alive. A slice of it is a view; an all_reduce of an earlier step's result is in place. */
static int64_t held_bytes(const clv_reshard_problem *p, const clv_reshard_state *from, const clv_reshard_draft *draft)
{
    int64_t start = clv_reshard_local_bytes(p, from), made = 0, most = start;
    for (int i = 0; i < draft->n; i++) {
        int64_t out = clv_reshard_local_bytes(p, &draft->state[i]);
        if (draft->kind[i] == (made > 0 ? CLV_STEP_ALL_REDUCE : CLV_STEP_SLICE))
            continue;
        most = start + made + out > most ? start + made + out : most;
        made = out;
    }
    return most;
}

static plan_rank rank_plan(const search *q, const clv_reshard_draft *draft)
{
    plan_rank rank = {.moves = count_moves(draft), .held = held_bytes(q->problem, q->from, draft)};
    for (int i = 0; i < draft->n; i++) {
        rank.score += draft->score[i];
        rank.exchanges += draft->kind[i] == CLV_STEP_EXCHANGE;
    }
    return rank;
}

/* -- the search over reductions -- */

/* Lower bound of the bytes from the partial state s on. */
static double bytes_bound(const search *q, const clv_reshard_state *s)
{
    const clv_reshard_problem *p = q->problem;
    double n = (double)clv_reshard_group_size(p, s->partial & ~q->keep);
    double l = q->all_bytes * (double)clv_reshard_group_size(p, s->partial), rest = (double)q->to_bytes - l / n;
    return l * (n - 1) / n + (rest > 0 ? rest : 0);
}

/* Whether s is sharded by a sub-axis that `to` is not sharded by, or in another dimension: then ranks that differ only
 * in it need elements that just one of them has. */
static bool is_misplaced(const search *q, const clv_reshard_state *s)
{
    if ((s->cut & ~q->to->cut) != 0)
        return true;
    for (int d = 0; d < q->problem->rank; d++)
        for (int i = 0; i < s->n[d]; i++)
            if (q->dim_in_to[s->subaxis[d][i]] != d && (q->firm >> s->subaxis[d][i] & 1u) != 0)
                return true;
    return false;
}

/* Cost of a path. A reduce_scatter at its end is counted apart, as the next one may be fused with it. */
typedef struct progress {
    double score; /* of the steps, without a reduce_scatter at the end */
    int moves;
    bool scatters; /* the last step is a reduce_scatter, */
    double open;   /* of this score, */
    double bytes;  /* of so many bytes, */
    double n;      /* over so many ranks */
} progress;

static progress progress_of(const search *q)
{
    int last = q->path->n - 1;
    progress p = {.moves = count_moves(q->path)};
    for (int i = 0; i < last; i++)
        p.score += q->path->score[i];
    if (last < 0)
        return p;
    if (q->path->kind[last] != CLV_STEP_REDUCE_SCATTER) {
        p.score += q->path->score[last];
        return p;
    }
    const clv_reshard_state *before = last > 0 ? &q->path->state[last - 1] : q->from;
    p.scatters = true;
    p.open = q->path->score[last];
    p.bytes = q->path->bytes[last];
    p.n = (double)clv_reshard_group_size(q->problem, before->partial & ~q->path->state[last].partial);
    return p;
}

/* Lower bound after one more step, which may be fused with the last one. */
static progress progress_by(const search *q, progress p, clv_step_kind kind, const clv_reshard_state *s,
                            const clv_reshard_state *next)
{
    double bytes = clv_reshard_step_bytes(q->problem, kind, s, next);
    if (kind != CLV_STEP_REDUCE_SCATTER)
        return (progress){.score = p.score + p.open + clv_reshard_score(q->problem, kind, bytes, s, next),
                          .moves = p.moves + clv_step_moves(kind)};
    progress after = p;
    after.scatters = true;
    after.bytes = p.bytes + bytes;
    after.n = (p.scatters ? p.n : 1) * (double)clv_reshard_group_size(q->problem, s->partial & ~next->partial);
    after.moves = p.moves + !p.scatters;
    after.open = clv_reshard_score_bound(q->problem, after.bytes, 1, 0);
    return after;
}

/* Missing bytes from s to `to`, cached: a state is seen as a child, then reached, maybe on several paths. */
static int64_t missing_bytes(search *q, const clv_reshard_state *s)
{
    size_t hash = s->cut;
    for (int d = 0; d < q->problem->rank; d++)
        for (int i = 0; i < s->n[d]; i++)
            hash = hash * 31 + (size_t)(s->subaxis[d][i] * CLV_MAX_RANK + d + 1);
    clv_reshard_missing_entry *known = &q->counted[hash % RESHARD_MISSING_ENTRIES];
    if (known->bytes == 0 || !clv_reshard_state_equal(q->problem, &known->state, s))
        *known = (clv_reshard_missing_entry){.state = *s, .bytes = clv_reshard_missing_bytes(q->problem, q->to, s) + 1};
    return known->bytes - 1;
}

/* Lower bound for a state s without partial sub-axes, from which at least `bytes` must move. */
static plan_rank rank_bound_reduced(const search *q, progress p, const clv_reshard_state *s, double bytes, bool moves)
{
    double more = bytes > 0 ? bytes : 0;
    int count = moves || more > 0;
    double network = clv_reshard_inter_host_bytes_bound(q->problem, s->cut, q->to->cut);
    double least = clv_reshard_score_bound(q->problem, more, count, network);
    return (plan_rank){.moves = p.moves + count, .score = p.score + p.open + least};
}

/* Lower bound of the bytes across hosts for the sub-axes left to reduce: shards are no smaller than the whole tensor
 * over all ranks, and sub-axes that `to` is not sharded by are gathered again. */
static double network_bytes_to_reduce(const search *q, clv_subaxis_set left)
{
    clv_subaxis_set far = left & q->problem->inter_host;
    return far != 0 ? q->all_bytes * (double)(clv_reshard_group_size(q->problem, far) - 1 +
                                              clv_reshard_group_size(q->problem, far & ~q->to->cut) - 1)
                    : 0;
}

/* Lower bound of a plan through s. Sub-axes left to reduce take one more step, a reduce_scatter that ends in `to` (and
 * may be fused with the last one) or an all_reduce, else two; misplaced sub-axes take another one. */
static plan_rank rank_bound(search *q, progress p, const clv_reshard_state *s)
{
    clv_subaxis_set left = s->partial & ~q->keep;
    bool misplaced = is_misplaced(q, s);
    if (left == 0) {
        plan_rank least =
            rank_bound_reduced(q, p, s, (double)(q->to_bytes - clv_reshard_local_bytes(q->problem, s)), misplaced);
        bool may_be_best = clv_cost_compare(least.score, q->best_rank.score) <= 0;
        return may_be_best ? rank_bound_reduced(q, p, s, (double)missing_bytes(q, s), false) : least;
    }
    double n = (double)clv_reshard_group_size(q->problem, left), rest = bytes_bound(q, s);
    int next = p.moves + !p.scatters;
    plan_rank least = {.moves = misplaced ? next + 1 : next};
    least.score = p.score + clv_reshard_score_bound(q->problem, p.bytes + rest, 2, network_bytes_to_reduce(q, left));
    if (misplaced)
        return least;
    bool far = (left & q->problem->inter_host) != 0;
    double l = q->all_bytes * (double)clv_reshard_group_size(q->problem, s->partial), to = (double)q->to_bytes;
    double scattered = (p.scatters ? p.n * n - 1 : n - 1) * to, reduced = 2 * (l > to ? l : to) * (n - 1) / n;
    double by_scatter = p.score + clv_reshard_score_bound(q->problem, scattered, 1, far ? scattered : 0);
    double by_reduce = p.score + p.open + clv_reshard_score_bound(q->problem, reduced, 1, far ? reduced : 0);
    if ((left & ~q->to->cut) == 0 && by_scatter < least.score)
        least.score = by_scatter;
    if (by_reduce < least.score)
        least.score = by_reduce;
    return least;
}

/* Completes a path that has nothing left to reduce, and keeps the plan if it is the best so far. */
static void finish(search *q, const clv_reshard_state *s)
{
    if (q->found) {
        plan_rank least = rank_bound(q, progress_of(q), s);
        int order = clv_cost_compare(least.score, q->best_rank.score);
        if (compare_ranks(&least, &q->best_rank) > 0 || (order == 0 && q->ties++ >= MAX_TIES))
            return;
    }
    *q->trial = *q->path;
    clv_reshard_search_collectives(q->trial, q->problem, q->from, q->to);
    plan_rank rank = rank_plan(q, q->trial);
    if (q->found && compare_ranks(&rank, &q->best_rank) >= 0)
        return;
    *q->best = *q->trial;
    q->best_rank = rank;
    q->found = true;
}

/* Whether a plan through s may be better than the best: cheaper, or (for the first ties) as cheap in fewer steps. */
static bool may_win(search *q, const clv_reshard_state *s)
{
    plan_rank least = rank_bound(q, progress_of(q), s);
    int order = clv_cost_compare(least.score, q->best_rank.score);
    return order < 0 || (order == 0 && q->ties < MAX_TIES && compare_ranks(&least, &q->best_rank) < 0);
}

static void reduce(search *q, const clv_reshard_state *s, int last_sliced);

/* Appends a step to the path; fuses it with the last step if both are slices, or both reduce_scatters that cost no more
 * together (with uneven shards they may). */
static void push(search *q, clv_step_kind kind, const clv_reshard_state *from, const clv_reshard_state *to)
{
    clv_reshard_draft *path = q->path;
    int last = path->n - 1;
    double bytes = clv_reshard_step_bytes(q->problem, kind, from, to);
    if (last >= 0 && path->kind[last] == kind && (kind == CLV_STEP_SLICE || kind == CLV_STEP_REDUCE_SCATTER)) {
        const clv_reshard_state *before = last > 0 ? &path->state[last - 1] : q->from;
        double score = clv_reshard_score(q->problem, kind, bytes, from, to);
        double joint_bytes = clv_reshard_step_bytes(q->problem, kind, before, to);
        double joint = clv_reshard_score(q->problem, kind, joint_bytes, before, to);
        if (clv_cost_compare(joint, path->score[last] + score) <= 0) {
            bytes = joint_bytes;
            from = before;
            path->n--;
        }
    }
    clv_reshard_draft_push(path, q->problem, kind, from, to, bytes);
}

/* Takes the step s -> next, searches from there, and undoes it. */
static void try_step(search *q, clv_step_kind kind, const clv_reshard_state *s, const clv_reshard_state *next,
                     int last_sliced)
{
    int n = q->path->n, last = n > 0 ? n - 1 : 0;
    clv_step_kind old_kind = q->path->kind[last];
    clv_reshard_state old_state = q->path->state[last];
    double old_bytes = q->path->bytes[last], old_score = q->path->score[last];
    push(q, kind, s, next);
    if ((next->partial & ~q->keep) == 0)
        finish(q, next);
    else
        reduce(q, next, last_sliced);
    q->path->n = n;
    q->path->kind[last] = old_kind;
    q->path->state[last] = old_state;
    q->path->bytes[last] = old_bytes;
    q->path->score[last] = old_score;
}

/* -- the steps that a partial state offers -- */

enum { MAX_CHILDREN = 128 }; /* beyond it the later ones are not tried */

/* A step: shards dimension `d` by `subaxis` (slice or reduce_scatter), moves the sub-axis there from dimension `away`
 * (all_to_all), or only changes the alignment (exchange). */
typedef struct child {
    clv_step_kind kind;
    int8_t d, subaxis, away;
    bool fine; /* the alignment becomes one element */
    double score;
} child;

typedef struct children {
    progress so_far;
    int n;
    child list[MAX_CHILDREN];
} children;

static void make_child(clv_reshard_state *next, const search *q, const clv_reshard_state *s, const child *c)
{
    *next = *s;
    if (c->kind == CLV_STEP_ALL_TO_ALL)
        clv_reshard_state_truncate(next, c->away, 1);
    if (c->kind != CLV_STEP_EXCHANGE)
        clv_reshard_state_append(next, q->problem, c->d, c->subaxis);
    next->partial &= ~((clv_subaxis_set)1 << c->subaxis);
    if (c->fine)
        next->alignment[c->d] = 1;
}

/* Inserts a child in order of its lower bound; stable. */
static void add_child(children *all, search *q, const clv_reshard_state *s, child c)
{
    clv_reshard_state next;
    make_child(&next, q, s, &c);
    c.score = rank_bound(q, progress_by(q, all->so_far, c.kind, s, &next), &next).score;
    if (clv_cost_compare(c.score, q->best_rank.score) > 0 || all->n == MAX_CHILDREN)
        return;
    int i = all->n++;
    for (; i > 0 && clv_cost_compare(c.score, all->list[i - 1].score) < 0; i--)
        all->list[i] = all->list[i - 1];
    all->list[i] = c;
}

static bool wants(const clv_reshard_state *to, int d, int subaxis)
{
    for (int i = 0; i < to->n[d]; i++)
        if (to->subaxis[d][i] == subaxis)
            return true;
    return false;
}

/* Whether a sub-axis that `to` does not use is the first of its kind: only that one is tried. */
static bool is_first_alike(const search *q, const clv_reshard_state *s, int subaxis)
{
    const clv_reshard_problem *p = q->problem;
    for (int a = 0; a < subaxis; a++)
        if (((s->cut | q->to->cut) >> a & 1u) == 0 && (q->keep >> a & 1u) == 0 &&
            (s->partial >> a & 1u) == (s->partial >> subaxis & 1u) &&
            (p->inter_host >> a & 1u) == (p->inter_host >> subaxis & 1u) &&
            p->subaxis[a].size == p->subaxis[subaxis].size)
            return false;
    return true;
}

/* Children that shard dimension d by one more sub-axis. Unless `to` does so, they must make shards smaller. A coarse
 * alignment may become one element for that, if every rank has what it then holds. */
static void add_cut(children *all, search *q, const clv_reshard_state *s, int d, int subaxis)
{
    const clv_reshard_problem *p = q->problem;
    bool slice = (s->partial >> subaxis & 1u) == 0;
    child c = {.kind = slice ? CLV_STEP_SLICE : CLV_STEP_REDUCE_SCATTER, .d = (int8_t)d, .subaxis = (int8_t)subaxis};
    clv_reshard_state next;
    make_child(&next, q, s, &c);
    int64_t least = clv_reshard_local_bytes(p, s), after = clv_reshard_local_bytes(p, &next);
    if (wants(q->to, d, subaxis) || after < least)
        add_child(all, q, s, c);
    if (next.alignment[d] == 1)
        return;
    least = after < least ? after : least;
    next.alignment[d] = 1;
    c.fine = true;
    if (clv_reshard_local_bytes(p, &next) < least && clv_reshard_missing_bytes(p, &next, s) == 0)
        add_child(all, q, s, c);
}

/* Children that move the innermost sub-axis of dimension d to dimension e, or give up a coarse alignment of d = e:
 * useful only if shards become more even, as when a dimension has fewer alignments than blocks. */
static void add_balance(children *all, search *q, const clv_reshard_state *s, int d, int e)
{
    clv_reshard_state next;
    if (s->n[d] == 0)
        return;
    child c = {.kind = d == e ? CLV_STEP_EXCHANGE : CLV_STEP_ALL_TO_ALL,
               .d = (int8_t)e,
               .subaxis = (int8_t)s->subaxis[d][s->n[d] - 1],
               .away = (int8_t)d,
               .fine = d == e};
    for (int tries = 0; tries < 2; tries++, c.fine = true) {
        make_child(&next, q, s, &c);
        if (clv_reshard_local_bytes(q->problem, &next) < clv_reshard_local_bytes(q->problem, s))
            add_child(all, q, s, c);
        if (next.alignment[e] == 1)
            return;
    }
}

static void add_children(children *all, search *q, const clv_reshard_state *s, int last_sliced)
{
    const clv_reshard_problem *p = q->problem;
    clv_subaxis_set left = s->partial & ~q->keep, unused = ~(s->cut | s->partial);
    for (int wanted = 1; wanted >= 0; wanted--)
        for (int a = 0; a < p->n_subaxes; a++)
            for (int d = 0; d < p->rank; d++) {
                bool slice = (unused >> a & 1u) != 0, known = (q->to->cut >> a & 1u) != 0;
                if ((!slice && (left >> a & 1u) == 0) || wants(q->to, d, a) != (wanted != 0))
                    continue;
                if (!(slice && d < last_sliced) && (known || is_first_alike(q, s, a)))
                    add_cut(all, q, s, d, a);
            }
    for (int d = 0; d < p->rank; d++)
        for (int e = 0; e < p->rank; e++)
            add_balance(all, q, s, d, e);
}

/* Searches from a partial state s. Consecutive slices are made in order of dimensions, from last_sliced on. */
static void reduce(search *q, const clv_reshard_state *s, int last_sliced)
{
    children all = {.so_far = progress_of(q)};
    clv_reshard_state next = *s;
    if (q->budget-- <= 0 || q->path->n + q->problem->rank + 6 > RESHARD_STEPS)
        return;
    next.partial = q->keep;
    try_step(q, CLV_STEP_ALL_REDUCE, s, &next, 0);
    if (!may_win(q, s))
        return;
    add_children(&all, q, s, last_sliced);
    for (int i = 0; i < all.n; i++) {
        const child *c = &all.list[i];
        if (clv_cost_compare(c->score, q->best_rank.score) > 0)
            return;
        make_child(&next, q, s, c);
        try_step(q, c->kind, s, &next, c->kind == CLV_STEP_SLICE ? c->d : 0);
    }
}

/* Finds dim_in_to and firm. If a dimension has more alignments than it would have blocks without a sub-axis, two blocks
 * that differ in it are not empty. */
static void note_target(search *q)
{
    const clv_reshard_problem *p = q->problem;
    bool empty = q->all_bytes == 0;
    memset(q->dim_in_to, -1, sizeof q->dim_in_to);
    for (int d = 0; d < p->rank; d++) {
        int64_t blocks = clv_reshard_blocks(p, q->to, d), units = p->shape[d] / q->to->alignment[d];
        for (int i = 0; i < q->to->n[d]; i++) {
            int a = q->to->subaxis[d][i];
            q->dim_in_to[a] = (int8_t)d;
            q->firm |= (clv_subaxis_set)(!empty && units > blocks / p->subaxis[a].size) << a;
        }
    }
}

void clv_reshard_search_reductions(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                   const clv_reshard_state *from, const clv_reshard_state *to)
{
    clv_reshard_workspace *workspace = problem->workspace;
    bool mixed = clv_reshard_mixes_links(problem, from, to);
    search q = {.problem = problem,
                .from = from,
                .to = to,
                .keep = to->partial,
                .budget = mixed ? RESHARD_MIXED_EXPANSIONS : RESHARD_EXPANSIONS,
                .ties = mixed ? MAX_TIES : 0,
                .path = &workspace->path,
                .best = &workspace->best,
                .trial = &workspace->trial,
                .counted = workspace->missing};
    q.path->n = q.best->n = 0;
    for (int i = 0; i < RESHARD_MISSING_ENTRIES; i++)
        q.counted[i].bytes = 0;
    q.to_bytes = clv_reshard_local_bytes(problem, to);
    q.all_bytes = (double)problem->elem_size / (double)clv_mesh_rank_count(problem->mesh);
    for (int d = 0; d < problem->rank; d++)
        q.all_bytes *= (double)problem->shape[d];
    note_target(&q);
    if ((from->partial & ~q.keep) == 0)
        finish(&q, from);
    else
        reduce(&q, from, 0);
    *draft = *q.best;
}
