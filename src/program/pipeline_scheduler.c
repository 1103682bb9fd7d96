/* pipeline_scheduler.c - list scheduler of pipeline stages: the order in which they take microbatches.
 *
 * In: a program whose instructions have stages, one microbatch after the other. Out: one order for all stages, in which
 * each stage works on the microbatches whose operands are there, and the instruction after which ranks wait for a send.
 *
 * List scheduling (Graham 1969) over a clock for each stage and a link for each pair of them, by predicted times. No
 * schedule is written down: a stage prefers forward passes, and begins one only while it holds fewer microbatches than
 * it may (clv_pipeline_most_held), which makes GPipe or 1F1B. Zero-bubble prefers what the stage before waits for, and
 * does gradients of weights where there is nothing else to do. A pass of a microbatch that has begun goes on; its
 * instructions keep their order.
 *
 * A stage with several runs of layers takes microbatches in groups of as many as there are stages, or a few more where
 * these do not divide them: the group's first run, then its second one, and back (interleaved: Narayanan et al. 2021,
 * arXiv:2104.04473). Its unit of work is a run of a microbatch.
 *
 * The order is that of beginning, which keeps all dependences, so all stages run parts of one list (verify_program.c):
 * no schedule deadlocks. Sums of gradients keep their order: results are equal bit for bit.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "program/pipeline_units.h"

static const char *const names[CLV_SCHEDULE_COUNT] = {
    [CLV_SCHEDULE_DEFAULT] = "default", [CLV_SCHEDULE_GPIPE] = "gpipe",
    [CLV_SCHEDULE_1F1B] = "1f1b",       [CLV_SCHEDULE_INTERLEAVED] = "interleaved",
    [CLV_SCHEDULE_AUTO] = "auto",       [CLV_SCHEDULE_ZERO_BUBBLE] = "zero-bubble"};

const char *clv_plan_schedule_name(clv_plan_schedule schedule)
{
    return (unsigned)schedule < CLV_SCHEDULE_COUNT ? names[schedule] : "unknown";
}

/* The number of groups of microbatches: each has as many as there are stages or more, if there are as many. */
static int64_t count_groups(const clv_pipeline_shape *p)
{
    return p->microbatches > p->stages ? p->microbatches / p->stages : 1;
}

/* The number of microbatches in groups before this one. */
static int64_t before_group(const clv_pipeline_shape *p, int64_t group)
{
    return group * p->microbatches / count_groups(p);
}

int64_t clv_pipeline_most_held(const clv_pipeline_shape *p, int64_t stage, bool has_begun_backward)
{
    const int64_t all = p->microbatches * p->runs, after = p->stages - 1 - stage;
    const int64_t largest = p->microbatches - before_group(p, count_groups(p) - 1), earlier = (p->runs - 1) * largest;
    const bool zero_bubble = p->schedule == CLV_SCHEDULE_ZERO_BUBBLE;
    const int64_t most = p->schedule == CLV_SCHEDULE_GPIPE   ? all
                         : zero_bubble && has_begun_backward ? earlier + p->stages
                         : p->runs == 1                      ? after + 1
                                                             : earlier + 2 * after + 1;
    return most < all ? most : all;
}

typedef struct node {
    int first_successor, n_successors;
    int waits_for; /* number of predecessors that have not begun */
    double seconds, ready;
    clv_pipeline_unit of;
} node;

typedef struct stage {
    double clock;
    int n_ready;
    int *ready;              /* [n] instructions whose predecessors have begun */
    int *unfinished[2];      /* [units + 1] instructions of the forward and backward pass that have not begun */
    int finished[2];         /* units before this one have ended here */
    int64_t held;            /* units whose forward pass has begun, and whose backward pass has not ended, at most */
    int current;             /* the last instruction of a microbatch; -1: none */
    bool has_begun_backward; /* of what was received or computed here */
} stage;

/* A send in flight. */
typedef struct flight {
    int instruction; /* -1: none */
    double done;
} flight;

typedef struct pipeline {
    const clv_program *program;
    clv_pipeline_shape shape;
    int n, n_stages;
    node *nodes; /* [n] */
    int *successors;
    stage *stages;
    flight *flights; /* [n_groups] */
    int n_sends;
    int *sends; /* [n_sends] sends that could begin */
    int *order, *completes_at;
    int n_placed;
    bool any_backward;
} pipeline;

static bool is_send(const pipeline *p, int i)
{
    return clv_instruction_sends(&p->program->instructions[i]);
}

static bool runs_on(const pipeline *p, int i, int s)
{
    return clv_stages_have(p->program->instructions[i].stages, s);
}

