/* job_processes.c - the processes that mpirun started for this command: joining the job, comparing options, silencing
 * all but the first, common exit code.
 */
#include "cli/job/job_processes.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/job/crash_report.h"
#include "cli/output/exit_code.h"

/* Variables of launchers: the number of a process, and how many there are. */
static const char *const numbers[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};
static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};

static clv_job *joined;            /* at most once */
static bool expected;              /* several processes may have the command's ranks */
static bool arrived;               /* at the rendezvous */
static bool process_count_differs; /* from the launcher's */

void clv_processes_allow_several(bool several)
{
    expected = several;
}

static int number_of(const char *const *variables, int otherwise)
{
    for (; clv_job_launcher() && *variables; variables++) {
        const char *text = getenv(*variables);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return otherwise;
}

int clv_processes_count(void)
{
    return number_of(counts, 1);
}

bool clv_processes_is_first(void)
{
    return clv_processes_count() <= 1 || number_of(numbers, 0) == 0;
}

void clv_processes_silence_all_but_first(void)
{
    if (clv_processes_count() > 1)
        clv_crash_report_install(clv_processes_is_first());
    if (clv_processes_is_first())
        return;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0)
        return;
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
}

int64_t clv_comm_option_timeout_ms(const clv_comm_option *comm)
{
    return (int64_t)(comm->timeout_seconds * 1000);
}

typedef struct watch {
    pthread_mutex_t lock;
    pthread_cond_t joined;
    bool is_over;
    double seconds;
} watch;

/* MPI has no deadline for joining: if a process ends before, the others would wait for ever. */
static void *watch_joining(void *arg)
{
    enum { APART_MS = 200, DEFAULT_SECONDS = 60 };
    watch *w = arg;
    clv_error err = {0};
    struct timespec until;
    double seconds = w->seconds > 0 ? w->seconds : DEFAULT_SECONDS;
    int process = number_of(numbers, 0), code = 0;
    int64_t ms = (int64_t)(seconds * 1000) + (int64_t)APART_MS * process; /* the first to end ends all */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    while (!w->is_over && code == 0)
        code = pthread_cond_timedwait(&w->joined, &w->lock, &until);
    bool late = !w->is_over;
    pthread_mutex_unlock(&w->lock);
    if (!late)
        return NULL;
    (void)clv_fail(&err, CLV_ETIMEOUT,
                   "process %d of %d waited %g s for the others to join the job: one may have ended before, or hang; "
                   "--comm-timeout says how long to wait",
                   process, clv_processes_count(), seconds);
    clv_crash_report_print(NULL, &err);
    _exit(CLV_EXIT_FAILED);
}

static clv_status join_in_time(const clv_job_options *options, double seconds, clv_error *err)
{
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER, .joined = PTHREAD_COND_INITIALIZER, .seconds = seconds};
    pthread_t thread;
    bool watched = clv_processes_count() > 1 && pthread_create(&thread, NULL, watch_joining, &w) == 0;
    clv_status status = clv_job_join(&joined, options, err);
    pthread_mutex_lock(&w.lock);
    w.is_over = true;
    pthread_cond_signal(&w.joined);
    pthread_mutex_unlock(&w.lock);
    if (watched)
        pthread_join(thread, NULL);
    return status;
}

/* A process that a launcher of another kind has started, or none (its variables were inherited), is a job by itself to
 * MPI, and would do all of the work as if it were the others', too. */
static clv_status check_launcher(clv_error *err)
{
    int me = clv_job_process_index(joined), all = clv_job_process_count(joined), process = number_of(numbers, me),
        processes = number_of(counts, all);
    if (me == process && all == processes)
        return CLV_OK;
    (void)clv_job_leave(joined, NULL);
    joined = NULL;
    process_count_differs = true;
    return clv_fail(err, CLV_EUNSUPPORTED,
                    "the environment says process %d of %d, and MPI process %d of %d: the launcher is not this MPI's, "
                    "or has not started this process; valid: mpirun of the same MPI (srun --mpi=pmix or pmi2, as MPI "
                    "was built), --comm threads, or an environment without its variables",
                    process, processes, me, all);
}

