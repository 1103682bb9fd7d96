/* pipeline_scheduler.c - list scheduler of pipeline stages: the order in which they take microbatches.
 *
 * In: a program whose instructions have stages, one microbatch after the other. Out: one order for all stages, in which
 * each stage works on the microbatches whose operands are there, and the instruction after which ranks wait for a send.
 *
 * List scheduling (Graham 1969) over a clock for each stage and a link for each pair of them, by predicted times. No
 * schedule is written down. Of what a stage could run it takes, by schedule,
 *
 *   gpipe        forward passes before backward passes
 *   1f1b         backward passes first; it begins a forward pass only while it holds fewer microbatches than there are
 *                stages from it to the last (Narayanan et al. 2019, PipeDream-flush)
 *   zero-bubble  the same, and what the stage before waits for before the gradients of weights, which fill the waits
 *                (ZB-H1: Qi et al. 2023, arXiv:2401.10241)
 *
 * and goes on with the pass of a microbatch that it has begun, whose instructions keep their order. The order is that
 * of beginning, which keeps all dependences, so all stages run parts of one list (verify_program.c): no schedule
 * deadlocks. Sums of gradients keep their order: results are equal bit for bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

/* What an instruction belongs to; in the order in which 1F1B prefers them. */
typedef enum pass { TO_STAGE_BEFORE, BACKWARD, FORWARD, OTHER, PASSES } pass;

typedef struct node {
    int first_successor, n_successors;
    int waits_for; /* number of predecessors that have not begun */
    double seconds, ready;
    int microbatch; /* 0: none */
    pass pass;
} node;

typedef struct stage {
    double clock;
    int n_ready;
    int *ready;      /* [n] instructions whose predecessors have begun */
    int *unfinished; /* [microbatches + 1] instructions of the backward pass that have not begun */
    int finished;    /* microbatches 1 to this one have ended here */
    int current;     /* the last instruction of a microbatch; -1: none */
} stage;

/* A send in flight. */
typedef struct flight {
    int instruction; /* -1: none */
    double done;
} flight;

typedef struct pipeline {
    const clv_program *program;
    clv_plan_schedule schedule;
    int n, n_stages, microbatches;
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
    const clv_instruction *instruction = &p->program->instructions[i];
    return !instruction->op && instruction->step->kind == CLV_STEP_SEND;
}

static bool runs_on(const pipeline *p, int i, int s)
{
    return clv_stages_have(p->program->instructions[i].stages, s);
}

/* ---- what instructions belong to ---- */

/* Steps, which have no microbatch of their own, belong to that of the op that makes their operand; those of weights to
 * that of their first reader. */
static void find_microbatches(pipeline *p, const clv_instruction_edges *e)
{
    for (int i = 0; i < p->n; i++) {
        const clv_instruction *instruction = &p->program->instructions[i];
        p->nodes[i].microbatch = instruction->update ? 0 : instruction->microbatch;
    }
    for (int k = 0; k < e->n; k++) {
        const clv_instruction *to = &p->program->instructions[e->to[k]];
        node *it = &p->nodes[e->to[k]];
        if (!to->op && !to->update && p->nodes[e->from[k]].microbatch > it->microbatch)
            it->microbatch = p->nodes[e->from[k]].microbatch;
    }
    for (int k = e->n - 1; k >= 0; k--) { /* the first reader comes last */
        const clv_instruction *from = &p->program->instructions[e->from[k]];
        const bool of_weight = p->nodes[e->from[k]].microbatch <= 0 && !from->op && !from->update;
        if (of_weight && !p->program->instructions[e->to[k]].update)
            p->nodes[e->from[k]].microbatch = -abs(p->nodes[e->to[k]].microbatch);
    }
    for (int i = 0; i < p->n; i++)
        p->nodes[i].microbatch = abs(p->nodes[i].microbatch);
    for (int i = 0; i < p->n; i++)
        p->microbatches = p->nodes[i].microbatch > p->microbatches ? p->nodes[i].microbatch : p->microbatches;
}