static bool is_backward(clv_pipeline_pass pass)
{
    return pass == CLV_PASS_TO_STAGE_BEFORE || pass == CLV_PASS_BACKWARD;
}

/* ---- units: runs of microbatches ---- */

static int64_t group_of(const pipeline *p, int microbatch)
{
    return microbatch > 0 ? (microbatch * count_groups(&p->shape) - 1) / p->shape.microbatches : 0;
}

/* The place of a run, from 0, among those that the stage takes of a group. */
static int run_of(const pipeline *p, const clv_pipeline_unit *of)
{
    const int run = of->depth / p->n_stages;
    return is_backward(of->pass) ? (int)p->shape.runs - 1 - run : run;
}

/* The place of an instruction's unit in the order in which a stage takes them, of its direction. */
static int64_t unit_of(const pipeline *p, const clv_pipeline_unit *of)
{
    const int64_t group = group_of(p, of->microbatch), before = before_group(&p->shape, group);
    const int64_t wide = before_group(&p->shape, group + 1) - before;
    return before * p->shape.runs + run_of(p, of) * wide + of->microbatch - 1 - before;
}

static void count_units(pipeline *p)
{
    for (int i = 0; i < p->n; i++) {
        const clv_pipeline_unit *of = &p->nodes[i].of;
        const bool backward = is_backward(of->pass);
        for (int s = 0; of->pass != CLV_PASS_OTHER && !is_send(p, i) && s < p->n_stages; s++)
            if (runs_on(p, i, s))
                p->stages[s].unfinished[backward][unit_of(p, of)]++;
        p->any_backward = p->any_backward || backward;
    }
}

/* Units that end at once: those without such a pass here. */
static void skip_finished(const pipeline *p, stage *s)
{
    for (int k = 0; k < 2; k++)
        while (s->finished[k] < p->shape.microbatches * p->shape.runs && s->unfinished[k][s->finished[k]] == 0)
            s->finished[k]++;
}

/* ---- choosing ---- */

/* Forward passes are taken in the order of units: one that waits for a moment would else wait for a later unit. */
static bool may_begin(const pipeline *p, int i, int s)
{
    const clv_pipeline_unit *of = &p->nodes[i].of;
    const stage *on = &p->stages[s];
    return of->pass != CLV_PASS_FORWARD || !p->any_backward ||
           (unit_of(p, of) <= on->finished[false] &&
            unit_of(p, of) < on->finished[true] + clv_pipeline_most_held(&p->shape, s, on->has_begun_backward));
}

/* The rank of a pass in what a stage prefers; the least goes first. */
static int preference(const pipeline *p, clv_pipeline_pass of)
{
    static const int
        plain[] =
            {[CLV_PASS_FORWARD] = 0, [CLV_PASS_TO_STAGE_BEFORE] = 1, [CLV_PASS_BACKWARD] = 1, [CLV_PASS_OTHER] = 2},
        zero_bubble[] = {
            [CLV_PASS_TO_STAGE_BEFORE] = 0, [CLV_PASS_FORWARD] = 1, [CLV_PASS_BACKWARD] = 2, [CLV_PASS_OTHER] = 3};
    return p->shape.schedule == CLV_SCHEDULE_ZERO_BUBBLE ? zero_bubble[of] : plain[of];
}

/* Whether an instruction goes on with what the stage does. Gradients of weights that fill waits are interrupted. */
static bool goes_on(const pipeline *p, int i, int s)
{
    const int current = p->stages[s].current;
    if (current < 0)
        return false;
    const clv_pipeline_unit *a = &p->nodes[i].of, *b = &p->nodes[current].of;
    return a->microbatch == b->microbatch && a->depth == b->depth && preference(p, a->pass) == preference(p, b->pass) &&
           !(p->shape.schedule == CLV_SCHEDULE_ZERO_BUBBLE && a->pass == CLV_PASS_BACKWARD);
}

static bool goes_before(const pipeline *p, int i, int other, int s)
{
    const clv_pipeline_unit *a = &p->nodes[i].of, *b = &p->nodes[other].of;
    const bool on = goes_on(p, i, s), other_on = goes_on(p, other, s);
    const int x = preference(p, a->pass), y = preference(p, b->pass);
    const int64_t group = group_of(p, a->microbatch), other_group = group_of(p, b->microbatch);
    if (on != other_on)
        return on;
    if (x != y)
        return x < y;
    if (group != other_group)
        return group < other_group;
    if (run_of(p, a) != run_of(p, b))
        return run_of(p, a) < run_of(p, b);
    return a->microbatch != b->microbatch ? a->microbatch < b->microbatch : i < other;
}

