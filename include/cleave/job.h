/** @file job.h - ranks in several processes: those of an MPI job (`mpirun -np 2 ./program`).
 *
 * Every process runs the same program, joins the job and makes sessions (session.h) whose ranks are spread over the
 * job's processes in blocks: of N ranks, process p of P has ranks floor(p N / P) to floor((p+1) N / P) - 1, each a
 * thread. N must be at least P. Results are bit for bit those of one process with all ranks.
 * @code
 * clv_job *job;
 * clv_session *session;
 * CLV_TRY(clv_job_join(&job, NULL, err));
 * clv_session_options options = {.size = sizeof options, .job = job};
 * CLV_TRY(clv_session_new(&session, clv_program_mesh(program), &options, err));
 * CLV_TRY(clv_session_run(session, program, inputs, n_inputs, outputs, n_outputs, err));
 * if (clv_job_process_index(job) == 0)
 *     print(outputs);                  // every process has them
 * clv_session_free(session);
 * CLV_TRY(clv_job_leave(job, err));
 * @endcode
 *
 * **Collective calls.** All processes must call clv_session_new with the job, and these functions of such a session, in
 * the same order and with the same programs, names, boxes and seeds: clv_session_load, clv_session_run,
 * clv_session_run_boxes, clv_session_read, clv_session_write, clv_spmd_run and clv_model_save. If a process does not
 * call, the others return CLV_ETIMEOUT and name it; if it calls something else, or runs another program, they return
 * CLV_EPEER.
 * - Inputs: each process binds whole tensors, equal in all processes, or the parts that its own ranks need.
 * - Outputs: whole outputs are returned in every process; all must ask for the same ones. clv_session_run_boxes returns
 *   boxes of the process's own ranks; boxes of other ranks are CLV_EPEER before anything runs.
 * - clv_session_read returns its box in every process. clv_session_write must be given the same values in all
 * processes,
 *   and compares them.
 * - clv_session_options.source is called for the boxes of the process's own ranks; clv_session_stats and
 *   clv_session_rank_bytes count these ranks.
 *
 * **Failure.** When a rank fails, or a call fails in one process alone, all processes return the same error the next
 * time they wait for others. If one process cannot make its session, clv_session_new returns its failure in all
 * processes; clv_job_agree does the same for whatever comes before, and clv_job_compare for arguments that must be
 * equal. A process that ends without clv_job_leave is lost: whatever waits or runs in the others returns CLV_EPEER at
 * once, naming its ranks, host and pid. A process that hangs is found by the deadline (clv_session_options.timeout_ms).
 * Launchers end the whole job when one of its processes dies. After a failure the session is poisoned. The job is
 * poisoned, too, if a process was lost or messages could not be canceled: new sessions of it are refused.
 *
 * **Fork.** A child made by fork is not a process of the job: it does not have the job's connections, and must not call
 * anything with the job except clv_job_leave, which does nothing.
 *
 * **MPI.** Open MPI and MPICH are supported, each by a module (cleave_mpi_openmpi.so, cleave_mpi_mpich.so) that is
 * loaded by clv_job_join; programs are not linked with MPI. A process that has initialised MPI itself may join if it
 * asked for MPI_THREAD_SERIALIZED or more, and must not call MPI while it is in a call of the library or a session of
 * the job runs on another thread. Messages are not encrypted. Processes of one host share memory if they can, and then
 * send fewer messages; CLEAVE_SHARED_MEMORY=off in the environment of any process turns that off.
 *
 * **Models** (clv_model_options.job). All processes make the same calls with the same arguments: clv_forwarder_new and
 * _run, clv_generator_new, _feed, _run and _free (and _sample, with clv_generator_options.split_logits), clv_generate,
 * clv_evaluate, clv_embed, clv_score and the like, clv_trainer_new, _step, _most, _checkpoint, _resume, _save and
 * _free. Each process gets the results. Saved models and checkpoints are written by all processes together; files of
 * results should be written by one (process 0).
 */
#ifndef CLEAVE_JOB_H
#define CLEAVE_JOB_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** This process's membership in a job. Several threads may use sessions of the job, each session by one thread at a
 *  time. clv_job_agree, clv_job_compare, clv_job_leave and clv_session_new must be called by one thread at a time. */
typedef struct clv_job clv_job;

/** Called when a process of the job is lost (it died or does not respond): once in the whole job, in the lowest process
 *  that is left, on a thread of the library or one that is in a call of the library. It is the last chance to report
 *  the loss: launchers end the job when a process dies. By then all waits in this process have failed. It must return
 *  soon, as this process sends nothing meanwhile, and must not call anything that waits for ranks or processes.
 *  @param error the error that all waits return */
