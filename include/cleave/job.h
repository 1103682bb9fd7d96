/** @file job.h - ranks in several processes: those of a job, which an MPI launcher started (`mpirun -np 2 ./program`).
 *
 * Every process runs the same program. It joins the job, and makes sessions (session.h) whose ranks are spread over the
 * job's processes, in blocks: of N ranks, process p of P has floor(p N / P) to floor((p+1) N / P) - 1, as threads. Each
 * process needs one at least. Results are those of one process with all ranks, bit for bit.
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
 * **What all processes call alike.** clv_session_new with a job, and of such a session clv_session_load,
 * clv_session_run and clv_session_run_boxes, clv_session_read, clv_session_write, clv_spmd_run and clv_model_save:
 * every process makes the same calls in the same order, with the same programs, names, boxes and seeds. One that does
 * not come is CLV_ETIMEOUT on the others, naming it, and one that came for something else, another program too,
 * CLV_EPEER.
 * - Inputs: each process binds whole tensors, equal in all, or the parts that its own ranks need.
 * - Outputs bound whole come to every process, which all ask for the same ones. Boxes of clv_session_run_boxes are of
 *   the ranks of the process that asks: CLV_EPEER for others, before anything runs.
 * - clv_session_read brings its box to every process; clv_session_write is given the same values by all, and compares
 *   them.
 * - clv_session_options.source is asked by the ranks of a process for their own boxes; what a session counts
 *   (clv_session_stats, clv_session_rank_bytes) is of these ranks.
 *
 * **Failure.** When a rank fails, all processes get its error as they next wait for others, as ranks of one process do;
 * so they do when a call fails in one process alone. A session that one process cannot make none makes:
 * clv_session_new returns that process's failure in all, and clv_job_agree does it for what comes before, as
 * clv_job_compare does for what they are given that is not alike. One that ends without clv_job_leave is seen to end:
 * whatever waits in the others, or runs, returns CLV_EPEER at once, naming its ranks, host and pid. (A child that it
 * made by fork is no process of the job: it has none of its connections, and makes no calls with the job but
 * clv_job_leave, which does nothing.) One that is silent is found by the deadline (clv_session_options.timeout_ms).
 * Launchers end a whole job when one of its processes dies. The session is then poisoned. Where a process is gone, or
 * messages were under way that could not be called back, the job is, too: sessions made later are refused.
 *
 * **MPI.** Open MPI and MPICH are known, each by a module (cleave_mpi_openmpi.so, cleave_mpi_mpich.so) that is loaded
 * when a process joins; programs are not linked with MPI. A process that initialised MPI itself may join, if it asked
 * for MPI_THREAD_SERIALIZED or more, and makes no MPI calls while it is in a call of the library or another session of
 * the job runs. What is sent is not encrypted. Processes of one host share memory where they can, and then send less;
 * CLEAVE_SHARED_MEMORY=off in the environment of any process does without.
 *
 * **Models** (clv_model_options.job). What runs a model of a job does so in all processes, which make the same calls
 * with the same arguments: clv_forwarder_new and _run, clv_generator_new, _feed, _run and _free (and _sample, with
 * clv_generator_options.split_logits), clv_generate, clv_evaluate, clv_embed, clv_score and the like, clv_trainer_new,
 * _step, _most, _checkpoint, _resume, _save and _free. Each has the results, and writes nothing but what it is told to:
 * files of results are for one process to write (process 0), models and checkpoints that are saved for all.
 */
#ifndef CLEAVE_JOB_H
#define CLEAVE_JOB_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The job that this process is of. Sessions of it may be used by several threads, each session by one;
 *  clv_job_agree, clv_job_compare, clv_job_leave and clv_session_new by one at a time, and nothing of the job after
 *  clv_job_leave. */
typedef struct clv_job clv_job;

/** A process of the job was lost: it died, or says nothing. Called once, at once, in the lowest process that is left,
 *  on a thread of the library's own or one that is in a call of the library, whatever the others do: launchers end the
 *  job at a death, and these are its last words. What waits in this process has heard of it by then. It returns soon:
 *  while it runs this process says nothing to others. error: what all that waits returns. Makes no calls that wait for
 *  ranks or processes. */
typedef void clv_job_lost_fn(void *arg, const clv_error *error);

