/* pipeline_units.c - finds what the instructions of a program with pipeline stages belong to.
 *
 * The virtual stage of an instruction is its depth: the number of sends before it in the forward pass; in the backward
 * pass that of the activations which it reads, else of the cotangents, less the sends of these. So nobody states runs
 * of layers: an instruction at depth d is of run d / p, of p stages. What is computed from inputs alone has the depth
 * of what reads it first. What adds to the gradients of earlier microbatches has the depth of what reads the sum.
 */
#include "program/pipeline_units.h"

#include <stdlib.h>

#include "base/error.h"

enum { UNKNOWN = -1 };

typedef struct unit_search {
    clv_pipeline_unit *units; /* [n_instructions] */
    const clv_program *program;
    const clv_instruction_edges *edges; /* by `to`, ascending */
    bool *from_inputs;                  /* [n_instructions] it reads inputs and constants alone, or what does */
    bool *leads;                        /* [n_instructions] the stage before waits for what follows from it */
    bool *adds;                         /* [n_instructions] it reads the gradient of an earlier microbatch */
    bool *is_read;                      /* [n_instructions] by what is neither an update nor a step of a sum */
    int *by_readers;                    /* [n_instructions] the depth of what reads it first */
} unit_search;

static bool is_backward(const unit_search *s, int i)
{
    return s->program->instructions[i].backward || s->program->instructions[i].recomputed;
}

static int is_send(const unit_search *s, int i)
{
    return clv_instruction_sends(&s->program->instructions[i]);
}

static bool has_no_microbatch(const clv_instruction *instruction)
{
    return (!instruction->op || instruction->is_conversion) && !instruction->update;
}

/* Steps and conversions, which have no microbatch of their own, belong to that of the op that makes their operand;
 * those of weights to that of their first reader. */
static void find_microbatches(const unit_search *s)
{
    const clv_instruction *instructions = s->program->instructions;
    const clv_instruction_edges *e = s->edges;
    const int n = s->program->n_instructions;
    for (int i = 0; i < n; i++)
        s->units[i] = (clv_pipeline_unit){.microbatch = instructions[i].update ? 0 : instructions[i].microbatch,
                                          .depth = UNKNOWN};
    for (int k = 0; k < e->n; k++) {
        const clv_instruction *to = &instructions[e->to[k]];
        clv_pipeline_unit *it = &s->units[e->to[k]];
        if (has_no_microbatch(to) && s->units[e->from[k]].microbatch > it->microbatch)
            it->microbatch = s->units[e->from[k]].microbatch;
    }
    for (int k = e->n - 1; k >= 0; k--) { /* the first reader comes last */
        const clv_instruction *from = &instructions[e->from[k]];
        const bool of_weight = s->units[e->from[k]].microbatch <= 0 && has_no_microbatch(from);
        if (of_weight && !instructions[e->to[k]].update)
            s->units[e->from[k]].microbatch = -abs(s->units[e->to[k]].microbatch);
    }
    for (int i = 0; i < n; i++)
        s->units[i].microbatch = abs(s->units[i].microbatch);
}

/* of_stage: [n_buffers] by owner: made from state; all false. */
static void find_from_inputs(const unit_search *s, bool *of_stage)
{
    const clv_program *program = s->program;
    for (int b = 0; b < program->n_buffers; b++)
        of_stage[b] = program->buffers[b].kind == CLV_BUFFER_STATE;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        s->from_inputs[i] = true;
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0 && of_stage[clv_program_owning_buffer(program, instruction->in[k])])
                s->from_inputs[i] = false;
        for (int o = 0; o < instruction->n_out; o++)
            of_stage[clv_program_owning_buffer(program, instruction->out[o])] |= !s->from_inputs[i];
    }
}

/* Whether edge k is within a microbatch. */
static bool is_within(const unit_search *s, int k)
{
    const int microbatch = s->units[s->edges->from[k]].microbatch;
    return microbatch > 0 && microbatch == s->units[s->edges->to[k]].microbatch;
}

/* ---- depths ---- */

/* In the forward pass, from the sends on. */
static void carry_forward(const unit_search *s)
{
    for (int k = 0; k < s->edges->n; k++) {
        const int from = s->edges->from[k], to = s->edges->to[k], sends = is_send(s, from);
        const int depth = s->units[from].depth == UNKNOWN ? (sends ? 1 : UNKNOWN) : s->units[from].depth + sends;
        if (is_within(s, k) && !is_backward(s, from) && !is_backward(s, to) && !s->from_inputs[from] &&
            depth > s->units[to].depth)
            s->units[to].depth = depth;
    }
}

/* In the backward pass: the deepest activation that an instruction reads, else the least deep cotangent. */
static void carry_backward(const unit_search *s)
{
    int reads_forward = -1; /* the last instruction that reads an activation */
    for (int k = 0; k < s->edges->n; k++) {
        const int from = s->edges->from[k], to = s->edges->to[k], sends = is_send(s, from);
        clv_pipeline_unit *it = &s->units[to];
        if (!is_within(s, k) || !is_backward(s, to) || s->from_inputs[from] || s->units[from].depth == UNKNOWN)
            continue;
        const bool forward = !is_backward(s, from);
        const int depth = forward ? s->units[from].depth + sends : s->units[from].depth - sends;
        if (forward && (reads_forward != to || depth > it->depth))
            it->depth = depth;
        else if (!forward && reads_forward != to && (it->depth == UNKNOWN || depth < it->depth))
            it->depth = depth < 0 ? 0 : depth;
        reads_forward = forward ? to : reads_forward;
    }
}

