/* trace_recorder.c - trace recorder: preallocates each rank's event buffer before a run. */
#include "runtime/diagnostics/trace_recorder.h"

#include <stdlib.h>

#include "base/error.h"
#include "program/program.h"

enum { MOST_EVENTS = 1 << 22 /* of a rank: 128 MiB */, MOST_PROGRAMS = INT16_MAX };

clv_status clv_trace_recorder_new(clv_trace_recorder **out, int first_rank, int n_local_ranks, clv_error *err)
{
    clv_trace_recorder *tracer = calloc(1, sizeof *tracer);
    clv_rank_trace *ranks = calloc((size_t)n_local_ranks, sizeof *ranks);
    if (!tracer || !ranks) {
        free(tracer);
        free(ranks);
        return clv_fail_memory(err, "a trace", (size_t)n_local_ranks * sizeof *ranks);
    }
    *tracer = (clv_trace_recorder){.first_local_rank = first_rank, .n_local_ranks = n_local_ranks, .ranks = ranks};
    *out = tracer;
    return CLV_OK;
}

void clv_trace_recorder_free(clv_trace_recorder *tracer)
{
    if (!tracer)
        return;
    for (int r = 0; r < tracer->n_local_ranks; r++)
        free(tracer->ranks[r].events);
    free(tracer->ranks);
    free(tracer->programs);
    free(tracer);
}

/* The index of a program; -1: out of memory. */
static int number_of(clv_trace_recorder *tracer, const clv_program *program)
{
    for (int p = 0; p < tracer->n_programs; p++)
        if (tracer->programs[p] == program)
            return p;
    const clv_program **grown = tracer->n_programs < MOST_PROGRAMS
                                    ? realloc(tracer->programs, ((size_t)tracer->n_programs + 1) * sizeof *grown)
                                    : NULL;
    if (!grown)
        return -1;
    tracer->programs = grown;
    tracer->programs[tracer->n_programs] = program;
    return tracer->n_programs++;
}

/* Events of a run: the run, each instruction, and of collectives their waits and their completion. */
static int64_t most_events(const clv_program *program)
{
    int64_t n = 1;
    for (int i = 0; i < program->n_instructions; i++)
        n += program->instructions[i].group >= 0 ? 3 + CLV_WAIT_LOG_SIZE : 1;
    return n;
}

static void reserve(clv_rank_trace *t, int64_t more)
{
    int64_t capacity = 2 * t->capacity > t->n + more ? 2 * t->capacity : t->n + more;
    if (t->n + more <= t->capacity || capacity > MOST_EVENTS)
        return;
    clv_trace_event *grown = realloc(t->events, (size_t)capacity * sizeof *grown);
    if (!grown)
        return;
    t->events = grown;
    t->capacity = capacity;
}

bool clv_trace_recorder_begin_run(clv_trace_recorder *tracer, const clv_program *program)
{
    if (tracer->step < 0)
        return false;
    int number = number_of(tracer, program);
    if (number < 0)
        return false;
    int64_t more = most_events(program);
    for (int r = 0; r < tracer->n_local_ranks; r++) {
        clv_rank_trace *t = &tracer->ranks[r];
        reserve(t, more);
        t->waits.n = 0;
        t->template = (clv_trace_event){
            .rank = tracer->first_local_rank + r, .step = (int32_t)tracer->step, .program = (int16_t)number};
    }
    if (!tracer->steps_are_numbered)
        tracer->step++;
    return true;
}

void clv_trace_recorder_forget(clv_trace_recorder *tracer, const clv_program *program)
{
    for (int p = 0; p < tracer->n_programs; p++)
        if (tracer->programs[p] == program)
            tracer->programs[p] = NULL;
}
