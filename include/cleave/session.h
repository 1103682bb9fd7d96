/** @file session.h - runs compiled programs on rank threads; holds named state (parameters, optimizer moments).
 *
 * A session owns one persistent, pinned thread per rank of a mesh (with a job, the ranks are spread over its processes:
 * job.h), the state that programs share by name, and one memory region per rank for each loaded program. A run
 * allocates no memory and starts no threads.
 *
 * **Threads.** A session takes one call at a time. A second call, from another thread or from inside a function that
 * the session runs, returns CLV_EINVAL at once; clv_session_unload then does nothing. Call clv_session_free only when
 * no other call is running. Threads do not survive fork: in the child, runs return CLV_EINVAL and clv_session_free
 * leaves the memory allocated.
 *
 * **Failure.** A run fails when a rank fails or a deadline passes. The session is then poisoned: its state can still be
 * read, and every later run returns the first failure. Make a new session to continue.
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

/** Rank threads, their state, and the programs they run. */
typedef struct clv_session clv_session;

/** Source of initial state values (weights, a checkpoint), used instead of the graph's initializer. Writes the elements
 *  of `box` to `out`, row-major in the state's dtype, and sets *known = 1; with *known = 0 the initializer fills them.
 *  Runs on the rank's own thread, concurrently on several ranks. `name` is the parameter that the state is initialized
 *  from: "w" for the f32 master copy of "w". If it fails, clv_session_load fails. */
typedef clv_status clv_state_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                    int *known, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_session_options {
    size_t size;              /**< sizeof the struct, or 0 */
    int threads_per_rank;     /**< default 1; at most 1024, and 16384 over all ranks of a process */
    int no_pinning;           /**< nonzero: ranks are not bound to cores */
    int64_t timeout_ms;       /**< deadline of one wait for other ranks; default 60000 */
    uint64_t seed;            /**< seed of the initializers of state */
    clv_state_source *source; /**< optional: initial values of state; NULL: initializers only */
    void *source_arg;         /**< passed to source; borrowed until the session is freed */
    int trace;                /**< nonzero: time each instruction, see clv_session_instruction_seconds */
    int check;                /**< nonzero: memory sanitizer. A run fails (CLV_ECHECK, naming op, rank and buffer) when
                                   an op writes outside its results and workspace, leaves an element of a result
                                   unwritten, reads freed memory, or needs more memory on a rank than was planned.
                                   Unused memory is filled with NaN; every buffer is followed by guard bytes, which
                                   clv_session_rank_bytes does not count. Same results, slower: for tests */
    int find_nonfinite;       /**< nonzero: a run fails (CLV_ENONFINITE) after the first instruction whose result is
                                   infinite or NaN, naming op, tensor, rank and global index, or naming the input or
                                   state that already held such a value. Minus infinity is allowed where it means
                                   "none": partial maxima, and attention's log-sum of rows that see no key. Reads every
                                   result once more */
    const char *transport;    /**< how ranks exchange data. "threads" (default): they read each other's memory in place.
                                   "mpi": only, and always, in sessions of a job */
    const clv_cancel *cancel; /**< optional: cancels runs and loading; borrowed until the session is freed */
    const char *device;       /**< where ranks keep tensors and compute; default "cpu", the host */
    clv_job *job;             /**< optional: the processes that share the ranks (job.h); borrowed until the session is
                                   freed; NULL: all ranks are in this process */
    clv_flight *flight;       /**< optional: where flight recorder dumps are written (flight.h); borrowed until the
                                   session is freed */
} clv_session_options;

/** Starts one thread per rank of a mesh; options may be NULL. Free with clv_session_free.
 *  @return CLV_EINVAL for options out of range, an unknown transport or device, or a mesh with fewer ranks than the job
 *          has processes; CLV_EUNSUPPORTED for check or find_nonfinite on a device with memory of its own; CLV_ELIMIT
 *          for too many threads; CLV_ENOMEM, also when threads cannot be started. With a job: CLV_ETIMEOUT naming the
 *          processes that did not call it in time, CLV_EPEER when they make a different session or the job is
 *          poisoned */
CLV_API clv_status clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options,
                                   clv_error *err);
/** Stops the rank threads and frees the session, but not its programs; NULL is a no-op. */
CLV_API void clv_session_free(clv_session *session);

/** Loads a program: allocates its memory, creates and initializes the state it names that the session does not have
 *  yet, and reshards existing state to the program's layouts. The first run of a program loads it if this was not
 *  called. The program is borrowed until it is unloaded or the session is freed.
 *  @return CLV_ESHAPE when a state exists with another shape or dtype; CLV_EINVAL for a program of another mesh */
CLV_API clv_status clv_session_load(clv_session *session, const clv_program *program, clv_error *err);

/** Frees the memory of a loaded program, which may then be freed; its state stays. Does nothing if it is not loaded. */
CLV_API void clv_session_unload(clv_session *session, const clv_program *program);