static double send_could_begin(const pipeline *p, int i)
{
    const flight *f = &p->flights[p->program->instructions[i].group];
    return f->instruction >= 0 ? fmax(p->nodes[i].ready, f->done) : p->nodes[i].ready;
}

static double could_begin_on(const pipeline *p, int i, int s)
{
    return fmax(p->nodes[i].ready, p->stages[s].clock);
}

/* The instruction that a stage takes next; -1: none can run. limited: the stage holds no more than it may. */
static int choose_on(const pipeline *p, int s, bool limited)
{
    const stage *on = &p->stages[s];
    int best = -1;
    double at = 0;
    for (int k = 0; k < on->n_ready; k++) {
        const int i = on->ready[k];
        const double begins = could_begin_on(p, i, s);
        if (limited && !may_begin(p, i, s))
            continue;
        if (best < 0 || begins < at || (begins <= at && goes_before(p, i, best, s))) {
            best = i;
            at = begins;
        }
    }
    return best;
}

/* The instruction that begins first, of all stages; sends first. */
static int choose(const pipeline *p, bool limited)
{
    int best = -1;
    double at = INFINITY;
    for (int k = 0; k < p->n_sends; k++)
        if (send_could_begin(p, p->sends[k]) < at) {
            best = p->sends[k];
            at = send_could_begin(p, best);
        }
    for (int s = 0; s < p->n_stages; s++) {
        const int i = choose_on(p, s, limited);
        if (i >= 0 && could_begin_on(p, i, s) < at) {
            best = i;
            at = could_begin_on(p, i, s);
        }
    }
    return best;
}

/* ---- placing ---- */

static void remove_from(int *list, int *n, int i)
{
    for (int k = 0; k < *n; k++)
        if (list[k] == i) {
            list[k] = list[--*n];
            return;
        }
}

static void add_ready(pipeline *p, int i)
{
    if (is_send(p, i)) {
        p->sends[p->n_sends++] = i;
        return;
    }
    for (int s = 0; s < p->n_stages; s++)
        if (runs_on(p, i, s))
            p->stages[s].ready[p->stages[s].n_ready++] = i;
}

/* Whether instruction i needs what the send of a flight brings. */
static bool needs_flight(const pipeline *p, int i, const flight *f)
{
    const node *send = &p->nodes[f->instruction];
    const int *needing = &p->successors[send->first_successor];
    bool needs = false;
    for (int k = 0; !needs && k < send->n_successors; k++)
        needs = needing[k] == i;
    return needs;
}

/* Ranks wait for sends before what needs them, and before the next one of the same stages. */
static void end_flights(pipeline *p, int i)
{
    for (int g = 0; g < p->program->n_groups; g++) {
        flight *f = &p->flights[g];
        if (f->instruction >= 0 &&
            ((is_send(p, i) && p->program->instructions[i].group == g) || needs_flight(p, i, f))) {
            p->completes_at[f->instruction] = p->n_placed - 1;
            f->instruction = -1;
        }
    }
}

/* Takes the time of each stage that runs it, which do not wait for each other; returns when the last one ends. */
static double occupy(pipeline *p, int i)
{
    const node *it = &p->nodes[i];
    const bool backward = is_backward(it->of.pass);
    double done = it->ready;
    for (int s = 0; s < p->n_stages; s++) {
        stage *on = &p->stages[s];
        if (!runs_on(p, i, s))
            continue;
        if (it->of.pass == CLV_PASS_FORWARD && unit_of(p, &it->of) + 1 - on->finished[true] > on->held)
            on->held = unit_of(p, &it->of) + 1 - on->finished[true];
        if (it->of.pass != CLV_PASS_OTHER)
            on->unfinished[backward][unit_of(p, &it->of)]--;
        skip_finished(p, on);
        on->clock = could_begin_on(p, i, s) + it->seconds;
        done = fmax(done, on->clock);
        on->current = it->of.microbatch > 0 ? i : on->current;
        on->has_begun_backward = on->has_begun_backward || backward;
        remove_from(on->ready, &on->n_ready, i);
    }
    return done;
}

static void place(pipeline *p, int i)
{
    const node *it = &p->nodes[i];
    const double send_begins = is_send(p, i) ? send_could_begin(p, i) : 0; /* before its link's flight ends */
    double done;
    end_flights(p, i);
    p->completes_at[i] = p->n_placed;
    p->order[p->n_placed++] = i;
    if (is_send(p, i)) {
        done = send_begins + it->seconds;
        remove_from(p->sends, &p->n_sends, i);
        p->flights[p->program->instructions[i].group] = (flight){i, done};
    } else {
        done = occupy(p, i);
    }
    for (int k = 0; k < it->n_successors; k++) {
        node *next = &p->nodes[p->successors[it->first_successor + k]];
        if (is_send(p, i) || is_send(p, (int)(next - p->nodes))) /* else by the clocks of their stages */
            next->ready = fmax(next->ready, done);
        if (--next->waits_for == 0)
            add_ready(p, (int)(next - p->nodes));
    }
}

