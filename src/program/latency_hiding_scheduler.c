/* latency_hiding_scheduler.c - list scheduler: reorders instructions so that collectives overlap with compute. See
 * latency_hiding_scheduler.h.
 *
 * List scheduling (Graham 1969) over two resources: the ranks' compute, and a link for each group. Of the instructions
 * that could run now the one with the longest way to the end goes first, so that what later steps wait for comes before
 * what nobody waits for (gradients of weights). Instructions leave their order by WINDOW places at most, which bounds
 * how much longer operands live, and how far ahead weights are gathered.
 */
#include "program/latency_hiding_scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/chunk_collectives.h"
#include "program/cost/predict_time.h"

enum {
    WINDOW = 24 /* about half a block's backward pass; the parts of one that was cut count as one */
};

/* An instruction, by its number before. */
typedef struct entry {
    int first_successor, n_successors;
    int waits_for; /* predecessors that have not begun */
    bool begun;
    double seconds;
    double path;  /* to the end, its own time too */
    double ready; /* when all that it reads is there */
    int last;     /* what makes it so; -1: nothing */
} entry;

/* A step that was started. */
typedef struct flight {
    int instruction; /* -1: none */
    double there;    /* when */
} flight;

typedef struct schedule {
    const clv_program *program;
    int n;
    int *in_order; /* [n] that the window is of */
    entry *nodes;  /* [n] */
    int *successors;
    int *order;      /* [n] out: which instruction is where */
    int *place_of;   /* [n] out: the other way round */
    int *until;      /* [n] out: by number before; a place */
    double *exposed; /* [n] out: by number before; how long nothing is done but to wait for it */
    int n_placed;
    flight *flights; /* [n_groups] */
    double now;
} schedule;

/* ---- what depends on what ---- */

/* Who used the memory of a cell (clv_program_buffer_range) last. */
typedef struct user {
    int writer;     /* -1: nobody */
    int first_read; /* into reads; -1: nobody since it was written */
} user;

typedef struct read {
    int instruction, next;
} read;

typedef struct edges {
    int n;
    int *from, *to;
} edges;

static void add_edge(edges *e, int from, int to)
{
    if (from < 0 || from == to)
        return;
    e->from[e->n] = from;
    e->to[e->n++] = to;
}

/* By memory: after who wrote it, and before it is written after all who read it. */
static void find_edges(edges *e, const clv_program *program, user *users, read *reads)
{
    int n_reads = 0;
    for (int b = 0; b < program->n_buffers; b++)
        users[b] = (user){-1, -1};
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++) {
            clv_buffer_range cells =
                instruction->in[k] < 0 ? (clv_buffer_range){0} : clv_program_buffer_range(program, instruction->in[k]);
            for (int c = 0; c < cells.n; c++) {
                user *u = &users[clv_buffer_range_at(&cells, c)];
                add_edge(e, u->writer, i);
                reads[n_reads] = (read){i, u->first_read};
                u->first_read = n_reads++;
            }
        }
        for (int o = 0; o < instruction->n_out; o++) {
            clv_buffer_range cells = clv_program_buffer_range(program, instruction->out[o]);
            for (int c = 0; c < cells.n; c++) {
                user *u = &users[clv_buffer_range_at(&cells, c)];
                add_edge(e, u->writer, i);
                for (int r = u->first_read; r >= 0; r = reads[r].next)
                    add_edge(e, reads[r].instruction, i);
                *u = (user){i, -1};
            }
        }
    }
}

/* As many edges as there can be: one a cell that is read, and again where it is written; one a cell that is written. */
static int most_edges(const clv_program *program)
{
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            n += instruction->in[k] < 0 ? 0 : 2 * clv_program_buffer_range(program, instruction->in[k]).n;
        for (int o = 0; o < instruction->n_out; o++)
            n += clv_program_buffer_range(program, instruction->out[o]).n;
    }
    return n;
}

static void link_nodes(schedule *s, const edges *e)
{
    for (int k = 0; k < e->n; k++) {
        s->nodes[e->from[k]].n_successors++;
        s->nodes[e->to[k]].waits_for++;
    }
    for (int i = 0, at = 0; i < s->n; i++) {
        s->nodes[i].first_successor = at;
        at += s->nodes[i].n_successors;
        s->nodes[i].n_successors = 0;
    }
    for (int k = 0; k < e->n; k++) {
        entry *from = &s->nodes[e->from[k]];
        s->successors[from->first_successor + from->n_successors++] = e->to[k];
    }
}

/* Edges lead to higher numbers. */
static void find_paths(schedule *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        entry *node = &s->nodes[i];
        for (int k = 0; k < node->n_successors; k++)
            node->path = fmax(node->path, s->nodes[s->successors[node->first_successor + k]].path);
        node->path += node->seconds;
    }
}

