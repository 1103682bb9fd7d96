/* latency_hiding_scheduler.c - list scheduler: reorders instructions so that collectives overlap with compute.
 *
 * In: a program. Out: a new order, and for each collective the instruction after which ranks wait for it. List
 * scheduling (Graham 1969) over two resources: the ranks' compute, and a link for each group. (Where the ranks that
 * wait move the bytes, the order costs nothing, and hides that others are late.) Of the instructions that can run the
 * one with the longest path to the end goes first, so that operands of later collectives come before values that
 * nothing waits for (gradients of weights). Instructions move by at most WINDOW positions, which bounds how much longer
 * operands live, and how far ahead weights are gathered.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

enum {
    WINDOW = 24 /* about half a block's backward pass; the chunks of an instruction count as one */
};

/* An instruction, by its old index. */
typedef struct node {
    int first_successor, n_successors;
    int waits_for; /* number of predecessors that have not begun */
    bool begun;
    double seconds;
    double path;  /* seconds of the longest path from its start to the end */
    double ready; /* time at which its operands are complete */
    int last;     /* the predecessor that completes last; -1: none */
} node;

/* A collective in flight. */
typedef struct flight {
    int instruction; /* -1: none */
    double done;     /* time at which it is complete */
} flight;

typedef struct schedule {
    const clv_program *program;
    bool by_chunk; /* an op's first chunk goes before others' second, so that what follows it is sent early */
    int n;
    int *in_order; /* [n] the order over which the window moves */
    node *nodes;   /* [n] */
    int *successors;
    int *order;        /* [n] out: old index by new index */
    int *completes_at; /* [n] out, by old index: the new index after which ranks wait for it */
    double *exposed;   /* [n] out, by old index: seconds for which ranks only wait for it */
    int n_placed;
    flight *flights; /* [n_groups] */
    double now;
} schedule;

/* ---- dependences ---- */

static void link_nodes(schedule *s, const clv_instruction_edges *e)
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
        node *from = &s->nodes[e->from[k]];
        s->successors[from->first_successor + from->n_successors++] = e->to[k];
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

/* Edges lead to higher numbers. Chunks of a collective move one after the other. */
static void find_paths(schedule *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        node *it = &s->nodes[i];
        const clv_instruction *instruction = &s->program->instructions[i];
        if (moves(s, i) && instruction->chunk + 1 < instruction->n_chunks)
            it->path = s->nodes[i + 1].path;
        for (int k = 0; k < it->n_successors; k++)
            it->path = fmax(it->path, s->nodes[s->successors[it->first_successor + k]].path);
        it->path += it->seconds;
    }
}

/* ---- the order for the window ---- */

typedef struct position {
    int behind, number;
} position;