/** An input: the caller's whole tensor, row-major, in the dtype and shape that the graph states. */
typedef struct clv_input_binding {
    const char *name;
    const void *data;
} clv_input_binding;
/** An output: memory for a whole tensor. */
typedef struct clv_output_binding {
    const char *name;
    void *data;
} clv_output_binding;

/** Runs a program. Each input must be bound exactly once: CLV_ENOTFOUND names a missing or unknown one, CLV_EINVAL one
 *  that is bound twice. Outputs that are not bound are not copied. On failure err names the rank and the op. */
CLV_API clv_status clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                                   int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err);

/** A box of an input: its elements, row-major and contiguous. An empty box needs no data. */
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

/** Bindings of a run: whole tensors, or boxes of them, so that no process has to hold a whole tensor. Together the
 *  boxes of an input must contain every element that this process's ranks need; overlapping boxes must agree. Boxes of
 *  outputs may be any. */
typedef struct clv_run {
    size_t size; /**< sizeof the struct, or 0 */
    int n_inputs, n_outputs, n_input_boxes, n_output_boxes;
    const clv_input_binding *inputs;
    const clv_output_binding *outputs;
    const clv_input_box *input_boxes;
    const clv_output_box *output_boxes;
    int matmuls_only; /**< nonzero: run only the program's matrix products, without collectives, on whatever values
                             their operands hold; outputs and assigned state are then meaningless. A benchmark's lower
                             bound for the time of a run. CLV_EUNSUPPORTED with check or find_nonfinite */
} clv_run;

/** clv_session_run with boxes. What rank r needs of an input, and produces of an output, is its shard in
 *  the program's layout:
 *  @code
 *  clv_program_tensor x = {.size = sizeof x};
 *  CLV_TRY(clv_program_tensor_at(program, 0, &x, err));
 *  for (int r = 0; r < ranks; r++)
 *      boxes[r] = (clv_input_box){x.name, clv_layout_shard(&x.layout, mesh, x.type.shape, r), shard[r]};
 *  @endcode
 *  @return CLV_ESHAPE for a box outside the tensor, or naming elements that a rank needs and no box contains;
 *          CLV_EINVAL for a tensor bound both whole and in boxes; clv_session_run's */
CLV_API clv_status clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *run,
                                         clv_error *err);

/** A state and its layout in the session. The name lives as long as the session. */
typedef struct clv_state_info {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    const char *name;
    clv_type type;
    clv_layout layout;
} clv_state_info;
/** State i, for listing. Fills *out, whose `size` the caller has set; name == NULL past the end.
 *  @return CLV_EINVAL for a negative i, or a size that no version had */
CLV_API clv_status clv_session_state(const clv_session *session, int i, clv_state_info *out, clv_error *err);

/** Copies the elements of `box` (NULL: all) of a state to a row-major buffer of the box's shape.
 *  @return CLV_ENOTFOUND for an unknown state; CLV_ESHAPE for a box outside it; CLV_EINVAL while another call uses the
 *          session; in a session of several processes, the transport's failures */
CLV_API clv_status clv_session_read(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                    clv_error *err);
/** Copies a row-major buffer to the elements of `box` (NULL: all) of a state. @return clv_session_read's */
CLV_API clv_status clv_session_write(clv_session *session, const char *name, const clv_shard *box, const void *in,
                                     clv_error *err);

/** Seconds that a run spends in an instruction of a loaded program, waiting for other ranks included: mean over ranks
 *  and over the runs since clv_session_take_stats; 0 without clv_session_options.trace. */
CLV_API double clv_session_instruction_seconds(const clv_session *session, const clv_program *program, int instruction);

/** Bytes that the session has allocated for one rank: its state, and the regions of loaded programs. With one program
 *  this is clv_program_memory's total. With pipeline stages, those of the largest stage. */
CLV_API int64_t clv_session_rank_bytes(const clv_session *session);

/** Time of the runs since the last reset, averaged over ranks. */
typedef struct clv_session_stats {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    int64_t runs;
    double seconds;            /**< wall time of runs */
    double comm_seconds;       /**< time in collectives: waiting and moving data */
    double wait_seconds;       /**< part of comm_seconds: waiting for other ranks */
    int64_t fallbacks;         /**< ops, of all ranks, that ran on the host because the device has no kernel for them */
    int64_t fallback_bytes;    /**< bytes copied to the host and back for fallbacks */
    double overlapped_seconds; /**< time in which collectives overlapped with ops (0 unless
                                    clv_compile_options.overlap), not part of comm_seconds: for each collective, from
                                    its start until its data had arrived or the rank waited for it, at most the time of
                                    the ops run meanwhile. Ranks of one host copy when they wait, so there it hides only
                                    that others are late; MPI messages are polled every 0.1 ms */
} clv_session_stats;
/** Fills *out, whose `size` the caller has set (out may be NULL), and resets the statistics to 0.
 *  @return CLV_EINVAL for a size that no version had, or while another call uses the session */
CLV_API clv_status clv_session_take_stats(clv_session *session, clv_session_stats *out, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