static int group_of(const schedule *s, int i)
{
    return s->program->instructions[i].group;
}

static bool moves(const schedule *s, int i)
{
    return group_of(s, i) >= 0;
}

/* ---- the order that the window is of ---- */

typedef struct place {
    int behind, number;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->behind != y->behind)
        return x->behind < y->behind ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Steps come right behind what made their operand, not where somebody wants their result; those that move state or
 * inputs stay, as they could always have begun. */
static void hoist_collectives(schedule *s, place *places, const edges *e)
{
    for (int i = 0; i < s->n; i++)
        places[i] = (place){i, i};
    for (int k = 0; k < e->n; k++) {
        int to = e->to[k];
        place *p = &places[to];
        if (moves(s, to) && (p->behind == to || places[e->from[k]].behind > p->behind))
            p->behind = places[e->from[k]].behind;
    }
    qsort(places, (size_t)s->n, sizeof *places, by_place);
    for (int k = 0; k < s->n; k++)
        s->in_order[k] = places[k].number;
}

/* ---- running ---- */

static bool follows(const schedule *s, int i, int after)
{
    const entry *node = &s->nodes[after];
    for (int k = 0; k < node->n_successors; k++)
        if (s->successors[node->first_successor + k] == i)
            return true;
    return false;
}

/* Ends a flight behind what was placed last. */
static void end_flight(schedule *s, flight *f)
{
    s->until[f->instruction] = s->n_placed - 1;
    f->instruction = -1;
}

static void place_instruction(schedule *s, int i)
{
    entry *node = &s->nodes[i];
    for (int g = 0; g < s->program->n_groups; g++)
        if (s->flights[g].instruction >= 0 && (g == group_of(s, i) || follows(s, i, s->flights[g].instruction)))
            end_flight(s, &s->flights[g]);
    double there = s->now + node->seconds;
    s->order[s->n_placed++] = i;
    node->begun = true;
    if (moves(s, i))
        s->flights[group_of(s, i)] = (flight){i, there};
    else
        s->now = there;
    for (int k = 0; k < node->n_successors; k++) {
        entry *next = &s->nodes[s->successors[node->first_successor + k]];
        next->waits_for--;
        if (there > next->ready) {
            next->ready = there;
            next->last = i;
        }
    }
}

/* When an instruction whose predecessors have begun could begin. */
static double could_begin(const schedule *s, int i)
{
    const flight *f = moves(s, i) ? &s->flights[group_of(s, i)] : NULL;
    double ready = fmax(s->nodes[i].ready, s->now);
    return f && f->instruction >= 0 ? fmax(ready, f->there) : ready;
}

/* Whether i goes before the other one (-1: none), as both may begin now: steps before ops, as they take nothing of the
 * ranks' time; then the one with the longer way to go. */
static bool goes_before(const schedule *s, int i, int other)
{
    if (other < 0 || moves(s, i) != moves(s, other))
        return other < 0 || moves(s, i);
    return s->nodes[i].path > s->nodes[other].path;
}

/* What of the window can begin soonest. first: the lowest place that has not begun. */
static int choose(const schedule *s, int first)
{
    int best = -1;
    double window = 0, at = 0;
    for (int k = first; k < s->n && window < WINDOW; k++) {
        int i = s->in_order[k], n_parts = s->program->instructions[i].n_chunks;
        window += n_parts > 0 ? 1.0 / n_parts : 1;
        if (s->nodes[i].begun || s->nodes[i].waits_for > 0)
            continue;
        double begins = could_begin(s, i);
        if (best < 0 || begins < at || (begins <= at && goes_before(s, i, best))) {
            best = i;
            at = begins;
        }
    }
    return best;
}

/* Until i could begin nothing is done. */
static void wait_for(schedule *s, int i)
{
    double begins = could_begin(s, i);
    int step = s->nodes[i].ready < begins ? s->flights[group_of(s, i)].instruction : s->nodes[i].last;
    if (begins > s->now && step >= 0)
        s->exposed[step] += begins - s->now;
    s->now = begins;
}

static void run(schedule *s)
{
    for (int first = 0; s->n_placed < s->n;) {
        int i = choose(s, first);
        wait_for(s, i);
        place_instruction(s, i);
        while (first < s->n && s->nodes[s->in_order[first]].begun)
            first++;
    }
    for (int g = 0; g < s->program->n_groups; g++)
        if (s->flights[g].instruction >= 0) {
            s->exposed[s->flights[g].instruction] += fmax(0, s->flights[g].there - s->now);
            s->now = fmax(s->now, s->flights[g].there);
            end_flight(s, &s->flights[g]);
        }
}

/* ---- the program in its new order ---- */

