/** @file trace.h - records runs of a session as a trace (Perfetto, chrome://tracing), and sums a trace up.
 *
 * @code
 * CLV_TRY(clv_trace_begin(session, err));
 * CLV_TRY(clv_session_run(session, program, inputs, n_inputs, outputs, n_outputs, err));
 * clv_trace_options options = {.size = sizeof options, .path = "run.trace.json"};
 * CLV_TRY(clv_trace_end(session, &options, err));
 * @endcode
 * `cleave trace run.trace.json` prints where the time went; https://ui.perfetto.dev and chrome://tracing draw it.
 *
 * **The file** is JSON in the Trace Event Format: one row (tid) per rank, in its process (pid). Its complete events
 * ("ph": "X", microseconds) have these categories ("cat"). A "step" is one run of a program. Inside it, a "compute" is
 * an op, or a slice or mask, which move no data; a "collective" exchanges data between ranks, and inside it "waiting"
 * is the time spent waiting for other ranks. While ranks of one process wait, they steal tasks of late ranks' matrix
 * products; args.stealing is the part of the wait, in microseconds, spent on that. With clv_compile_options.overlap a
 * collective has two slices in the rank's row, where it starts and where it completes, and a "transfer" in a row of its
 * own, from its start until its data has arrived or the rank waits for it.
 *
 * args of each event: op ("layers.0.mlp.dot_general"; for a collective, the op that needs it), kind, part ("attention",
 * "feed-forward" or "rest", by the op's name), layer if any, pass, step. Once per op and collective of a run: flops and
 * GF/s, bytes and GB/s, axes. Flops and bytes are those of the busiest rank (clv_instruction_info); a collective's GB/s
 * excludes waiting. "otherData" has "cleave_trace": 1, mesh, ranks, seen (ranks in the file), processes, steps,
 * dropped_events (events that did not fit in the buffers), clocks, and the prediction for a step (clv_program_predict)
 * by part: seconds, communication.
 *
 * **Clocks.** Processes of one host share a clock. Clocks of other hosts are aligned at the ends of collectives of all
 * processes, to about the latency of a short message ("clocks": "aligned").
 *
 * **Threads.** clv_trace_begin, _step and _end use the session like a run: one call at a time. Threads may
 * share a report.
 *
 * **Cost.** Two clock reads and 40 bytes per instruction; nothing while no trace is recorded.
 */
#ifndef CLEAVE_TRACE_H
#define CLEAVE_TRACE_H

#include "cleave/machine.h"
#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Starts recording: each later run of the session is a step, numbered from 0. Discards an unfinished recording. In a
 *  session of several processes, all processes make the same clv_trace calls.
 *  @return CLV_ENOMEM; CLV_EINVAL while another call uses the session */
CLV_EXPERIMENTAL clv_status clv_trace_begin(clv_session *session, clv_error *err);
/** Assigns the following runs to `step`, until the next call; several runs may form one step. With a negative step,
 *  runs are not recorded. Does nothing if no trace is recorded.
 *  @return CLV_EINVAL for a step beyond INT32_MAX, or while another call uses the session */
CLV_EXPERIMENTAL clv_status clv_trace_step(clv_session *session, int64_t step, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_trace_options {
    size_t size;                /**< sizeof the struct, or 0 */
    const char *path;           /**< the file, overwritten if it exists; NULL: discard the recording */
    const clv_machine *machine; /**< machine to predict for, borrowed during the call; NULL: machine.h's default */
    int this_process_only;      /**< nonzero: do not gather from the other processes, which may have failed; the process
                                     of rank 0 writes the events of its own ranks */
} clv_trace_options;
/** Stops recording and writes the trace; options NULL discards it. In a session of several processes all of them call
 *  it, and the process of rank 0 writes the events of all ranks. Runs of programs that are no longer loaded are left
 *  out. A failed run is recorded up to the instruction that failed, except on ranks that have not returned.
 *  @return CLV_EINVAL if no trace is recorded, for a path where no file can be, or while another call uses the session;
 *          CLV_EIO, CLV_ENOTFOUND for the file; CLV_ENOMEM; the transport's failures in a session of several
 *          processes */
CLV_EXPERIMENTAL clv_status clv_trace_end(clv_session *session, const clv_trace_options *options, clv_error *err);

/* ---- reading ---- */

/** Summary of a trace file. */
typedef struct clv_trace_report clv_trace_report;

/** Reads a file written by clv_trace_end. Free with clv_trace_report_free.
 *  @return CLV_EFORMAT naming a file that is not a trace or is damaged; CLV_EUNSUPPORTED for another version; CLV_EIO,
 *          CLV_ENOTFOUND, CLV_ELIMIT (a file of more than 1 GiB), CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_trace_read(clv_trace_report **out, const char *path, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_trace_report_free(clv_trace_report *report);

/** General facts of a trace. Strings live with the report. */
typedef struct clv_trace_info {
    size_t size;         /**< set by the caller: sizeof the struct, or 0 */
    const char *mesh;    /**< "data=2,model=2" */
    const char *machine; /**< the machine of the prediction */
    int64_t ranks, processes;
    int64_t steps;
    int64_t dropped_events; /**< events that did not fit in the buffers */
    double seconds;         /**< of a step, mean over steps and ranks */
} clv_trace_info;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a size that no version had */
CLV_EXPERIMENTAL clv_status clv_trace_report_get_info(const clv_trace_report *report, clv_trace_info *out,
                                                      clv_error *err);

/** Time of a step in one part of the model: seconds, means over steps and ranks. */
typedef struct clv_trace_part {
    size_t size;                    /**< set by the caller: sizeof the struct, or 0 */
    const char *name;               /**< "attention", "feed-forward", "rest"; NULL: past the end */
    double compute;                 /**< in ops */
    double moving;                  /**< in collectives, without waiting */
    double waiting;                 /**< in collectives, for other ranks */
    double overlapped;              /**< transfers that ran during ops; in none of the above */
    double bytes;                   /**< of a step's collectives, each as received by its busiest rank */
    int64_t collectives;            /**< of a step */
    double predicted_seconds;       /**< predicted for a step on the machine */
    double predicted_communication; /**< of that: in collectives, waiting included */
    double stealing;                /**< of waiting: on stolen tasks of other ranks' products */
} clv_trace_part;
/** Part i. Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a negative i, or a size that no version
 *  had */
CLV_EXPERIMENTAL clv_status clv_trace_report_part(const clv_trace_report *report, int i, clv_trace_part *out,
                                                  clv_error *err);

/** Time of a step in all ops, or collectives, of one kind: means over steps and ranks. */
typedef struct clv_trace_op_kind {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *name; /**< "dot_general", "all_reduce"; lives with the report; NULL: past the end */
    double calls;     /**< in a step of a rank */
    double seconds;   /**< in total, waiting for other ranks included */
    double waiting;   /**< of that: for other ranks, which are late or slower */
    double stealing;  /**< of that: on stolen tasks of their products */
} clv_trace_op_kind;
/** Kind i, the longest first; at most 128 kinds. Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for a negative i, or a size that no version had */
CLV_EXPERIMENTAL clv_status clv_trace_report_op_kind(const clv_trace_report *report, int i, clv_trace_op_kind *out,
                                                     clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
