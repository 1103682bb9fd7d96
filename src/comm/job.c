/* job.c - joining the job of an MPI launcher: finding the MPI, loading its module. */
#include "comm/job.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/wait.h"

/* The MPIs that there are modules for. */
static const struct known {
    const char *name;
    const char *library;      /* as loaded by a program that is linked with it */
    const char *variables[2]; /* of the environment, set by its launcher; NULL: no second */
} known[] = {
    {"openmpi", "libmpi.so.40", {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}},
    {"mpich", "libmpich.so.12", {"PMI_RANK", "PMI_FD"}},
};

enum { KNOWN = sizeof known / sizeof *known };

const char *clv_job_launcher(void)
{
    for (int i = 0; i < KNOWN; i++)
        for (int v = 0; v < 2; v++)
            if (getenv(known[i].variables[v]))
                return known[i].name;
    return NULL;
}

/* The MPI that is in this process already; NULL: none is. */
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

static clv_status choose(const char **out, const char *given, clv_error *err)
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

/* The folder of the library that this code is in, or of the program. */
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

/* Loaded for good: MPI does not bear to be unloaded. Its own plugins look for its symbols: global. */
static clv_mpi_module_fn *load(const char *folder, const char *below, const char *name, char *tried, size_t size)
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
    fn = load(folder ? folder : own, "", name, tried, sizeof tried);
    if (!fn && !folder)
        fn = load(own, "/cleave", name, tried, sizeof tried);
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

clv_status clv_job_join(clv_job **out, const clv_job_options *options, clv_error *err)
{
    static const char call[] = "clv_job_join";
    clv_job_options o;
    const char *name;
    const clv_mpi *mpi;
    char why[256] = "";
    CLV_TRY(clv_require(out != NULL, call, "out", err));
    CLV_TRY(clv_take_options(&o, sizeof o, sizeof o, options, call, err));
    if (o.timeout_ms < 0)
        return clv_fail(err, CLV_EINVAL, "timeout_ms is %lld; valid: 0 (which is %d) and above",
                        (long long)o.timeout_ms, CLV_DEFAULT_TIMEOUT_MS);
    CLV_TRY(choose(&name, o.mpi, err));
    CLV_TRY(find_module(&mpi, name, o.modules, err));
    clv_job *job = calloc(1, sizeof *job);
    if (!job)
        return clv_fail_memory(err, "a job", sizeof *job);
    job->mpi = mpi;
    job->timeout_ms = clv_timeout_ns(o.timeout_ms) / 1000000;
    job->piece = CLV_MPI_MOST_BYTES;
    if (mpi->join(&job->place, &job->comm, why, sizeof why)) {
        free(job);
        return clv_fail(err, CLV_EUNSUPPORTED, "the job cannot be joined by '%s': %s", name, why);
    }
    pthread_mutex_init(&job->lock, NULL);
    *out = job;
    return CLV_OK;
}

int clv_job_process(const clv_job *job)
{
    return job ? job->place.process : -1;
}

int clv_job_processes(const clv_job *job)
{
    return job ? job->place.processes : 0;
}

clv_status clv_job_fail_mpi(const clv_job *job, int code, const char *what, clv_error *err)
{
    char text[256];
    job->mpi->text(code, text, sizeof text);
    return clv_fail(err, CLV_EPEER, "%s, process %d of %d: MPI (%s) says: %s", what, job->place.process,
                    job->place.processes, job->mpi->name, text);
}

int clv_job_cores(const clv_job *job)
{
    int mine = clv_cores(), share = (int)sysconf(_SC_NPROCESSORS_ONLN) / job->place.beside;
    if (share < 1)
        share = 1;
    return mine < share ? mine : share;
}

bool clv_job_end_requests(clv_job *job, clv_mpi_request *requests, int n, bool receives, int64_t ns)
{
    clv_deadline deadline = clv_deadline_in(ns);
    for (int i = 0; receives && i < n; i++)
        (void)job->mpi->cancel(&requests[i]);
    for (int i = 0; i < n;) {
        int done = 0;
        if (job->mpi->test(&requests[i], &done) != 0 || done) /* one that failed has ended, too */
            i++;
        else if (clv_deadline_look(&deadline) == 0)
            return false;
        else
            sched_yield();
    }
    return true;
}
