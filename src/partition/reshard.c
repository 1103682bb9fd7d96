/* reshard.c - the reshard planner: which reductions, after which slices, and how the rest is moved.
 *
 * Partial axes that `to` has too stay partial. The others leave by reduce_scatter (their atoms become the most minor
 * cuts of any dimension), one atom at a time, and at the end by one all_reduce over what is left; slices by unused
 * atoms may come before, so that less is reduced. Reducing last by all_reduce loses nothing, for a reduce_scatter
 * before it only makes it smaller; moving partial values loses too, for they are larger than what they reduce to. From
 * each state without partial axes, the cuts are changed at the lower bound (reshard_moves.c). Last, a mask makes the
 * partial axes that only `to` has.
 *
 * The search is depth first, the most promising step first, with a bound. With n ranks left to reduce over, at least l*(n-1)/n + max(0, |to| - l/n) bytes
 * remain, l being the tensor's bytes over the ranks that hold different elements when every axis that is not partial
 * cuts it; with even shapes the bound is often met. */
#include "partition/reshard.h"

#include <string.h>

#include "base/error.h"
#include "partition/reshard_state.h"

enum { MAX_TIES = 12 }; /* equally cheap ways that are planned to the end to compare steps and memory */

typedef struct rank_of_plan {
    double score;
    int exchanges, moves;
    int64_t held;
} rank_of_plan;

typedef struct search {
    const clv_reshard_problem *problem;
    const clv_reshard_state *from, *to;
    clv_atoms keep; /* partial in both */
    int budget, ties;
    int64_t to_bytes; /* of the largest shard */
    double all_bytes; /* of the whole tensor, divided by all ranks */
    clv_reshard_draft path;
    double bytes[RESHARD_STEPS]; /* of the path's steps */
    clv_reshard_draft best, trial;
    rank_of_plan best_rank;
    bool found;
} search;

/* -- bytes (partitioner.md, "What bytes means") -- */

static double step_bytes(const clv_reshard_problem *p, clv_step_kind kind, const clv_reshard_state *from,
                         const clv_reshard_state *to)
{
    double n = (double)clv_reshard_size(p, from->partial & ~to->partial);
    if (kind == CLV_STEP_REDUCE_SCATTER)
        return (n - 1) * (double)clv_reshard_local_bytes(p, to);
    if (kind == CLV_STEP_ALL_REDUCE)
        return 2 * (double)clv_reshard_local_bytes(p, from) * (n - 1) / n;
    return clv_step_moves(kind) ? (double)clv_reshard_missing(p, to, from) : 0;
}

/* -- comparing plans -- */

/* Sums of the same terms in another order may differ in the last bits. */
static int compare_scores(double a, double b)
{
    double margin = 1e-9 * (a > b ? a : b);
    return a < b - margin ? -1 : a > b + margin;
}