static void run(pipeline *p)
{
    for (int s = 0; s < p->n_stages; s++)
        skip_finished(p, &p->stages[s]);
    for (int i = 0; i < p->n; i++)
        if (p->nodes[i].waits_for == 0)
            add_ready(p, i);
    while (p->n_placed < p->n) {
        const int i = choose(p, true);
        place(p, i >= 0 ? i : choose(p, false));
    }
    for (int g = 0; g < p->program->n_groups; g++)
        if (p->flights[g].instruction >= 0)
            p->completes_at[p->flights[g].instruction] = p->n - 1;
}

/* ---- the pass ---- */

/* The number of sequences of instructions that keep their order: of each stage a unit's passes. */
static size_t count_sequences(const pipeline *p)
{
    return (size_t)(p->n_stages * CLV_PIPELINE_PASSES * (p->shape.microbatches + 1) * p->shape.runs);
}

static size_t sequence_of(const pipeline *p, int s, const clv_pipeline_unit *of)
{
    const int64_t unit = of->microbatch * p->shape.runs + of->depth / p->n_stages;
    return (size_t)((s * CLV_PIPELINE_PASSES + of->pass) * (p->shape.microbatches + 1) * p->shape.runs + unit);
}

/* Adds an edge between neighbours of a sequence; *e has room for them. last: [sequences]. */
static void add_sequences(const pipeline *p, clv_instruction_edges *e, int *last)
{
    for (int i = 0; i < p->n; i++)
        for (int s = 0; !is_send(p, i) && s < p->n_stages; s++) {
            int *before = &last[sequence_of(p, s, &p->nodes[i].of)];
            if (!runs_on(p, i, s))
                continue;
            if (*before > 0) {
                e->from[e->n] = *before - 1;
                e->to[e->n++] = i;
            }
            *before = i + 1;
        }
}

static void link_nodes(pipeline *p, const clv_instruction_edges *e)
{
    for (int i = 0; i < p->n; i++)
        p->nodes[i].n_successors = p->nodes[i].waits_for = 0;
    for (int k = 0; k < e->n; k++) {
        p->nodes[e->from[k]].n_successors++;
        p->nodes[e->to[k]].waits_for++;
    }
    for (int i = 0, at = 0; i < p->n; i++) {
        p->nodes[i].first_successor = at;
        at += p->nodes[i].n_successors;
        p->nodes[i].n_successors = 0;
    }
    for (int k = 0; k < e->n; k++) {
        node *from = &p->nodes[e->from[k]];
        p->successors[from->first_successor + from->n_successors++] = e->to[k];
    }
}

static void measure(const pipeline *p, const clv_machine *machine)
{
    clv_cost_model model;
    clv_cost_model_make(&model, &p->program->mesh, machine);
    for (int i = 0; i < p->n; i++)
        p->nodes[i].seconds = clv_instruction_seconds(p->program, &model, i);
    for (int g = 0; g < p->program->n_groups; g++)
        p->flights[g].instruction = -1;
}

static clv_status make_stages(pipeline *p, clv_arena *arena, clv_error *err)
{
    const size_t n = (size_t)p->n + 1, units = (size_t)(p->shape.microbatches * p->shape.runs) + 1;
    p->stages = clv_arena_alloc(arena, (size_t)p->n_stages, sizeof *p->stages);
    bool all = p->stages != NULL;
    for (int s = 0; all && s < p->n_stages; s++) {
        p->stages[s] = (stage){
            .ready = clv_arena_alloc(arena, n, sizeof(int)),
            .unfinished = {clv_arena_alloc(arena, units, sizeof(int)), clv_arena_alloc(arena, units, sizeof(int))},
            .current = -1};
        all = p->stages[s].ready && p->stages[s].unfinished[0] && p->stages[s].unfinished[1];
    }
    return all ? CLV_OK : clv_fail_memory(err, "the stages of a schedule", n * sizeof(int));
}