typedef void clv_job_lost_fn(void *arg, const clv_error *error);

/** Zero-initialised = defaults. */
typedef struct clv_job_options {
    size_t size;     /**< sizeof the struct, or 0 */
    const char *mpi; /**< "openmpi" or "mpich"; NULL: the MPI that is loaded in the process, else clv_job_launcher */
    const char *modules; /**< folder of cleave_mpi_*.so; NULL: the library's folder, or cleave/ in it */
    int64_t timeout_ms;  /**< deadline of clv_job_agree, clv_job_compare and clv_job_leave; 0: 60000 */
    const char *control; /**< where this process listens for its control connections, by which processes find out that
                              another died or hangs: INTERFACE:PORT-PORT, either part is optional ("eth0",
                              ":7000-7100"); they listen only until all have connected. "off" (in all processes): there
                              are none, and only deadlines find lost processes. NULL: the environment variable
                              CLEAVE_CONTROL, else that of process 0, else any interface and port */
    int64_t heartbeat_timeout_ms; /**< clv_job_agree, clv_job_compare, clv_job_leave and clv_session_new return
                              CLV_ETIMEOUT when they wait for a process that has sent nothing on its control connection
                              for so long; 0: 60000 */
    clv_job_lost_fn *on_lost;     /**< optional */
    void *on_lost_arg;            /**< must outlive the job */
} clv_job_options;

/** Returns the MPI whose launcher started this process, by its environment variables: "openmpi" (Open MPI's mpirun),
 *  "mpich" (MPICH's mpiexec and other launchers with PMI), or NULL if none did. */
CLV_API const char *clv_job_launcher(void);

/** Joins the job; at most once per process. Waits until all processes have joined. MPI has no deadline for that: join
 *  before anything that may fail, and report failures by clv_job_agree. options may be NULL. Leave with clv_job_leave.
 *  @return CLV_ENOTFOUND if no launcher started this process, or there is no module for its MPI; CLV_EINVAL for an
 *          unknown MPI, or a CLEAVE_SHARED_MEMORY that is neither "on" nor "off"; CLV_EUNSUPPORTED if MPI refuses, or
 *          this process has joined a job before; CLV_ENOMEM */
CLV_API clv_status clv_job_join(clv_job **out, const clv_job_options *options, clv_error *err);

/** Waits until all processes leave, finalizes MPI if clv_job_join initialised it (except MPICH across several hosts,
 *  whose MPI_Finalize may hang), and frees the job; NULL is a no-op. Launchers treat a process that ends without this
 *  call as failed. If err already holds a failure it is sent to the other processes, where clv_session_new,
 *  clv_job_agree or clv_job_leave return it.
 *  @return CLV_EINVAL, with nothing done, while sessions of the job exist; a process's failure, as clv_job_agree
 *  returns
 *          it; CLV_ETIMEOUT if not all processes left by the deadline; CLV_EPEER if the job was poisoned. In the last
 *          two cases MPI is not finalized */
CLV_API clv_status clv_job_leave(clv_job *job, clv_error *err);

/** Finds out whether all processes succeeded so far. Each calls it with its own `status`, and its message in err if
 *  that is a failure. A process that calls clv_session_new instead gets the others' failures from that. With job NULL
 *  it returns status.
 *  @return in a process that failed: its status, err is left as it is; in the others: the failure of the lowest process
 *          that failed, its message after "process 2 of 4: "; CLV_OK if none failed; CLV_EPEER if not all processes
 *          make the same call; CLV_ETIMEOUT (clv_job_options.timeout_ms) naming the missing processes */
CLV_API clv_status clv_job_agree(clv_job *job, clv_status status, clv_error *err);

/** A value that must be equal in all processes. */
typedef struct clv_job_value {
    const char *what;  /**< name in messages: "--seed" */
    const char *value; /**< as text; of a file its size and a checksum, say. Messages show its first 63 bytes */
} clv_job_value;

/** Compares values across processes; all call it with n >= 1 values in the same order. Call it before ranks depend on
 *  options and files that might differ. With job NULL it returns CLV_OK.
 *  @return CLV_EINVAL in all processes, with the same message, if a value differs: it names the first such value and
 *  two
 *          processes with theirs; otherwise as clv_job_agree; another n counts as another call */
CLV_API clv_status clv_job_compare(clv_job *job, const clv_job_value *mine, int n, clv_error *err);

/** Index of this process, from 0; -1 for NULL. */
CLV_API int clv_job_process_index(const clv_job *job);
/** Number of processes in the job; 0 for NULL. */
CLV_API int clv_job_process_count(const clv_job *job);

#ifdef __cplusplus
}
#endif
#endif