/* Whether the stage before waits for what follows from an instruction in its microbatch. */
static bool leads_to_send(const pipeline *p, int i)
{
    const node *it = &p->nodes[i];
    bool leads = is_send(p, i);
    for (int k = 0; !leads && k < it->n_successors; k++) {
        const node *next = &p->nodes[p->successors[it->first_successor + k]];
        leads = next->microbatch == it->microbatch && next->pass == TO_STAGE_BEFORE;
    }
    return leads;
}

static void find_passes(pipeline *p)
{
    for (int i = p->n - 1; i >= 0; i--) {
        const clv_instruction *instruction = &p->program->instructions[i];
        node *it = &p->nodes[i];
        const bool backward = instruction->backward || instruction->recomputed;
        it->pass = it->microbatch == 0 ? OTHER : !backward ? FORWARD : leads_to_send(p, i) ? TO_STAGE_BEFORE : BACKWARD;
        p->any_backward = p->any_backward || (it->microbatch > 0 && backward);
        for (int s = 0; s < p->n_stages; s++)
            if (it->microbatch > 0 && backward && runs_on(p, i, s))
                p->stages[s].unfinished[it->microbatch]++;
    }
}

/* Microbatches that end at once: those without a backward pass here. */
static void skip_finished(const pipeline *p, stage *s)
{
    while (s->finished < p->microbatches && s->unfinished[s->finished + 1] == 0)
        s->finished++;
}

/* ---- choosing ---- */

/* How many microbatches a stage may hold. */
static int most_held(const pipeline *p, int s)
{
    return p->schedule == CLV_SCHEDULE_GPIPE ? p->microbatches : p->n_stages - s;
}

static bool may_begin(const pipeline *p, int i, int s)
{
    const node *it = &p->nodes[i];
    return it->pass != FORWARD || !p->any_backward || it->microbatch <= p->stages[s].finished + most_held(p, s);
}

/* The rank of a pass in the order of the schedule; the least goes first. */
static int preference(const pipeline *p, pass of)
{
    static const int gpipe[] = {[FORWARD] = 0, [TO_STAGE_BEFORE] = 1, [BACKWARD] = 1, [OTHER] = 2},
                     one_f_one_b[] = {[TO_STAGE_BEFORE] = 0, [BACKWARD] = 0, [FORWARD] = 1, [OTHER] = 2},
                     zero_bubble[] = {[TO_STAGE_BEFORE] = 0, [FORWARD] = 1, [BACKWARD] = 2, [OTHER] = 3};
    return p->schedule == CLV_SCHEDULE_GPIPE         ? gpipe[of]
           : p->schedule == CLV_SCHEDULE_ZERO_BUBBLE ? zero_bubble[of]
                                                     : one_f_one_b[of];
}

/* Whether an instruction goes on with what the stage does. */
static bool goes_on(const pipeline *p, int i, int s)
{
    const int current = p->stages[s].current;
    return current >= 0 && p->nodes[i].microbatch == p->nodes[current].microbatch &&
           preference(p, p->nodes[i].pass) == preference(p, p->nodes[current].pass);
}

static bool goes_before(const pipeline *p, int i, int other, int s)
{
    const node *a = &p->nodes[i], *b = &p->nodes[other];
    const bool on = goes_on(p, i, s), other_on = goes_on(p, other, s);
    const int x = preference(p, a->pass), y = preference(p, b->pass);
    if (on != other_on)
        return on;
    if (x != y)
        return x < y;
    return a->microbatch != b->microbatch ? a->microbatch < b->microbatch : i < other;
}

static double could_begin(const pipeline *p, int i)
{
    double at = p->nodes[i].ready;
    if (is_send(p, i)) {
        const flight *f = &p->flights[p->program->instructions[i].group];
        return f->instruction >= 0 ? fmax(at, f->done) : at;
    }
    for (int s = 0; s < p->n_stages; s++)
        if (runs_on(p, i, s))
            at = fmax(at, p->stages[s].clock);
    return at;
}