static int by_position(const void *a, const void *b)
{
    const position *x = a, *y = b;
    if (x->behind != y->behind)
        return x->behind < y->behind ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Moves collectives to right after the writer of their operand; those of state or inputs stay, as they could always
 * begin. */
static void hoist_collectives(schedule *s, position *positions, const clv_instruction_edges *e)
{
    for (int i = 0; i < s->n; i++)
        positions[i] = (position){i, i};
    for (int k = 0; k < e->n; k++) {
        int to = e->to[k];
        position *p = &positions[to];
        if (moves(s, to) && (p->behind == to || positions[e->from[k]].behind > p->behind))
            p->behind = positions[e->from[k]].behind;
    }
    qsort(positions, (size_t)s->n, sizeof *positions, by_position);
    for (int k = 0; k < s->n; k++)
        s->in_order[k] = positions[k].number;
}

/* ---- simulation ---- */

static bool follows(const schedule *s, int i, int after)
{
    const node *it = &s->nodes[after];
    for (int k = 0; k < it->n_successors; k++)
        if (s->successors[it->first_successor + k] == i)
            return true;
    return false;
}

/* Completes a flight after the last placed instruction. */
static void end_flight(schedule *s, flight *f)
{
    s->completes_at[f->instruction] = s->n_placed - 1;
    f->instruction = -1;
}

static void place_instruction(schedule *s, int i)
{
    node *it = &s->nodes[i];
    for (int g = 0; g < s->program->n_groups; g++)
        if (s->flights[g].instruction >= 0 && (g == group_of(s, i) || follows(s, i, s->flights[g].instruction)))
            end_flight(s, &s->flights[g]);
    double done = s->now + it->seconds;
    s->order[s->n_placed++] = i;
    it->begun = true;
    if (moves(s, i))
        s->flights[group_of(s, i)] = (flight){i, done};
    else
        s->now = done;
    for (int k = 0; k < it->n_successors; k++) {
        node *next = &s->nodes[s->successors[it->first_successor + k]];
        next->waits_for--;
        if (done > next->ready) {
            next->ready = done;
            next->last = i;
        }
    }
}

/* Time at which an instruction whose predecessors have begun can begin. */
static double could_begin(const schedule *s, int i)
{
    const flight *f = moves(s, i) ? &s->flights[group_of(s, i)] : NULL;
    double ready = fmax(s->nodes[i].ready, s->now);
    return f && f->instruction >= 0 ? fmax(ready, f->done) : ready;
}

/* Whether i goes before the other one (-1: none) if both can begin: collectives before ops, then the longer path. */
static bool goes_before(const schedule *s, int i, int other)
{
    if (other < 0 || moves(s, i) != moves(s, other))
        return other < 0 || moves(s, i);
    const clv_instruction *a = &s->program->instructions[i], *b = &s->program->instructions[other];
    int64_t earlier = (int64_t)a->chunk * b->n_chunks, later = (int64_t)b->chunk * a->n_chunks;
    if (s->by_chunk && !moves(s, i) && a->n_chunks > 0 && b->n_chunks > 0 && earlier != later)
        return earlier < later;
    return s->nodes[i].path > s->nodes[other].path;
}

/* The instruction of the window that can begin first; `first`: the start of the window. */
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

/* Advances time to when i can begin, and counts the wait as exposed. */
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
            s->exposed[s->flights[g].instruction] += fmax(0, s->flights[g].done - s->now);
            s->now = fmax(s->now, s->flights[g].done);
            end_flight(s, &s->flights[g]);
        }
}

/* ---- times ---- */

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
static clv_status make_schedule(schedule *s, const clv_program *program, bool by_chunk, clv_arena *arena,
                                const clv_machine *machine, clv_error *err)
{
    size_t n = (size_t)program->n_instructions + 1;
    clv_instruction_edges e;
    CLV_TRY(clv_program_find_edges(&e, program, arena, err));
    *s = (schedule){.program = program,
                    .by_chunk = by_chunk,
                    .n = program->n_instructions,
                    .in_order = clv_arena_alloc(arena, n, sizeof *s->in_order),
                    .nodes = clv_arena_alloc(arena, n, sizeof *s->nodes),
                    .successors = clv_arena_alloc(arena, (size_t)e.n + 1, sizeof *s->successors),
                    .order = clv_arena_alloc(arena, n, sizeof *s->order),
                    .completes_at = clv_arena_alloc(arena, n, sizeof *s->completes_at),
                    .exposed = clv_arena_alloc(arena, n, sizeof *s->exposed),
                    .flights = clv_arena_alloc(arena, (size_t)program->n_groups + 1, sizeof *s->flights)};
    position *positions = clv_arena_alloc(arena, n, sizeof *positions);
    if (!s->in_order || !s->nodes || !s->successors || !s->order || !s->completes_at || !s->exposed || !s->flights ||
        !positions)
        return clv_fail_memory(err, "a schedule", n * sizeof(node));
    measure(s, machine);
    link_nodes(s, &e);
    find_paths(s);
    hoist_collectives(s, positions, &e);
    run(s);
    return CLV_OK;
}

/* Schedules the program, and in two orders the program with its exposed collectives split into chunks; takes the
 * fastest. */
static clv_status schedule_best(clv_program *program, clv_arena *arena, const clv_machine *machine, clv_error *err)
{
    schedule best, chunked;
    clv_program split;
    bool any;
    CLV_TRY(make_schedule(&best, program, false, arena, machine, err));
    CLV_TRY(clv_program_chunk_collectives(&split, &any, program, best.exposed, machine, err));
    for (int by_chunk = 0; any && by_chunk < 2; by_chunk++) {
        CLV_TRY(make_schedule(&chunked, &split, by_chunk, arena, machine, err));
        if (chunked.now < best.now)
            best = chunked;
    }
    if (best.program == &split)
        *program = split;
    return clv_program_reorder(program, best.order, best.completes_at, arena, err);
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
