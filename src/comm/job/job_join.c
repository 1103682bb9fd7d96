/* job_join.c - joins the MPI launcher's job: detects and loads the MPI, exchanges host, cores and version between
 * processes.
 */
#include "comm/job/mpi_job.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/hardware/cpu_features.h"
#include "base/hash.h"
#include "base/threads/wait.h"
#include "comm/control/control_internal.h"
#include "comm/mpi/shm_segment.h"

/* MPIs that have modules. */
static const struct known {
    const char *name;
    const char *library;      /* that a program is linked with */
    const char *variables[2]; /* environment variables that its launcher sets */
} known[] = {
    {"openmpi", "libmpi.so.40", {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}},
    {"mpich", "libmpich.so.12", {"PMI_RANK", "PMI_FD"}},
};

enum { KNOWN = sizeof known / sizeof *known };

#define SHARED_MEMORY "CLEAVE_SHARED_MEMORY"

const char *clv_job_launcher(void)
{
    for (int i = 0; i < KNOWN; i++)
        for (int v = 0; v < 2; v++)
            if (getenv(known[i].variables[v]))
                return known[i].name;
    return NULL;
}

/* The MPI that this process has loaded; NULL: none. */
static const char *find_loaded(void)
{
    for (int i = 0; i < KNOWN; i++) {
        void *library = dlopen(known[i].library, RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            dlclose(library);
            return known[i].name;
        }
    }
    return NULL;
}

static clv_status choose_mpi(const char **out, const char *given, clv_error *err)
{
    const char *name = given ? given : find_loaded();
    name = name ? name : clv_job_launcher();
    if (!name)
        return clv_fail(
            err, CLV_ENOTFOUND,
            "no MPI launcher started this process; start it by mpirun -np N PROGRAM, Open MPI's or MPICH's");
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(name, known[i].name) == 0) {
            *out = known[i].name;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "there is no MPI '%.40s'; valid: openmpi, mpich", name);
}

/* MPICH's launcher passes an open connection to each process that it starts. A program that such a process starts
 * inherits the variable that names it, but often not the connection, and MPI_Init then ends the program without a
 * message. */
static clv_status check_connection(const char *name, clv_error *err)
{
    const char *fd = getenv("PMI_FD");
    if (strcmp(name, "mpich") != 0 || !fd || fcntl((int)strtol(fd, NULL, 10), F_GETFD) != -1)
        return CLV_OK;
    return clv_fail(
        err, CLV_EUNSUPPORTED,
        "PMI_FD names file %.16s, which is not open: this process was started by a process of an MPICH job, "
        "not by its launcher; valid: an environment without PMI_FD and PMI_RANK, or mpirun",
        fd);
}

/* The folder of the library, or of the program if it is linked statically. */
static void find_own_folder(char *out, size_t size)
{
    Dl_info info;
    snprintf(out, size, "%s", dladdr((void *)(uintptr_t)clv_job_join, &info) && info.dli_fname ? info.dli_fname : "");
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(out, size, ".");
}

/* Never unloaded, which MPI does not support; RTLD_GLOBAL, as MPI's plugins use its symbols. */
static clv_mpi_module_fn *load_module(const char *folder, const char *below, const char *name, char *tried, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s/cleave_mpi_%s.so", folder, below, name);
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!module) {
        const char *why = dlerror();
        size_t used = strlen(tried);
        snprintf(tried + used, size - used, "%s%s", used ? "; " : "", why ? why : path);
        return NULL;
    }
    void *symbol = dlsym(module, "clv_mpi_module");
    clv_mpi_module_fn *fn;
    memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

static clv_status find_module(const clv_mpi **out, const char *name, const char *folder, clv_error *err)
{
    char own[PATH_MAX], tried[360] = "";
    clv_mpi_module_fn *fn;
    find_own_folder(own, sizeof own);
    fn = load_module(folder ? folder : own, "", name, tried, sizeof tried);
    if (!fn && !folder)
        fn = load_module(own, "/cleave", name, tried, sizeof tried);
    if (!fn)
        return clv_fail(err, CLV_ENOTFOUND,
                        "cleave has no module for the MPI '%s' here, or it cannot be loaded; valid: its folder as "
                        "clv_job_options.modules; tried: %s",
                        name, tried);
    const clv_mpi *mpi = fn();
    if (mpi->version != CLV_MPI_VERSION)
        return clv_fail(err, CLV_EUNSUPPORTED, "the module for '%s' is of another version of cleave", name);
    *out = mpi;
    return CLV_OK;
}

/* Hash of the kernel's boot id. */
static uint64_t hash_machine(void)
{
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t bytes = file ? fread(boot, 1, sizeof boot, file) : 0;
    if (file)
        (void)fclose(file);
    return clv_hash_bytes(boot, bytes);
}

/* Hash of machine and network namespace. */
static uint64_t hash_network(uint64_t machine)
{
    struct stat net = {0};
    (void)stat("/proc/self/ns/net", &net);
    uint64_t parts[3] = {machine, (uint64_t)net.st_dev, (uint64_t)net.st_ino};
    return clv_hash_bytes(parts, sizeof parts);
}

/* Cores that this process may run on, CPU_SETSIZE at most. */
static void find_cores(cpu_set_t *group_set)
{
    int n = clv_usable_cpus();
    if (sched_getaffinity(0, sizeof *group_set, group_set) == 0)
        return;
    CPU_ZERO(group_set);
    for (int c = 0; c < n && c < CPU_SETSIZE; c++)
        CPU_SET(c, group_set);
}

/* Version of the message formats. The struct has the same size in all versions, so that a mismatch can be reported. */
typedef struct message_version {
    char text[64];
} message_version;

