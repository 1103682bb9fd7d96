/* trace_recorder.h - trace recorder: per-rank event buffers that the executor fills during a run; trace_gather.c reads
 * them.
 */
#pragma once

#include <stdbool.h>

#include "cleave/program.h"
#include "cleave/trace.h"
#include "comm/comm.h"
#include "io/diagnostics/trace_file.h"

/* Event buffer of a rank. */
typedef struct clv_rank_trace {
    clv_trace_event *events;
    int64_t n, capacity;
    int64_t dropped;          /* events that did not fit */
    clv_trace_event template; /* rank, step and program of the current run */
    clv_wait_log waits;       /* of the current instruction */
} clv_rank_trace;

typedef struct clv_trace_recorder {
    int first_local_rank, n_local_ranks;
    clv_rank_trace *ranks; /* [n_local_ranks] */
    int n_programs;
    const clv_program **programs; /* [n_programs]; NULL: unloaded */
    bool steps_are_numbered;      /* clv_trace_step was called; else each run is a step */
    int64_t step;                 /* of the next run; < 0: not recorded */
} clv_trace_recorder;

clv_status clv_trace_recorder_new(clv_trace_recorder **out, int first_rank, int n_local_ranks, clv_error *err);
void clv_trace_recorder_free(clv_trace_recorder *tracer);

/* clv_trace_end after runs that ended with `status`, which it returns. After a failure nothing is gathered from other
 * processes. */
clv_status clv_trace_end_after(clv_session *session, const clv_trace_options *options, clv_status status,
                               clv_error *err);

/* Reserves memory for the events of a run. False: the run is not recorded. */
bool clv_trace_recorder_begin_run(clv_trace_recorder *tracer, const clv_program *program);
/* Removes a program that is unloaded. */
void clv_trace_recorder_forget(clv_trace_recorder *tracer, const clv_program *program);

/* NULL: the buffer is full. */
static inline clv_trace_event *clv_rank_trace_add(clv_rank_trace *t, clv_trace_kind kind, int instruction,
                                                  int64_t begun_ns, int64_t ended_ns)
{
    if (t->n == t->capacity) {
        t->dropped++;
        return NULL;
    }
    clv_trace_event *event = &t->events[t->n++];
    *event = t->template;
    event->kind = (int16_t)kind;
    event->instruction = instruction;
    event->begun_ns = begun_ns;
    event->ended_ns = ended_ns;
    return event;
}

/* Adds an event and the waits of the current instruction. */
static inline void clv_rank_trace_add_waits(clv_rank_trace *t, clv_trace_kind kind, int instruction, int64_t begun_ns,
                                            int64_t ended_ns)
{
    (void)clv_rank_trace_add(t, kind, instruction, begun_ns, ended_ns);
    for (int i = 0; i < t->waits.n; i++) {
        clv_trace_event *wait =
            clv_rank_trace_add(t, CLV_TRACE_WAIT, instruction, t->waits.of[i].begun_ns, t->waits.of[i].ended_ns);
        if (wait)
            wait->stealing_ns = t->waits.of[i].stealing_ns;
    }
    t->waits.n = 0;
}