static int compare_ranks(const rank_of_plan *a, const rank_of_plan *b)
{
    int score = compare_scores(a->score, b->score);
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

/* The most that is held at once if `from` stays alive. A slice of it is a view; an all_reduce of what an earlier step
 * made works in place. */
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

static rank_of_plan rank_plan(const search *q, const clv_reshard_draft *draft)
{
    rank_of_plan rank = {.moves = count_moves(draft), .held = held_bytes(q->problem, q->from, draft)};
    const clv_reshard_state *in = q->from;
    double bytes = 0;
    for (int i = 0; i < draft->n; in = &draft->state[i++]) {
        bytes += step_bytes(q->problem, draft->kind[i], in, &draft->state[i]);
        rank.exchanges += draft->kind[i] == CLV_STEP_EXCHANGE;
    }
    rank.score = clv_reshard_score(q->problem, bytes, rank.moves);
    return rank;
}

/* -- the search over reductions -- */

static double path_bytes(const search *q)
{
    double bytes = 0;
    for (int i = 0; i < q->path.n; i++)
        bytes += q->bytes[i];
    return bytes;
}

/* Nothing is left to reduce: moves to `to` and keeps the plan if it is the best so far. */
static void finish(search *q, const clv_reshard_state *s)
{
    int64_t missing = clv_reshard_missing(q->problem, q->to, s);
    rank_of_plan least = {.moves = count_moves(&q->path) + (missing > 0)};
    least.score = clv_reshard_score(q->problem, path_bytes(q) + (double)missing, least.moves);
    if (q->found) {
        int order = compare_scores(least.score, q->best_rank.score);
        if (compare_ranks(&least, &q->best_rank) > 0 || (order == 0 && q->ties++ >= MAX_TIES))
            return;
    }
    q->trial.n = q->path.n;
    memcpy(q->trial.kind, q->path.kind, (size_t)q->path.n * sizeof q->path.kind[0]);
    memcpy(q->trial.state, q->path.state, (size_t)q->path.n * sizeof q->path.state[0]);
    clv_reshard_move(&q->trial, q->problem, s, q->to);
    rank_of_plan rank = rank_plan(q, &q->trial);
    if (q->found && compare_ranks(&rank, &q->best_rank) >= 0)
        return;
    q->best = q->trial;
    q->best_rank = rank;
    q->found = true;
}

/* Bytes that remain at the least from s on. */
static double bound(const search *q, const clv_reshard_state *s)
{
    const clv_reshard_problem *p = q->problem;
    double n = (double)clv_reshard_size(p, s->partial & ~q->keep);
    double l = q->all_bytes * (double)clv_reshard_size(p, s->partial), rest = (double)q->to_bytes - l / n;
    if (n == 1)
        return (double)clv_reshard_missing(p, q->to, s);
    return l * (n - 1) / n + (rest > 0 ? rest : 0);
}

/* Whether what goes on from s can still be better than the best so far: cheaper, or as cheap with no more steps, while
 * such ties are followed. What is cut otherwise than in `to` has to move at the end. */
static bool may_win(const search *q, const clv_reshard_state *s)
{
    int done = count_moves(&q->path), last = q->path.n - 1;
    bool joins = last >= 0 && q->path.kind[last] == CLV_STEP_REDUCE_SCATTER;
    rank_of_plan least = {.moves = done + !joins + ((s->cut & ~q->to->cut) != 0)};
    least.score = clv_reshard_score(q->problem, path_bytes(q) + bound(q, s), least.moves);
    int order = compare_scores(least.score, q->best_rank.score);
    return order < 0 || (order == 0 && q->ties < MAX_TIES && compare_ranks(&least, &q->best_rank) < 0);
}

static void reduce(search *q, const clv_reshard_state *s, int last_sliced);

/* Appends a step to the path. A slice joins the slice before it; a reduce_scatter the one before it unless apart they
 * cost less (uneven shards). `before` is the state before the last step of the path. */
static void push(search *q, clv_step_kind kind, const clv_reshard_state *from, const clv_reshard_state *to)
{
    int last = q->path.n - 1;
    double bytes = step_bytes(q->problem, kind, from, to);
    if (last >= 0 && q->path.kind[last] == kind && (kind == CLV_STEP_SLICE || kind == CLV_STEP_REDUCE_SCATTER)) {
        const clv_reshard_state *before = last > 0 ? &q->path.state[last - 1] : q->from;
        double joint = step_bytes(q->problem, kind, before, to);
        double apart = clv_reshard_score(q->problem, q->bytes[last] + bytes, 2);
        if (compare_scores(clv_reshard_score(q->problem, joint, 1), apart) <= 0) {
            bytes = joint;
            q->path.n--;
        }
    }
    q->path.kind[q->path.n] = kind;
    q->path.state[q->path.n] = *to;
    q->bytes[q->path.n++] = bytes;
}

/* Takes the step s -> next, goes on from there, and takes it back. */
static void try_step(search *q, clv_step_kind kind, const clv_reshard_state *s, const clv_reshard_state *next,
                     int last_sliced)
{
    int n = q->path.n, last = n > 0 ? n - 1 : 0;
    clv_step_kind old_kind = q->path.kind[last];
    clv_reshard_state old_state = q->path.state[last];
    double old_bytes = q->bytes[last];
    push(q, kind, s, next);
    if ((next->partial & ~q->keep) == 0)
        finish(q, next);
    else
        reduce(q, next, last_sliced);
    q->path.n = n;
    q->path.kind[last] = old_kind;
    q->path.state[last] = old_state;
    q->bytes[last] = old_bytes;
}

/* -- the steps that a partial state offers -- */

enum { MAX_CHILDREN = 128 }; /* beyond it the later ones are not tried */

/* Cuts dimension `d` by `atom`, by slice or reduce_scatter; or moves it there from dimension `away` by all_to_all. */
typedef struct child {
    clv_step_kind kind;
    int8_t d, atom, away;
    bool fine; /* over granules of one element */
    double score;
} child;

typedef struct children {
    int n;
    child list[MAX_CHILDREN];
} children;

static void make_child(clv_reshard_state *next, const search *q, const clv_reshard_state *s, const child *c)
{
    *next = *s;
    if (c->kind == CLV_STEP_ALL_TO_ALL)
        clv_reshard_truncate(next, c->away, 1);
    clv_reshard_append(next, q->problem, c->d, c->atom);
    next->partial &= ~((clv_atoms)1 << c->atom);
    if (c->fine)
        next->granule[c->d] = 1;
}

/* Adds a child in the order of what it costs at the least; among equals the first one stays first. */
static void add_child(children *all, const search *q, const clv_reshard_state *s, child c)
{
    clv_reshard_state next;
    make_child(&next, q, s, &c);
    double bytes = path_bytes(q) + step_bytes(q->problem, c.kind, s, &next) + bound(q, &next);
    c.score = clv_reshard_score(q->problem, bytes, count_moves(&q->path));
    if (compare_scores(c.score, q->best_rank.score) > 0 || all->n == MAX_CHILDREN)
        return;
    int i = all->n++;
    for (; i > 0 && compare_scores(c.score, all->list[i - 1].score) < 0; i--)
        all->list[i] = all->list[i - 1];
    all->list[i] = c;
}

static bool wants(const clv_reshard_state *to, int d, int atom)
{
    for (int i = 0; i < to->n[d]; i++)
        if (to->atom[d][i] == atom)
            return true;
    return false;
}

/* Whether an atom that `to` does not cut by is the first of those that are like it: only that one is tried. */
static bool is_first_alike(const search *q, const clv_reshard_state *s, int atom)
{
    const clv_reshard_problem *p = q->problem;
    for (int a = 0; a < atom; a++)
        if (((s->cut | q->to->cut) >> a & 1u) == 0 && (q->keep >> a & 1u) == 0 &&
            (s->partial >> a & 1u) == (s->partial >> atom & 1u) && p->atom[a].size == p->atom[atom].size)
            return false;
    return true;
}

/* Cuts dimension d by one more atom. Where `to` does not cut d by it, that is only of use if shards get smaller. A
 * granule coarser than one element may be given up for that, if every rank has what it then holds. */
static void add_cut(children *all, const search *q, const clv_reshard_state *s, int d, int atom)
{
    const clv_reshard_problem *p = q->problem;
    bool slice = (s->partial >> atom & 1u) == 0;
    child c = {.kind = slice ? CLV_STEP_SLICE : CLV_STEP_REDUCE_SCATTER, .d = (int8_t)d, .atom = (int8_t)atom};
    clv_reshard_state next;
    make_child(&next, q, s, &c);
    int64_t least = clv_reshard_local_bytes(p, s), after = clv_reshard_local_bytes(p, &next);
    if (wants(q->to, d, atom) || after < least)
        add_child(all, q, s, c);
    if (next.granule[d] == 1)
        return;
    least = after < least ? after : least;
    next.granule[d] = 1;
    c.fine = true;
    if (clv_reshard_local_bytes(p, &next) < least && clv_reshard_missing(p, &next, s) == 0)
        add_child(all, q, s, c);
}

/* Moves the most minor atom of dimension d to dimension e while still partial: of use only where that evens out shards,
 * as when a dimension has fewer elements than blocks. */
static void add_balance(children *all, const search *q, const clv_reshard_state *s, int d, int e)
{
    clv_reshard_state next;
    if (s->n[d] == 0 || d == e)
        return;
    child c = {.kind = CLV_STEP_ALL_TO_ALL, .d = (int8_t)e, .atom = (int8_t)s->atom[d][s->n[d] - 1], .away = (int8_t)d};
    for (int fine = 0; fine < 2; fine++) {
        c.fine = fine != 0;
        make_child(&next, q, s, &c);
        if (clv_reshard_local_bytes(q->problem, &next) < clv_reshard_local_bytes(q->problem, s))
            add_child(all, q, s, c);
        if (next.granule[e] == 1)
            return;
    }
}

static void add_children(children *all, const search *q, const clv_reshard_state *s, int last_sliced)
{
    const clv_reshard_problem *p = q->problem;
    clv_atoms left = s->partial & ~q->keep, unused = ~(s->cut | s->partial);
    for (int wanted = 1; wanted >= 0; wanted--)
        for (int a = 0; a < p->n_atoms; a++)
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

/* s is partial. Slices that follow each other are made in the order of dimensions: last_sliced. */
static void reduce(search *q, const clv_reshard_state *s, int last_sliced)
{
    children all = {0};
    clv_reshard_state next = *s;
    if (q->budget-- <= 0 || q->path.n + q->problem->rank + 6 > RESHARD_STEPS)
        return;
    next.partial = q->keep;
    try_step(q, CLV_STEP_ALL_REDUCE, s, &next, 0);
    if (!may_win(q, s))
        return;
    add_children(&all, q, s, last_sliced);
    for (int i = 0; i < all.n; i++) {
        const child *c = &all.list[i];
        if (compare_scores(c->score, q->best_rank.score) > 0)
            return;
        make_child(&next, q, s, c);
        try_step(q, c->kind, s, &next, c->kind == CLV_STEP_SLICE ? c->d : 0);
    }
}

/* -- talking axes -- */

/* Splits off what two lists of sub-axes have in common at their major ends; true if something remains of either. */
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

/* The axes of a step that changes cuts: those by which dimensions are cut otherwise than before, first those that leave,
 * then those that come. A rank's group over them holds all that it lacks, for what the cuts have in common from the
 * major end on stays where it is. */
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
        if (n[d] == 0 || m[d] == 0 || step->from.granule[d] == step->to.granule[d])
            drop_common(left[d], &n[d], come[d], &m[d]);
    }
    for (int d = 0; d < rank; d++)
        add_axes(step, left[d], n[d]);
    for (int d = 0; d < rank; d++)
        add_axes(step, come[d], m[d]);
    step->n_axes = clv_subaxes_normalise(step->axes, step->n_axes);
}

