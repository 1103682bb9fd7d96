/* trace_recorder.h - trace recorder: per-rank event buffers that the executor fills during a run. What becomes of it
 * is trace_gather.c.
 */
#ifndef CLEAVE_RUNTIME_DIAGNOSTICS_TRACE_RECORDER_H
#define CLEAVE_RUNTIME_DIAGNOSTICS_TRACE_RECORDER_H

#include <stdbool.h>

#include "cleave/program.h"
#include "cleave/trace.h"
#include "comm/comm.h"
#include "io/diagnostics/trace_file.h"

/* What a rank records to. */
typedef struct clv_rank_trace {
    clv_trace_event *events;
    int64_t n, room;
    int64_t dropped;      /* for which there was no room */
    clv_trace_event like; /* rank, step and program of what is recorded now */
    clv_wait_log waits;   /* of the instruction that runs */
} clv_rank_trace;

typedef struct clv_trace_recorder {
    int first_local_rank, n_local_ranks;
    clv_rank_trace *ranks; /* [n_local_ranks] */
    int n_programs;
    const clv_program **programs; /* [n_programs]; NULL: it was unloaded */
    bool steps_are_numbered;      /* steps are, by who runs them; else each run is one */
    int64_t step;                 /* of the next run; < 0: it is not recorded */
} clv_trace_recorder;

clv_status clv_trace_recorder_new(clv_trace_recorder **out, int first, int here, clv_error *err);
void clv_trace_recorder_free(clv_trace_recorder *tracer);

/* clv_trace_end, behind runs that came to `status`, which it returns: of runs that failed no other process is asked. */
clv_status clv_trace_end_after(clv_session *session, const clv_trace_options *options, clv_status status,
                               clv_error *err);

/* Before a run: makes room for what it may record. False: it is not recorded. */
bool clv_trace_recorder_begin_run(clv_trace_recorder *tracer, const clv_program *program);
/* The program is no more. */
void clv_trace_recorder_forget(clv_trace_recorder *tracer, const clv_program *program);

/* NULL: there is no room for it. */
static inline clv_trace_event *clv_rank_trace_add(clv_rank_trace *t, clv_trace_kind kind, int instruction,
                                                  int64_t begun_ns, int64_t ended_ns)
{
    if (t->n == t->room) {
        t->dropped++;
        return NULL;
    }
    clv_trace_event *event = &t->events[t->n++];
    *event = t->like;
    event->kind = (int16_t)kind;
    event->instruction = instruction;
    event->begun_ns = begun_ns;
    event->ended_ns = ended_ns;
    return event;
}

/* With what the rank waited meanwhile. */
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

#endif