/* Of a pass, what no send comes before: the depth of its first reader in that pass, else 0. */
static void take_from_readers(const unit_search *s, bool backward)
{
    const int n = s->program->n_instructions;
    for (int i = 0; i < n; i++)
        s->by_readers[i] = s->units[i].depth;
    for (int k = s->edges->n - 1; k >= 0; k--) {
        const int from = s->edges->from[k], to = s->edges->to[k];
        const int depth = s->by_readers[to] - is_send(s, from);
        int *of = &s->by_readers[from];
        if (is_within(s, k) && s->units[from].depth == UNKNOWN && s->by_readers[to] != UNKNOWN &&
            is_backward(s, from) == backward && is_backward(s, to) == backward &&
            (*of == UNKNOWN || (backward ? depth > *of : depth < *of)))
            *of = depth;
    }
    for (int i = 0; i < n; i++)
        if (is_backward(s, i) == backward && s->units[i].depth == UNKNOWN)
            s->units[i].depth = s->by_readers[i] > 0 ? s->by_readers[i] : 0;
}

/* A weight of several depths, as tied embeddings: the sum of earlier microbatches ends at the least of them, so what is
 * added to it before would make this microbatch wait there. */
static void take_from_sums(const unit_search *s)
{
    const clv_instruction_edges *e = s->edges;
    for (int i = 0; i < s->program->n_instructions; i++) {
        s->by_readers[i] = UNKNOWN;
        s->adds[i] = false;
    }
    for (int k = 0; k < e->n; k++)
        s->adds[e->to[k]] |= !is_within(s, k) && s->units[e->from[k]].microbatch > 0 && is_backward(s, e->from[k]) &&
                             is_backward(s, e->to[k]) && !is_send(s, e->to[k]);
    for (int k = e->n - 1; k >= 0; k--) {
        const int from = e->from[k], to = e->to[k];
        clv_pipeline_unit *it = &s->units[to];
        if (s->adds[to] && s->by_readers[to] != UNKNOWN && s->by_readers[to] < it->depth)
            it->depth = s->by_readers[to];
        if (is_within(s, k) && s->by_readers[from] < it->depth)
            s->by_readers[from] = it->depth;
    }
}

/* Steps of sums over microbatches that updates alone wait for, as reductions of gradients, are of no microbatch: a
 * stage takes them when it has nothing else to do. Within the last microbatch the stage before would wait for them. */
static void find_steps_of_sums(const unit_search *s)
{
    const clv_instruction_edges *e = s->edges;
    for (int i = s->program->n_instructions - 1, k = e->n - 1; i >= 0; i--) {
        clv_pipeline_unit *it = &s->units[i];
        if (it->microbatch > 1 && is_backward(s, i) && !s->is_read[i] && !is_send(s, i) &&
            has_no_microbatch(&s->program->instructions[i]))
            it->microbatch = 0;
        for (; k >= 0 && e->to[k] == i; k--)
            s->is_read[e->from[k]] |= it->microbatch > 0;
    }
}

/* ---- passes ---- */

static void find_passes(const unit_search *s)
{
    const int n = s->program->n_instructions;
    for (int i = 0; i < n; i++)
        s->leads[i] = is_send(s, i);
    for (int k = s->edges->n - 1; k >= 0; k--)
        if (is_within(s, k) && s->leads[s->edges->to[k]] && is_backward(s, s->edges->to[k]))
            s->leads[s->edges->from[k]] = true;
    for (int i = 0; i < n; i++) {
        const bool forward = !is_backward(s, i) || (s->from_inputs[i] && s->program->instructions[i].op);
        s->units[i].pass = s->units[i].microbatch == 0 ? CLV_PASS_OTHER
                           : forward                   ? CLV_PASS_FORWARD
                           : s->leads[i]               ? CLV_PASS_TO_STAGE_BEFORE
                                                       : CLV_PASS_BACKWARD;
    }
}

clv_status clv_find_pipeline_units(clv_pipeline_unit *units, const clv_program *program,
                                   const clv_instruction_edges *edges, clv_arena *arena, clv_error *err)
{
    const size_t n = (size_t)program->n_instructions + 1, buffers = (size_t)program->n_buffers + 1;
    const unit_search s = {.units = units,
                           .program = program,
                           .edges = edges,
                           .from_inputs = clv_arena_alloc(arena, n, sizeof *s.from_inputs),
                           .leads = clv_arena_alloc(arena, n, sizeof *s.leads),
                           .adds = clv_arena_alloc(arena, n, sizeof *s.adds),
                           .is_read = clv_arena_alloc(arena, n, sizeof *s.is_read),
                           .by_readers = clv_arena_alloc(arena, n, sizeof *s.by_readers)};
    bool *of_stage = clv_arena_alloc(arena, buffers, sizeof *of_stage);
    if (!s.from_inputs || !s.leads || !s.adds || !s.is_read || !s.by_readers || !of_stage)
        return clv_fail_memory(err, "a schedule", n * sizeof *s.by_readers);
    find_microbatches(&s);
    find_from_inputs(&s, of_stage);
    carry_forward(&s);
    take_from_readers(&s, false);
    carry_backward(&s);
    take_from_readers(&s, true);
    take_from_sums(&s);
    find_steps_of_sums(&s);
    find_passes(&s);
    return CLV_OK;
}
