/** @file session.h - running programs: rank threads, named state, buffers.
 *
 * A session owns the ranks of a mesh (persistent, pinned threads of this process; with a job, of several: job.h), the
 * state that programs share by name, and a region of memory a rank for each program that was loaded. A run allocates
 * nothing and starts no thread. One call at a time may use a session: another, of a second thread or from inside a
 * function that the session runs, is CLV_EINVAL at once (clv_session_unload does nothing then; clv_session_free is for
 * when no call is under way). Threads do not survive fork: in a child a run is CLV_EINVAL, and clv_session_free leaves
 * the memory to the process.
 *
 * After a failed run (a rank failed, or a deadline passed) the session is poisoned: state may be read, runs return the
 * first failure. Make a new session to go on.
 */
#ifndef CLEAVE_SESSION_H
#define CLEAVE_SESSION_H

#include "cleave/cancel.h"
#include "cleave/flight.h"
#include "cleave/job.h"
#include "cleave/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks, their state, and the programs that they run. */
typedef struct clv_session clv_session;

/** Gives a rank the first values of its box of a state, row-major in the state's dtype, instead of the graph's
 *  initializer; *known = 0 leaves them to the initializer. Called on the rank's own thread, on several ranks at once.
 *  `name` is the parameter that the state begins as: for the f32 master copy of "w" it is "w". A failure fails
 *  clv_session_load. */
typedef clv_status clv_state_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                    int *known, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_session_options {
    size_t size;              /**< sizeof the struct; 0: as its first version had it */
    int threads_per_rank;     /**< 0: 1; at most 1024, and 16384 of all ranks of a process */
    int no_pinning;           /**< nonzero: ranks are not bound to cores */
    int64_t timeout_ms;       /**< deadline of one wait for other ranks; 0: 60000 */
    uint64_t seed;            /**< of the first values of state */
    clv_state_source *source; /**< where they come from otherwise; NULL: nowhere */
    void *source_arg;         /**< borrowed until the session ends */
    int trace;                /**< nonzero: each instruction is timed, see clv_session_instruction_seconds */
    int check;                /**< nonzero: runs fail (CLV_ECHECK, naming op, rank and buffer) when an op writes outside
                                   its results and workspace, leaves a part of a result unwritten, reads memory that was
                                   given back, or wants more on a rank than was planned. Memory that holds no value is
                                   filled with NaN, guard bytes lie behind every buffer (not counted by
                                   clv_session_rank_bytes). For tests: results are the same, time is not */
    int find_nonfinite;       /**< nonzero: a run fails (CLV_ENONFINITE) after the first instruction whose result is
                                   infinite or NaN, naming op, tensor, rank and global index; or the input or state that
                                   held such a value before. Minus infinity is no finding where it stands for "none":
                                   partial maxima, attention's log-sum of rows that see no key. Reads each result once
                                   more. */
    const char *transport;    /**< how ranks exchange data: "threads" (they read each other's memory in place) or "mpi"
                                   (sessions of a job have it, and no others); NULL: whichever of the two fits */
    const clv_cancel
        *cancel;        /**< ends runs and loading when it is requested; borrowed until the session ends; NULL: none */
    const char *device; /**< where ranks keep tensors and compute; NULL: "cpu", the host */
    clv_job *job; /**< the processes that have the ranks, see job.h; borrowed until the session ends; NULL: this one
                             has all */
    clv_flight *flight; /**< where its flight recorder is written to, see flight.h; borrowed until the session ends;
                             NULL: nowhere */
} clv_session_options;

/** Starts the ranks of a mesh; options may be NULL. Free with clv_session_free.
 *  @return CLV_EINVAL for options out of range, a transport or device that there is not, or a mesh of fewer ranks than
 *          the job has processes; CLV_EUNSUPPORTED for check or find_nonfinite on a device whose memory is not the
 *          host's; CLV_ELIMIT for more threads than are allowed; CLV_ENOMEM, for threads, too; with a job CLV_ETIMEOUT
 *          naming the processes that did not come, CLV_EPEER when they make another session or the job was poisoned */
CLV_API clv_status clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                   clv_error *err);
/** Stops the ranks and frees everything; NULL is a no-op. Programs are the caller's. */
CLV_API void clv_session_free(clv_session *session);

/** Makes ready to run a program: its memory, and the state that it names and the session does not have yet (filled with
 *  its first values). State that exists in another layout is brought to this program's. The program is borrowed until
 *  it is unloaded or the session ends. Done by the first run when it was not done before.
 *  @return CLV_ESHAPE when state exists with another shape or dtype; CLV_EINVAL for a program of another mesh */
CLV_API clv_status clv_session_load(clv_session *session, const clv_program *program, clv_error *err);

/** Gives back the memory of a program that was loaded, if it was; its state stays. The program may be freed then. */
CLV_API void clv_session_unload(clv_session *session, const clv_program *program);

/** An input: a whole tensor of the caller's, row-major, in the dtype and shape that the graph stated. */
typedef struct clv_input_binding {
    const char *name;
    const void *data;
} clv_input_binding;
/** An output: memory for a whole tensor. */
typedef struct clv_output_binding {
    const char *name;
    void *data;
} clv_output_binding;