static int by_instruction(const void *a, const void *b)
{
    const clv_partition_decision *x = a, *y = b;
    return x->instruction < y->instruction ? -1 : x->instruction > y->instruction;
}

/* was: room for n instructions. */
static void reorder(clv_program *program, const schedule *s, clv_instruction *was)
{
    memcpy(was, program->instructions, (size_t)s->n * sizeof *was);
    program->n_steps = 0;
    for (int at = 0; at < s->n; at++) {
        int i = s->order[at];
        program->instructions[at] = was[i];
        program->instructions[at].n_overlapped = was[i].group >= 0 ? s->until[i] - at : 0;
        if (!was[i].op)
            program->steps[program->n_steps++] = at;
        s->place_of[i] = at;
    }
    for (int r = 0; r < program->n_decisions; r++)
        program->decisions[r].instruction = s->place_of[program->decisions[r].instruction];
    if (program->n_decisions > 0)
        qsort(program->decisions, (size_t)program->n_decisions, sizeof *program->decisions, by_instruction);
}

static void measure(schedule *s, const clv_machine *machine)
{
    clv_cost_model model;
    clv_cost_model_make(&model, &s->program->mesh, machine);
    for (int i = 0; i < s->n; i++) {
        s->nodes[i].seconds = clv_instruction_seconds(s->program, &model, i);
        s->nodes[i].last = -1;
    }
    for (int g = 0; g < s->program->n_groups; g++)
        s->flights[g].instruction = -1;
}

/* Finds the order of a program's instructions. */
static clv_status make(schedule *s, const clv_program *program, clv_arena *arena, const clv_machine *machine,
                       clv_error *err)
{
    size_t n = (size_t)program->n_instructions + 1, n_edges = (size_t)most_edges(program) + 1;
    *s = (schedule){.program = program,
                    .n = program->n_instructions,
                    .in_order = clv_arena_alloc(arena, n, sizeof *s->in_order),
                    .nodes = clv_arena_alloc(arena, n, sizeof *s->nodes),
                    .successors = clv_arena_alloc(arena, n_edges, sizeof *s->successors),
                    .order = clv_arena_alloc(arena, n, sizeof *s->order),
                    .place_of = clv_arena_alloc(arena, n, sizeof *s->place_of),
                    .until = clv_arena_alloc(arena, n, sizeof *s->until),
                    .exposed = clv_arena_alloc(arena, n, sizeof *s->exposed),
                    .flights = clv_arena_alloc(arena, (size_t)program->n_groups + 1, sizeof *s->flights)};
    edges e = {.from = clv_arena_alloc(arena, n_edges, sizeof *e.from),
               .to = clv_arena_alloc(arena, n_edges, sizeof *e.to)};
    user *users = clv_arena_alloc(arena, (size_t)program->n_buffers + 1, sizeof *users);
    read *reads = clv_arena_alloc(arena, n_edges, sizeof *reads);
    place *places = clv_arena_alloc(arena, n, sizeof *places);
    if (!s->in_order || !s->nodes || !s->successors || !s->order || !s->place_of || !s->until || !s->exposed ||
        !s->flights || !e.from || !e.to || !users || !reads || !places)
        return clv_fail_memory(err, "a schedule", n * sizeof(entry));
    find_edges(&e, program, users, reads);
    measure(s, machine);
    link_nodes(s, &e);
    find_paths(s);
    hoist_collectives(s, places, &e);
    run(s);
    return CLV_OK;
}

/* The better of two schedules: of the program as it is, and of it with the steps cut for which ranks wait there. */
static clv_status schedule_best(clv_program *program, clv_arena *arena, const clv_machine *machine, clv_error *err)
{
    schedule whole, in_parts;
    clv_program parts;
    bool cut;
    CLV_TRY(make(&whole, program, arena, machine, err));
    CLV_TRY(clv_program_chunk_collectives(&parts, &cut, program, whole.exposed, machine, err));
    if (cut)
        CLV_TRY(make(&in_parts, &parts, arena, machine, err));
    if (cut && in_parts.now < whole.now) {
        *program = parts;
        whole = in_parts;
    }
    clv_instruction *was = clv_arena_alloc(arena, (size_t)whole.n, sizeof *was);
    if (!was)
        return clv_fail_memory(err, "a schedule", (size_t)whole.n * sizeof *was);
    reorder(program, &whole, was);
    return CLV_OK;
}

clv_status clv_program_schedule_overlap(clv_program *program, const clv_machine *machine, clv_error *err)
{
    clv_arena *scratch = clv_arena_new();
    if (!scratch)
        return clv_fail_memory(err, "a schedule", sizeof(schedule));
    clv_status status = schedule_best(program, scratch, machine, err);
    clv_arena_free(scratch);
    return status;
}