/* -- emission -- */

typedef struct emitter {
    clv_reshard_step steps[RESHARD_STEPS + 1];
    clv_reshard_plan plan;
    const int64_t *shape;
    int64_t elem_size;
} emitter;

/* `axes`: of a step that reduces or masks. */
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
        step->n_axes = clv_subaxes_normalise(step->axes, n_axes);
    }
    e->plan.bytes += bytes;
}

/* Peak memory. A slice of `from` is a view unless it is the result; a mask, or an all_reduce, of what an earlier step made
 * works in place. */
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

static int list_atoms(clv_subaxis *out, const clv_reshard_problem *p, clv_atoms atoms)
{
    int n = 0;
    for (int a = 0; a < p->n_atoms; a++)
        if ((atoms >> a & 1u) != 0)
            out[n++] = p->atom[a];
    return n;
}

/* The ends are the layouts as given: their granules may differ from those of the states. */
static void emit_draft(emitter *e, const search *q, const clv_layout *from, const clv_layout *to)
{
    const clv_reshard_state *in = q->from;
    clv_layout before = *from;
    for (int i = 0; i < q->best.n; in = &q->best.state[i++]) {
        const clv_reshard_state *out = &q->best.state[i];
        clv_subaxis axes[RESHARD_ATOMS];
        clv_layout after = i + 1 < q->best.n ? clv_reshard_layout_of(q->problem, out) : *to;
        int n = list_atoms(axes, q->problem, in->partial & ~out->partial);
        emit(e, q->best.kind[i], &before, &after, step_bytes(q->problem, q->best.kind[i], in, out), axes, n);
        before = after;
    }
}