/** Runs a program. Every input must be bound (CLV_ENOTFOUND names a missing or unknown one) once (CLV_EINVAL); outputs
 *  not asked for are not copied. The failing rank and op are in err. */
CLV_API clv_status clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                                   int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err);

/** A box of an input: its elements, row-major, without gaps. One of no elements needs no data. */
typedef struct clv_input_box {
    const char *name;
    clv_shard box;
    const void *data;
} clv_input_box;
/** Memory for a box of an output. */
typedef struct clv_output_box {
    const char *name;
    clv_shard box;
    void *data;
} clv_output_box;

/** What a run reads and writes: whole tensors, or boxes of them, so that nobody needs the whole. Zeros: nothing.
 *  The input parts of a tensor hold together what the ranks here need of it, each element at least once; where they
 *  overlap they hold the same. Output parts are any boxes. */
typedef struct clv_run {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    int n_inputs, n_outputs, n_input_boxes, n_output_boxes;
    const clv_input_binding *inputs;
    const clv_output_binding *outputs;
    const clv_input_box *input_boxes;
    const clv_output_box *output_boxes;
    int matmuls_only; /**< nonzero: of the program its products of two tensors alone run, on all ranks at once, with
                             whatever their operands hold by then; no rank meets another. Outputs, and states that the
                             program assigns, mean nothing afterwards. For measuring: the least time that a run can take
                             is that of its products. CLV_EUNSUPPORTED in a session that checks its runs */
} clv_run;

/** clv_session_run, with boxes too. What rank r needs of an input, or makes of an output, is its shard in the
 *  program's layout:
 *  @code
 *  clv_program_tensor x = {.size = sizeof x};
 *  CLV_TRY(clv_program_tensor_at(program, 0, &x, err));
 *  for (int r = 0; r < ranks; r++)
 *      parts[r] = (clv_input_box){x.name, clv_layout_shard(&x.layout, mesh, x.type.shape, r), shard[r]};
 *  @endcode
 *  @return CLV_ESHAPE for a box that is not inside the tensor, or elements that a rank needs and no box holds, naming
 *          both; CLV_EINVAL for a tensor bound whole and in parts; those of clv_session_run */
CLV_API clv_status clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *run,
                                         clv_error *err);

/** A state, in the session's layout; the name lives with the session. */
typedef struct clv_state_info {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    const char *name;
    clv_type type;
    clv_layout layout;
} clv_state_info;
/** By number, for listing. Fills *out, whose `size` the caller has set; name == NULL past the end.
 *  @return CLV_EINVAL for a number below 0, or a size that no version had */
CLV_API clv_status clv_session_state(const clv_session *session, int i, clv_state_info *out, clv_error *err);

/** Copies the elements of `box` (NULL: all) of a state to or from a row-major buffer of the box' shape.
 *  @return CLV_ENOTFOUND for a state that there is not; CLV_ESHAPE for a box that is not inside it; CLV_EINVAL while
 *          another call uses the session; of a session of several processes what its transport fails by */
CLV_API clv_status clv_session_read(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                    clv_error *err);
/** See clv_session_read. @return the same */
CLV_API clv_status clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                                     clv_error *err);

/** Seconds that the ranks spent in an instruction of a program loaded before, mean over ranks and over the runs since
 *  clv_session_take_stats, waiting for others included; 0 without options.trace. */
CLV_API double clv_session_instruction_seconds(const clv_session *session, const clv_program *program, int instruction);
/** The same of what a step took beside ops, which is not in the former: see clv_session_stats.overlapped_seconds. */
CLV_API double clv_session_overlapped_seconds(const clv_session *session, const clv_program *program, int instruction);

/** Bytes that the session has allocated for one rank: state, and regions of the programs loaded. For one program this
 *  is clv_program_memory's total. */
CLV_API int64_t clv_session_rank_bytes(const clv_session *session);

/** Where the time of runs since the last reset went: averages over ranks. */
typedef struct clv_session_stats {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    int64_t runs;
    double seconds;         /**< wall time of runs */
    double comm_seconds;    /**< in steps: waiting and moving */
    double wait_seconds;    /**< of that: waiting for other ranks */
    int64_t fallbacks;      /**< ops of all ranks that ran on the host, for the device has no kernel for them */
    int64_t fallback_bytes; /**< that were copied for them, to the host and back */
    double
        overlapped_seconds; /**< in which steps moved beside ops (clv_compile_options.overlap; else 0), and which are in
                                 none of the above: of each step from its start until what others sent was here, or the
                                 rank waited for it, at most as long as it ran ops meanwhile. Ranks of one host read
                                 each other's memory when they wait, so what hides there is that another is late;
                                 messages of MPI are looked for every 0.1 ms */
} clv_session_stats;
/** Fills *out, whose `size` the caller has set (NULL: nobody asks), and begins anew.
 *  @return CLV_EINVAL for a size that no version had, or while another call uses the session */
CLV_API clv_status clv_session_take_stats(clv_session *session, clv_session_stats *out, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