static clv_status check_versions(clv_job *job, clv_error *err)
{
    message_version mine = {0};
    CLV_FREED void *gathered = NULL;
    snprintf(mine.text, sizeof mine.text, "%d.%d.%zu.%zu", CLV_MPI_VERSION, CLV_CONTROL_VERSION, sizeof(clv_job_member),
             sizeof(clv_job_rendezvous_info));
    CLV_TRY(clv_job_all_gather(&gathered, job, &mine, sizeof mine, err));
    message_version *all = gathered;
    for (int p = 0; p < job->info.processes; p++) {
        all[p].text[sizeof all[p].text - 1] = '\0';
        if (strcmp(all[p].text, all[0].text) != 0)
            return clv_fail(
                err, CLV_EUNSUPPORTED,
                "process 0 has message version %s, and process %d %s; valid: the same version of the library in each",
                all[0].text, p, all[p].text);
    }
    return CLV_OK;
}

/* Gathers all members. control: the option or environment variable; NULL: not given. */
static clv_status exchange_members(clv_job *job, const char *control, clv_error *err)
{
    const char *shared = getenv(SHARED_MEMORY);
    void *members;
    clv_job_member mine = {.pid = getpid(),
                           .machine = hash_machine(),
                           .cpu = clv_cpu_feature_bits(),
                           .shares_memory = !shared || strcmp(shared, "off") != 0};
    CLV_TRY(check_versions(job, err));
    mine.network = hash_network(mine.machine);
    find_cores(&mine.cores);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.control, sizeof mine.control, "%s", control ? control : "");
    CLV_TRY(clv_job_all_gather(&members, job, &mine, sizeof mine, err));
    job->members = members;
    job->shares_memory = true;
    for (int p = 0; p < job->info.processes; p++) {
        clv_job_member *m = &job->members[p];
        m->host[sizeof m->host - 1] = m->control[sizeof m->control - 1] = '\0';
        job->shares_memory = job->shares_memory && m->shares_memory;
    }
    return CLV_OK;
}

/* Uses this process's option, else that of process 0: launchers do not pass the environment to every host. */
static clv_status open_control(clv_job *job, clv_error *err)
{
    const clv_job_member *members = job->members;
    for (int p = 1; p < job->info.processes; p++)
        if (members[p].control[0] &&
            (strcmp(members[p].control, "off") == 0) != (strcmp(members[0].control, "off") == 0))
            return clv_fail(err, CLV_EINVAL,
                            CLV_CONTROL_OPTION
                            " is '%s' in process %d, and '%s' in process 0; valid: off in all, or in none",
                            members[p].control, p, members[0].control);
    const char *mine = members[job->info.process].control;
    return clv_control_open(&job->control, job, mine[0] ? mine : members[0].control, err);
}

static clv_status check_options(const clv_job_options *o, const char *control, clv_error *err)
{
    if (o->timeout_ms < 0 || o->heartbeat_timeout_ms < 0)
        return clv_fail(err, CLV_EINVAL, "%s is %lld; valid: 0 (which is %d) and above",
                        o->timeout_ms < 0 ? "timeout_ms" : "heartbeat_timeout_ms",
                        (long long)(o->timeout_ms < 0 ? o->timeout_ms : o->heartbeat_timeout_ms),
                        CLV_DEFAULT_TIMEOUT_MS);
    const char *shared = getenv(SHARED_MEMORY);
    if (shared && strcmp(shared, "on") != 0 && strcmp(shared, "off") != 0)
        return clv_fail(err, CLV_EINVAL, SHARED_MEMORY " is '%.40s'; valid: on, off", shared);
    return control ? clv_control_check_spec(control, err) : CLV_OK;
}

clv_status clv_job_join(clv_job **out, const clv_job_options *options, clv_error *err)
{
    clv_job_options o;
    const char *name;
    const clv_mpi *mpi;
    char why[256] = "";
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    const char *control = o.control ? o.control : getenv("CLEAVE_CONTROL");
    CLV_TRY(check_options(&o, control, err));
    CLV_TRY(choose_mpi(&name, o.mpi, err));
    CLV_TRY(check_connection(name, err));
    CLV_TRY(find_module(&mpi, name, o.modules, err));
    clv_job *job = calloc(1, sizeof *job);
    if (!job)
        return clv_fail_memory(err, "a job", sizeof *job);
    job->mpi = mpi;
    job->timeout_ms = clv_timeout_ms_to_ns(o.timeout_ms) / 1000000;
    job->heartbeat_timeout_ns = clv_timeout_ms_to_ns(o.heartbeat_timeout_ms);
    job->on_lost = o.on_lost;
    job->on_lost_arg = o.on_lost_arg;
    job->max_message_bytes = CLV_MPI_MAX_MESSAGE_BYTES;
    job->max_shm_bytes = CLV_SHM_SLOT_BYTES;
    job->id = clv_unique_id();
    if (mpi->join(&job->info, &job->comm, why, sizeof why)) {
        free(job);
        return clv_fail(err, CLV_EUNSUPPORTED, "the job cannot be joined by '%s': %s", name, why);
    }
    pthread_mutex_init(&job->lock, NULL);
    clv_status status = exchange_members(job, control, err);
    if (status == CLV_OK)
        status = open_control(job, err);
    if (status != CLV_OK) {
        if (!job->poisoned) /* all processes fail and leave */
            (void)mpi->leave(job->comm);
        clv_job_free(job);
        return status;
    }
    *out = job;
    return CLV_OK;
}

int clv_job_process_index(const clv_job *job)
{
    return job ? job->info.process : -1;
}

int clv_job_process_count(const clv_job *job)
{
    return job ? job->info.processes : 0;
}