/* A granule that makes no difference (heads that divide evenly) must not keep cuts from matching: where a dimension is
 * cut alike with the other layout's granule, that is used. */
static void match_granules(clv_reshard_state *a, const clv_reshard_state *b, const clv_reshard_problem *p)
{
    for (int d = 0; d < p->rank; d++) {
        int64_t blocks = clv_reshard_blocks(p, a, d);
        if (a->n[d] > 0 && b->n[d] > 0 && p->shape[d] / a->granule[d] % blocks == 0 &&
            p->shape[d] / b->granule[d] % blocks == 0)
            a->granule[d] = b->granule[d];
    }
}

/* Plans in atoms. */
static void plan_atoms(emitter *e, clv_reshard_problem *p, const clv_layout *from, const clv_layout *to)
{
    search q = {.problem = p, .budget = RESHARD_EXPANSIONS};
    clv_reshard_state start, end, target;
    clv_reshard_state_of(&start, p, from);
    clv_reshard_state_of(&end, p, to);
    q.keep = from->reduction == to->reduction ? start.partial & end.partial : 0;
    target = end;
    target.partial = q.keep;
    clv_layout before_mask = clv_reshard_layout_of(p, &target);
    match_granules(&start, &target, p);
    match_granules(&target, &start, p);
    q.from = &start;
    q.to = &target;
    q.to_bytes = clv_reshard_local_bytes(p, &target);
    q.all_bytes = (double)p->elem_size / (double)clv_mesh_ranks(p->mesh);
    for (int d = 0; d < p->rank; d++)
        q.all_bytes *= (double)p->shape[d];
    if ((start.partial & ~q.keep) == 0)
        finish(&q, &start);
    else
        reduce(&q, &start, 0);
    emit_draft(e, &q, from, &before_mask);
    if (end.partial != q.keep) {
        clv_subaxis axes[RESHARD_ATOMS];
        emit(e, CLV_STEP_MASK, q.best.n > 0 ? &before_mask : from, to, 0, axes,
             list_atoms(axes, p, end.partial & ~q.keep));
    }
}