/* The instruction that a stage takes next; -1: none can run. limited: the stage holds no more than it may. */
static int choose_on(const pipeline *p, int s, bool limited)
{
    const stage *on = &p->stages[s];
    int best = -1;
    double at = 0;
    for (int k = 0; k < on->n_ready; k++) {
        const int i = on->ready[k];
        const double begins = could_begin(p, i);
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
    for (int k = 0; k < p->n_sends; k++)
        if (best < 0 || could_begin(p, p->sends[k]) < could_begin(p, best))
            best = p->sends[k];
    for (int s = 0; s < p->n_stages; s++) {
        const int i = choose_on(p, s, limited);
        if (i >= 0 && (best < 0 || could_begin(p, i) < could_begin(p, best)))
            best = i;
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

/* Takes the stages' time. */
static void occupy(pipeline *p, int i, double begins)
{
    const node *it = &p->nodes[i];
    const bool backward = it->pass == TO_STAGE_BEFORE || it->pass == BACKWARD;
    for (int s = 0; s < p->n_stages; s++) {
        stage *on = &p->stages[s];
        if (!runs_on(p, i, s))
            continue;
        if (backward)
            on->unfinished[it->microbatch]--;
        skip_finished(p, on);
        if (is_send(p, i))
            continue;
        on->clock = begins + it->seconds;
        on->current = it->microbatch > 0 ? i : on->current;
        remove_from(on->ready, &on->n_ready, i);
    }
}

static void place(pipeline *p, int i)
{
    const node *it = &p->nodes[i];
    const double begins = could_begin(p, i), done = begins + it->seconds;
    end_flights(p, i);
    p->completes_at[i] = p->n_placed;
    p->order[p->n_placed++] = i;
    occupy(p, i, begins);
    if (is_send(p, i)) {
        remove_from(p->sends, &p->n_sends, i);
        p->flights[p->program->instructions[i].group] = (flight){i, done};
    }
    for (int k = 0; k < it->n_successors; k++) {
        node *next = &p->nodes[p->successors[it->first_successor + k]];
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

/* Adds an edge between neighbours of a stage's pass of a microbatch, which keep their order; *e has room for them.
 * last: [stages * passes * (microbatches + 1)]. */
static void add_sequences(const pipeline *p, clv_instruction_edges *e, int *last)
{
    for (int i = 0; i < p->n; i++)
        for (int s = 0; !is_send(p, i) && s < p->n_stages; s++) {
            const node *it = &p->nodes[i];
            int *before =
                &last[((size_t)s * PASSES + it->pass) * ((size_t)p->microbatches + 1) + (size_t)it->microbatch];
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
    const size_t n = (size_t)p->n + 1, microbatches = (size_t)p->microbatches + 2;
    p->stages = clv_arena_alloc(arena, (size_t)p->n_stages, sizeof *p->stages);
    bool all = p->stages != NULL;
    for (int s = 0; all && s < p->n_stages; s++) {
        p->stages[s] = (stage){.ready = clv_arena_alloc(arena, n, sizeof(int)),
                               .unfinished = clv_arena_alloc(arena, microbatches, sizeof(int)),
                               .current = -1};
        all = p->stages[s].ready && p->stages[s].unfinished;
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

static clv_status schedule_pipeline(clv_program *program, clv_plan_schedule schedule, const clv_machine *machine,
                                    clv_arena *arena, clv_error *err)
{
    pipeline p;
    clv_instruction_edges e;
    CLV_TRY(make_pipeline(&p, program, arena, err));
    p.schedule = schedule;
    CLV_TRY(clv_program_find_edges(&e, program, arena, err));
    CLV_TRY(make_room(&e, &p, arena, err));
    find_microbatches(&p, &e);
    CLV_TRY(make_stages(&p, arena, err));
    const size_t sequences = (size_t)p.n_stages * PASSES * ((size_t)p.microbatches + 1), room = (size_t)e.n + 1;
    int *last = clv_arena_alloc(arena, sequences, sizeof *last);
    p.successors = clv_arena_alloc(arena, room, sizeof *p.successors);
    if (!last || !p.successors)
        return clv_fail_memory(err, "a schedule", sequences * sizeof *last);
    link_nodes(&p, &e);
    find_passes(&p);
    add_sequences(&p, &e, last);
    p.successors = clv_arena_alloc(arena, (size_t)e.n + 1, sizeof *p.successors);
    if (!p.successors)
        return clv_fail_memory(err, "a schedule", (size_t)e.n * sizeof *p.successors);
    link_nodes(&p, &e);
    measure(&p, machine);
    run(&p);
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
