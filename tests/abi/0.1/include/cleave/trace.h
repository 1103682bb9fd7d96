/** @file trace.h - when each rank did what: runs of a session as a trace that Perfetto shows, and the table of it.
 *
 * @code
 * CLV_TRY(clv_trace_begin(session, err));
 * CLV_TRY(clv_session_run(session, program, inputs, n_inputs, outputs, n_outputs, err));
 * clv_trace_options options = {.size = sizeof options, .path = "run.trace.json"};
 * CLV_TRY(clv_trace_end(session, &options, err));
 * @endcode
 * `cleave trace run.trace.json` prints where the time went; https://ui.perfetto.dev and chrome://tracing draw it.
 *
 * **The file** is JSON of the Trace Event Format: a row (tid) for each rank, under its process (pid). In it lie, as
 * complete events ("ph": "X", microseconds), by category ("cat"): "step", a run of a program; in that "compute", an op,
 * or a slice or mask, which move nothing; "collective", in which ranks talk; and in that "waiting", for others: what is
 * left of a collective is its own time. Ranks of a process that wait take pieces of late ranks' products meanwhile:
 * args has "helping", the microseconds of the wait that went into that. With clv_compile_options.overlap a collective
 * has two slices there, where it begins and where it ends, and a "transfer" in a row of its own, from when it has begun
 * until what others sent is here, or the rank waits for it.
 *
 * args of each: op ("layers.0.mlp.dot_general"; of a collective the op that needs it), kind, part ("attention",
 * "feed-forward", "rest", by the op's name), layer where it is of one, pass, step; and once for each op and collective
 * of a run flops and GF/s, bytes and GB/s, axes (whose ranks talk). Flops and bytes are of the rank that has most
 * (clv_instruction_info); GB/s of a collective is over what it does not wait. "otherData" has "cleave_trace": 1, mesh,
 * ranks, seen (of how many of them it is), processes, steps, lost (events for which there was no room), clocks, and
 * what was predicted of a step (clv_program_predict), by part: seconds, communication.
 *
 * **Clocks.** Processes of one host have one clock. Those of other hosts are set by when collectives of all processes
 * end, so that what is shown of two hosts is right to as long as a short message takes ("clocks": "aligned").
 *
 * **Threads.** These calls use the session, as a run does: one at a time. A report may be shared by threads.
 *
 * **Cost.** Two readings of the clock an instruction, some 50 ns, and 40 bytes; nothing when no trace was begun.
 */
#ifndef CLEAVE_TRACE_H
#define CLEAVE_TRACE_H

#include "cleave/machine.h"
#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Runs of the session are recorded from here on, each as a step, from 0 on. What was recorded before and not written
 *  is forgotten. Of a session of several processes all make these calls alike.
 *  @return CLV_ENOMEM; CLV_EINVAL while another call uses the session */
CLV_API clv_status clv_trace_begin(clv_session *session, clv_error *err);
/** Runs from here on are of this step, until it is called again: several runs may make a step. step < 0: they are not
 *  recorded. Nothing where no trace was begun.
 *  @return CLV_EINVAL for a step beyond INT32_MAX, or while another call uses the session */
CLV_API clv_status clv_trace_step(clv_session *session, int64_t step, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_trace_options {
    size_t size;                /**< sizeof the struct; 0: as its first version had it */
    const char *path;           /**< the file, replaced if it is there; NULL: what was recorded is forgotten */
    const clv_machine *machine; /**< what the prediction in it is for; NULL: machine.h's default. Borrowed meanwhile */
    int64_t alone;              /**< nonzero: of several processes this one asks no other, which may have failed, and
                                     the process of rank 0 writes what its own ranks recorded */
} clv_trace_options;
/** Records no more, and writes what was. Of a session of several processes all call it; the process of rank 0 writes
 *  what all recorded. Programs that ran are still loaded: runs of others are left out. options NULL: all is forgotten.
 *  Of a run that failed there is what ran until then, and what it failed in; nothing of a rank that has not returned.
 *  @return CLV_EINVAL where no trace was begun, or while another call uses the session; CLV_EIO, CLV_ENOTFOUND of the
 *          file; CLV_ENOMEM; of several processes what their transport fails by */
CLV_API clv_status clv_trace_end(clv_session *session, const clv_trace_options *options, clv_error *err);

/* ---- reading ---- */

/** A trace's file, summed up. */
typedef struct clv_trace_report clv_trace_report;

/** Reads a file that clv_trace_end wrote. Free with clv_trace_report_free.
 *  @return CLV_EFORMAT naming the file for what is no such trace, or damaged; CLV_EUNSUPPORTED for another version;
 *          CLV_EIO, CLV_ENOTFOUND, CLV_ELIMIT (a file of more than 1 GiB), CLV_ENOMEM */
CLV_API clv_status clv_trace_read(clv_trace_report **out, const char *path, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_trace_report_free(clv_trace_report *report);

/** What a trace is of. Strings live with the report. */
typedef struct clv_trace_info {
    size_t size;         /**< the caller's: sizeof the struct, or 0 */
    const char *mesh;    /**< "data=2,model=2" */
    const char *machine; /**< what the prediction is for */
    int64_t ranks, processes;
    int64_t steps;
    int64_t lost;   /**< events for which there was no room */
    double seconds; /**< of a step, mean over steps and ranks */
} clv_trace_info;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_API clv_status clv_trace_describe(const clv_trace_report *report, clv_trace_info *out, clv_error *err);

/** Where the time of a step went, of one part of the model: seconds, means over steps and ranks. */
typedef struct clv_trace_part {
    size_t size;                    /**< the caller's: sizeof the struct, or 0 */
    const char *name;               /**< "attention", "feed-forward", "rest"; NULL: past the end */
    double compute;                 /**< in ops */
    double moving;                  /**< in collectives, but for waiting */
    double waiting;                 /**< in collectives, for other ranks */
    double beside;                  /**< that transfers took beside ops; in none of the above */
    double bytes;                   /**< of the collectives of a step, each that of the rank that gets most */
    int64_t collectives;            /**< of a step */
    double predicted_seconds;       /**< of a step, for the machine */
    double predicted_communication; /**< of that: in collectives, or waiting for them */
    double helping;                 /**< of waiting: at pieces of others' products */
} clv_trace_part;
/** By number. Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a number below 0, or a size that no
 *  version had */
CLV_API clv_status clv_trace_report_part(const clv_trace_report *report, int i, clv_trace_part *out, clv_error *err);

/** What a step waits for: the time in all ops, or collectives, of one kind; means over steps and ranks. */
typedef struct clv_trace_op_kind {
    size_t size;      /**< the caller's: sizeof the struct, or 0 */
    const char *name; /**< "dot_general", "all_reduce"; lives with the report; NULL: past the end */
    double calls;     /**< of a step of a rank */
    double seconds;   /**< in them, waiting for other ranks included */
    double waiting;   /**< of that: for other ranks, which are late or slower */
    double helping;   /**< of that: at pieces of their products */
} clv_trace_op_kind;
/** By number, those first that take longest. Of more than 128 kinds, which only damage has, those beyond are left out.
 *  Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for a number below 0, or a size that no version had */
CLV_API clv_status clv_trace_report_op_kind(const clv_trace_report *report, int i, clv_trace_op_kind *out,
                                            clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