/* Plans where the cuts of an axis do not nest: all_reduce, exchange, mask, as far as needed. */
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
    double missing = (double)(clv_layout_missing_elems(&target, &whole, mesh, e->shape) * e->elem_size);
    if (!clv_layout_equal(&whole, &target))
        emit(e, missing > 0 ? CLV_STEP_EXCHANGE : CLV_STEP_SLICE, &whole, &target, missing, NULL, 0);
    n_axes = clv_layout_axes(&axes, to, to->rank);
    if (n_axes > 0)
        emit(e, CLV_STEP_MASK, &target, to, 0, axes, n_axes);
}

/* -- the interface -- */

static clv_status check(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to, const int64_t *shape,
                        clv_error *err)
{
    if (from->rank != to->rank)
        return clv_fail(err, CLV_ESHAPE, "reshard: from a tensor of %d dimensions to one of %d", from->rank, to->rank);
    CLV_TRY(clv_layout_check(from, mesh, shape, err));
    return clv_layout_check(to, mesh, shape, err);
}

clv_status clv_reshard_plan_make(clv_reshard_plan *out, clv_arena *arena, const clv_mesh *mesh, const clv_layout *from,
                                 const clv_layout *to, const int64_t *shape, clv_dtype dtype,
                                 const clv_cost_model *cost, clv_error *err)
{
    CLV_TRY(check(mesh, from, to, shape, err));
    emitter e = {.shape = shape, .elem_size = (int64_t)clv_dtype_size(dtype)};
    clv_reshard_problem p = {.mesh = mesh,
                             .shape = shape,
                             .cost = cost,
                             .rank = from->rank,
                             .elem_size = e.elem_size,
                             .reduction = from->reduction};
    memcpy(p.granule, to->granule, sizeof p.granule);
    if (!clv_layout_same_cuts(from, to, mesh, shape)) {
        if (clv_reshard_atoms(&p, from, to))
            plan_atoms(&e, &p, from, to);
        else
            plan_coarse(&e, mesh, from, to);
    }
    find_peak(&e, from);
    size_t size = (size_t)e.plan.n_steps * sizeof e.steps[0];
    e.plan.steps = clv_arena_copy(arena, e.steps, size);
    if (e.plan.steps == NULL)
        return clv_fail_memory(err, "a reshard plan", size);
    *out = e.plan;
    return CLV_OK;
}

int64_t clv_reshard_lower_bound(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                const int64_t *shape, clv_dtype dtype)
{
    if (clv_layout_is_partial(from))
        return -1;
    return clv_layout_missing_elems(to, from, mesh, shape) * (int64_t)clv_dtype_size(dtype);
}

double clv_reshard_seconds(const clv_reshard_plan *plan, const clv_cost_model *cost)
{
    int moves = 0;
    for (int i = 0; i < plan->n_steps; i++)
        moves += clv_step_moves(plan->steps[i].kind);
    return clv_cost_step(cost, plan->bytes, moves);
}