/** Zero-initialised = defaults. */
typedef struct clv_job_options {
    size_t size;     /**< sizeof the struct; 0: as its first version had it */
    const char *mpi; /**< "openmpi" or "mpich"; NULL: the one that the process has loaded, else what clv_job_launcher
                              says */
    const char *modules; /**< the folder of cleave_mpi_*.so; NULL: beside the library, or in cleave/ there */
    int64_t timeout_ms;  /**< deadline of clv_job_agree, clv_job_compare and clv_job_leave; 0: 60000 */
    const char *control; /**< the connections that processes have beside MPI, by which they find who died or hangs:
                              INTERFACE:PORT-PORT, where they listen until all have come, either part may be left out
                              ("eth0", ":7000-7100"); "off": there are none, and deadlines find all; NULL: what the
                              environment says (CLEAVE_CONTROL), that of process 0 where a process has none; else any */
    int64_t heartbeat_timeout_ms; /**< a process that is waited for in these or in clv_session_new, and of which nothing
                              came for so long on these connections, is taken to be stopped or cut off, CLV_ETIMEOUT;
                              those that do answer have timeout_ms; 0: 60000 */
    clv_job_lost_fn *lost;        /**< NULL: nobody is told */
    void *on_lost_arg;            /**< borrowed until the job is left */
} clv_job_options;

/** The MPI whose launcher started this process, as its environment says: "openmpi" (Open MPI's mpirun), "mpich"
 *  (MPICH's mpiexec, and others that speak its PMI); NULL: none did. */
CLV_API const char *clv_job_launcher(void);

/** Joins the job, once a process; waits until all of its processes do, for which MPI knows no deadline: join before
 *  anything that may fail, and say by clv_job_agree what did. options may be NULL. Leave with clv_job_leave.
 *  @return CLV_ENOTFOUND when no launcher started this process, or there is no module for its MPI; CLV_EINVAL for an
 *          unknown name, or a CLEAVE_SHARED_MEMORY that is neither "on" nor "off"; CLV_EUNSUPPORTED for what MPI
 *          refuses, or a job besides or after another; CLV_ENOMEM */
CLV_API clv_status clv_job_join(clv_job **out, const clv_job_options *options, clv_error *err);

/** Waits until all processes leave, ends MPI if clv_job_join began it (MPICH across hosts ends with the process: its
 *  MPI_Finalize may wait for good), and frees the job; NULL is a no-op. A process that ends without it is one that
 *  failed, for launchers. A failure that err holds already is told to the others: to one that makes a session, agrees
 *  or leaves.
 *  @return CLV_EINVAL, with nothing done, while a session of the job is there; the failure that a process leaves with,
 *          as clv_job_agree has it; CLV_ETIMEOUT when not all processes came by the deadline, and CLV_EPEER when
 *          the job was poisoned: MPI is then left as it is */
CLV_API clv_status clv_job_leave(clv_job *job, clv_error *err);

/** Whether all processes go on, where no session is there to tell: each calls it with how it stands, `status`, and in
 *  err the message where that is a failure. A process that makes a session instead (clv_session_new) hears of failures,
 *  too, by that. NULL for job: status.
 *  @return in a process that failed its status, and err is left as it is; elsewhere the failure of the lowest process
 *          that did, in its own words behind "process 2 of 4: "; CLV_OK when none failed; CLV_EPEER when not all
 *          make the same call, CLV_ETIMEOUT (clv_job_options.timeout_ms) naming who did not come */
CLV_API clv_status clv_job_agree(clv_job *job, clv_status status, clv_error *err);

/** A thing that all processes are to have alike, and what this one has, as text. */
typedef struct clv_job_value {
    const char *what;  /**< as messages name it: "--seed" */
    const char *value; /**< of a file its size and a checksum, say; messages have its first 63 bytes */
} clv_job_value;

/** Whether all processes have the same; each calls it, with n >= 1 things in the same order. What their programs are
 *  given (files, options) is known to be alike then, before ranks go different ways. NULL for job: there is but one
 *  process.
 *  @return CLV_EINVAL in all when they do not, in the same words, which name the first thing that differs and two
 *          processes with what they have; what clv_job_agree returns elsewhere, another number of things being another
 *          call */
CLV_API clv_status clv_job_compare(clv_job *job, const clv_job_value *mine, int n, clv_error *err);

/** This process, from 0; -1 for NULL. */
CLV_API int clv_job_process_index(const clv_job *job);
/** How many processes the job has; 0 for NULL. */
CLV_API int clv_job_process_count(const clv_job *job);

#ifdef __cplusplus
}
#endif
#endif