/* Room for the edges of sequences beside those of the program. */
static clv_status make_room(clv_instruction_edges *e, const pipeline *p, clv_arena *arena, clv_error *err)
{
    size_t n = (size_t)e->n + 1;
    for (int i = 0; i < p->n; i++)
        for (int s = 0; s < p->n_stages; s++)
            n += runs_on(p, i, s);
    int *from = clv_arena_alloc(arena, n, sizeof *from), *to = clv_arena_alloc(arena, n, sizeof *to);
    if (!from || !to)
        return clv_fail_memory(err, "the dependences of instructions", n * sizeof *from);
    memcpy(from, e->from, (size_t)e->n * sizeof *from);
    memcpy(to, e->to, (size_t)e->n * sizeof *to);
    e->from = from;
    e->to = to;
    return CLV_OK;
}

static clv_status make_pipeline(pipeline *p, clv_program *program, clv_arena *arena, clv_error *err)
{
    const size_t n = (size_t)program->n_instructions + 1;
    *p = (pipeline){.program = program,
                    .n = program->n_instructions,
                    .n_stages = clv_program_stage_count(program),
                    .nodes = clv_arena_alloc(arena, n, sizeof *p->nodes),
                    .flights = clv_arena_alloc(arena, (size_t)program->n_groups + 1, sizeof *p->flights),
                    .sends = clv_arena_alloc(arena, n, sizeof *p->sends),
                    .order = clv_arena_alloc(arena, n, sizeof *p->order),
                    .completes_at = clv_arena_alloc(arena, n, sizeof *p->completes_at)};
    return p->nodes && p->flights && p->sends && p->order && p->completes_at
               ? CLV_OK
               : clv_fail_memory(err, "a schedule", n * sizeof(node));
}

/* The units of all nodes, and how many microbatches and runs there are. */
static clv_status find_units(pipeline *p, clv_plan_schedule schedule, const clv_instruction_edges *e, clv_arena *arena,
                             clv_error *err)
{
    clv_pipeline_unit *units = clv_arena_alloc(arena, (size_t)p->n + 1, sizeof *units);
    int depth = 0;
    if (!units)
        return clv_fail_memory(err, "a schedule", (size_t)p->n * sizeof *units);
    CLV_TRY(clv_find_pipeline_units(units, p->program, e, arena, err));
    p->shape = (clv_pipeline_shape){.schedule = schedule, .stages = p->n_stages};
    for (int i = 0; i < p->n; i++) {
        p->nodes[i].of = units[i];
        p->shape.microbatches =
            units[i].microbatch > p->shape.microbatches ? units[i].microbatch : p->shape.microbatches;
        depth = units[i].depth > depth ? units[i].depth : depth;
    }
    p->shape.runs = depth / p->n_stages + 1;
    return CLV_OK;
}

static clv_status schedule_pipeline(clv_program *program, clv_plan_schedule schedule, const clv_machine *machine,
                                    clv_arena *arena, clv_error *err)
{
    pipeline p;
    clv_instruction_edges e;
    CLV_TRY(make_pipeline(&p, program, arena, err));
    CLV_TRY(clv_program_find_edges(&e, program, arena, err));
    CLV_TRY(find_units(&p, schedule, &e, arena, err));
    CLV_TRY(make_room(&e, &p, arena, err));
    CLV_TRY(make_stages(&p, arena, err));
    int *last = clv_arena_alloc(arena, count_sequences(&p), sizeof *last);
    if (!last)
        return clv_fail_memory(err, "a schedule", count_sequences(&p) * sizeof *last);
    count_units(&p);
    add_sequences(&p, &e, last);
    p.successors = clv_arena_alloc(arena, (size_t)e.n + 1, sizeof *p.successors);
    if (!p.successors)
        return clv_fail_memory(err, "a schedule", (size_t)e.n * sizeof *p.successors);
    link_nodes(&p, &e);
    measure(&p, machine);
    run(&p);
    program->schedule = schedule != CLV_SCHEDULE_DEFAULT ? schedule
                        : p.shape.runs > 1               ? CLV_SCHEDULE_INTERLEAVED
                                                         : CLV_SCHEDULE_1F1B;
    for (int s = 0; s < p.n_stages; s++)
        program->in_flight[s] = (double)p.stages[s].held / (double)p.shape.runs;
    return clv_program_reorder(program, p.order, p.completes_at, arena, err);
}

clv_status clv_program_schedule_pipeline(clv_program *program, clv_plan_schedule schedule, const clv_machine *machine,
                                         clv_error *err)
{
    clv_arena *scratch = clv_arena_new();
    if (!scratch)
        return clv_fail_memory(err, "a schedule", sizeof(pipeline));
    clv_status status = schedule_pipeline(program, schedule, machine, scratch, err);
    clv_arena_free(scratch);
    return status;
}