clv_status clv_processes_join_job(const clv_comm_option *comm, clv_error *err)
{
    /* What one process does alone (a file that it writes) may take long; who fails tells at once, and who is silent is
     * found. */
    const clv_job_options patient = {.size = sizeof patient,
                                     .timeout_ms = INT64_C(7) * 24 * 3600 * 1000,
                                     .heartbeat_timeout_ms = clv_comm_option_timeout_ms(comm),
                                     .on_lost = clv_crash_report_print};
    bool spread = comm->how ? strcmp(comm->how, "mpi") == 0 : clv_processes_count() > 1;
    if (!spread || !expected) {
        arrived = true;
        return clv_processes_is_first() ? CLV_OK : clv_fail(err, CLV_ECANCELLED, "the first process runs it");
    }
    if (joined)
        return CLV_OK;
    CLV_TRY(join_in_time(&patient, comm->timeout_seconds, err));
    arrived = true;
    return check_launcher(err);
}

clv_status clv_processes_job_of_mesh(clv_job **out, const clv_comm_option *comm, const clv_mesh *mesh, clv_error *err)
{
    *out = NULL;
    CLV_TRY(clv_processes_join_job(comm, err));
    if (!joined)
        return CLV_OK;
    int n = clv_job_process_count(joined);
    if (clv_mesh_rank_count(mesh) < n)
        return clv_fail(err, CLV_EINVAL, "%lld rank%s for %d processes; valid: a rank for each, or more (-tp %d)",
                        (long long)clv_mesh_rank_count(mesh), clv_mesh_rank_count(mesh) == 1 ? "" : "s", n, n);
    *out = joined;
    return CLV_OK;
}

clv_status clv_processes_job(clv_job **out, const clv_comm_option *comm, clv_error *err)
{
    CLV_TRY(clv_processes_join_job(comm, err));
    *out = joined;
    return CLV_OK;
}

clv_status clv_processes_agree(clv_status status, clv_error *err)
{
    return clv_job_agree(joined, status, err);
}

bool clv_processes_have_joined_job(void)
{
    return joined != NULL;
}

clv_status clv_processes_check_equal(const clv_job_value *mine, int n, clv_error *err)
{
    return clv_job_compare(joined, mine, n, err);
}

const char *clv_processes_output_path(const char *path)
{
    return clv_processes_is_first() ? path : "/dev/null";
}

/* If all fail alike the first reports it, and its launcher ends the others within this time. */
static void await_first(void)
{
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

/* Prints the failure of a process that never met the others. */
static int end_alone(int code, const clv_error *why)
{
    clv_error err = {0};
    await_first();
    (void)clv_fail(&err, why->code, "process %d of %d: %s", number_of(numbers, 0), clv_processes_count(), why->message);
    clv_crash_report_print(NULL, &err);
    return code;
}

int clv_processes_finalize(int code)
{
    clv_error err = *clv_command_last_failure();
    bool alone = expected && (process_count_differs || !arrived);
    if (code != CLV_EXIT_OK && alone && !clv_processes_is_first() && err.code != CLV_OK)
        return end_alone(code, &err);
    if (code != CLV_EXIT_OK && err.code == CLV_OK)
        (void)clv_fail(&err, CLV_EPEER, "it ended with exit code %d", code);
    bool failed = err.code != CLV_OK;
    bool left = clv_job_leave(joined, &err) == CLV_OK;
    if (!left && !failed)
        code = clv_command_print_error("cleave", &err);
    joined = NULL;
    if (clv_processes_is_first())
        return code;
    if (left)
        return CLV_EXIT_OK;
    await_first(); /* MPICH's launcher takes the exit code of the first process that ends without leaving MPI */
    return code;
}
