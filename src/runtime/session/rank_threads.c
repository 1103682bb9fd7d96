/* rank_threads.c - thread pool with one thread per rank: start, dispatch, join; reports stuck ranks. */
#include "runtime/session/rank_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/memory/aligned_memory.h"
#include "base/threads/thread.h"
#include "base/threads/wait.h"
#include "kernels/cpu/gemm/gemm.h"
#include "runtime/session/cpu_pinning.h"

enum {
    AWAKE_NS = 100000, /* how long a thread spins before it sleeps ... */
    READY_NS = 400000, /* ... and a rank after a run, in which the caller wakes up and prepares the next run */
    LOOKS = 16,        /* polls per read of the clock */
    SPARE_THREADS = 2,
    SLICE_NS = 20000000, /* how often the sleeping caller checks whether the world has failed */
};

typedef struct member {
    alignas(CLV_CACHE_LINE) clv_rank_threads *team;
    int rank;
    pthread_t thread;
    _Atomic uint32_t finished; /* stamp of the last run that it completed */
    bool watched;              /* idle counts since its last collective */
    uint64_t steps;
    clv_deadline idle;
    clv_status status;
    clv_error error;
} member;

struct clv_rank_threads {
    clv_world *world;
    clv_cpu_pinning *pins; /* NULL: not pinned */
    clv_task_pool *pool;   /* NULL: fewer cores than threads, so waiting ranks yield */
    member *members;
    pid_t process;                       /* that started the threads */
    int first_local_rank, n_local_ranks; /* the ranks of this process */
    int started;                         /* threads */
    int threads_per_rank;
    int spare_cores; /* < 0: more threads than cores */
    int64_t timeout_ns;
    int stuck;        /* a rank did not return: nothing can run any more */
    bool stuck_first; /* and that was the first failure of the world */
    uint32_t stamp;
    clv_rank_fn *fn; /* NULL: threads end */
    void *arg;
    alignas(CLV_CACHE_LINE) _Atomic uint32_t go;
    alignas(CLV_CACHE_LINE) _Atomic uint32_t pending; /* ranks still running */
    alignas(CLV_CACHE_LINE) _Atomic uint32_t done;
};

static int seen(_Atomic uint32_t *word, uint32_t stamp)
{
    return clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp);
}

/* Polls for `ns`, stealing other ranks' tasks meanwhile. Yields between polls if the caller may need this core to start
 * the next run, and after a while in any case, as another session may have a rank on it. With more threads than cores
 * it polls once. */
static int spin(const clv_rank_threads *team, _Atomic uint32_t *word, uint32_t stamp, int64_t ns,
                clv_task_pool_member place)
{
    int64_t begun = clv_now_ns(), now = begun;

    while (team->spare_cores >= 0 && now - begun < ns) {
        const bool yields = team->spare_cores == 0 || now - begun >= AWAKE_NS;

        for (int i = 0; i < LOOKS; i++) {
            if (seen(word, stamp))
                return 1;
            if (clv_task_pool_steal_and_run(place, NULL))
                begun = clv_now_ns(); /* restart the time */
            else if (yields)
                sched_yield();
            else
                clv_cpu_pause();
        }
        now = clv_now_ns();
    }
    return seen(word, stamp);
}

static void work(member *m, clv_comm *comm)
{
    clv_rank_threads *team = m->team;

    memset(&m->error, 0, sizeof m->error);
    m->error.rank = -1;
    clv_comm_set_busy(comm, true);
    m->status = team->fn(team->arg, m->rank, comm, &m->error);
    if (m->status == CLV_OK) {
        clv_comm_set_busy(comm, false);
        return;
    }
    if (m->error.code == CLV_OK)
        clv_fail(&m->error, m->status, "%s", clv_status_text(m->status));
    clv_comm_abort(comm, &m->error);
}

/* Waits for the next run, stealing tasks of ranks that are still in the last one. */
static void wait_for_work(const member *m, uint32_t stamp)
{
    enum { SLICE = 1000000000 };
    clv_rank_threads *team = m->team;
    const clv_task_pool_member place = clv_rank_threads_task_pool_member(team, m->rank);

    int64_t ns = READY_NS;

    while (!spin(team, &team->go, stamp, ns, place)) {
        const bool more = atomic_load_explicit(&team->pending, memory_order_relaxed) > 0;

        if (clv_stamp_wait(&team->go, stamp, more && place.pool ? CLV_TASK_POOL_POLL_NS : SLICE))
            return;
        const bool ended = more && atomic_load_explicit(&team->pending, memory_order_relaxed) == 0;
        ns = ended ? READY_NS : AWAKE_NS;
    }
}

static void *rank_main(void *p)
{
    member *m = p;
    clv_rank_threads *team = m->team;
    clv_comm *comm = clv_world_comm(team->world, m->rank);
    char name[16];

    snprintf(name, sizeof name, "cleave %d", m->rank);
    pthread_setname_np(pthread_self(), name);
    if (team->pins)
        clv_cpu_pinning_bind(team->pins, m->rank - team->first_local_rank);
#ifdef _OPENMP
    omp_set_num_threads(team->threads_per_rank); /* a setting of this thread */
#endif
    for (uint32_t stamp = 2;; stamp += 2) {
        wait_for_work(m, stamp);
        if (!team->fn)
            return NULL;
        work(m, comm);
        atomic_store_explicit(&m->finished, stamp, memory_order_release);
        if (atomic_fetch_sub_explicit(&team->pending, 1, memory_order_acq_rel) == 1)
            clv_stamp_publish(&team->done, stamp);
    }
}

static void dispatch(clv_rank_threads *team, clv_rank_fn *fn, void *arg)
{
    team->fn = fn;
    team->arg = arg;
    team->stamp += 2;
    atomic_store_explicit(&team->pending, (uint32_t)team->started, memory_order_relaxed);
    clv_stamp_publish(&team->go, team->stamp);
}

/* How to wait for ranks: `on` detects ranks that neither return nor begin collectives. */
typedef struct watch {
    const clv_cancel *cancel;
    bool on;
} watch;

static bool is_stuck(const clv_rank_threads *team, member *m)
{
    uint64_t steps = clv_world_collectives_begun(team->world, m->rank);

    if (!m->watched || m->steps != steps) {
        m->watched = true;
        m->steps = steps;
        m->idle = clv_deadline_after(2 * team->timeout_ns);
    }
    return clv_deadline_remaining(&m->idle) == 0;
}

static void print_rank(char *out, size_t size, int rank)
{
    size_t used = strlen(out);

    snprintf(out + used, size - used, "%s%d", used ? ", " : "", rank);
}

/* Fails the world if a rank neither returns nor begins a collective, though another returned or the run was cancelled.
 * */
static void look_for_stuck(clv_rank_threads *team, const watch *w)
{
    bool cancelled = clv_cancel_requested(w->cancel);
    clv_error error = {.code = CLV_ETIMEOUT, .rank = -1};
    char ranks[120] = "";

    if (!cancelled && atomic_load_explicit(&team->pending, memory_order_relaxed) == (uint32_t)team->started)
        return;
    for (int i = 0; i < team->n_local_ranks; i++) {
        member *m = &team->members[i];

        if (seen(&m->finished, team->stamp) || !is_stuck(team, m))
            continue;
        error.rank = error.rank < 0 ? m->rank : error.rank;
        print_rank(ranks, sizeof ranks, m->rank);
    }
    if (error.rank < 0)
        return;
    snprintf(error.message, sizeof error.message,
             "rank %s neither returned nor called a collective for %lld ms, though %s", ranks,
             (long long)(2 * team->timeout_ns / 1000000), cancelled ? "the run was cancelled" : "others had returned");
    clv_world_fail(team->world, &error);
    team->stuck = 1;
    team->stuck_first = true;
}

/* Waits until all ranks have returned; after a failure, at most for the deadline. */
static int wait_done(clv_rank_threads *team, const watch *w)
{
    clv_deadline deadline = {0};
    bool timed = false;

    if (team->spare_cores > 0 && spin(team, &team->done, team->stamp, AWAKE_NS, (clv_task_pool_member){0}))
        return 1;
    while (!clv_stamp_wait(&team->done, team->stamp, SLICE_NS)) {
        if (w->on && !timed && !clv_world_has_failed(team->world, NULL)) {
            look_for_stuck(team, w);
            if (team->stuck)
                return 0;
            continue;
        }
        if (!timed && clv_world_has_failed(team->world, NULL)) {
            deadline = clv_deadline_after(team->timeout_ns);
            timed = true;
        }
        if (timed && clv_deadline_remaining(&deadline) == 0)
            return 0;
    }
    return 1;
}

/* A child of fork has the memory of its parent, and none of its threads. */
static clv_status check_process(const clv_rank_threads *team, clv_error *err)
{
    if (getpid() == team->process)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "the ranks are threads of process %ld, and do not survive fork; make a session in this process",
                    (long)team->process);
}

bool clv_rank_threads_has_returned(const clv_rank_threads *team, int i)
{
    return seen(&team->members[i].finished, team->stamp);
}

static clv_status fail_stuck(clv_rank_threads *team, clv_error *err)
{
    clv_error first = {0};
    char ranks[120] = "";
    int one = -1;

    for (int i = 0; i < team->n_local_ranks; i++) {
        int rank = team->members[i].rank;

        if (clv_rank_threads_has_returned(team, i))
            continue;
        one = one < 0 ? rank : one;
        print_rank(ranks, sizeof ranks, rank);
    }
    clv_world_has_failed(team->world, &first);
    if (team->stuck_first)
        return clv_fail_at(err, CLV_ETIMEOUT, first.rank, first.op, "%s", first.message);
    return clv_fail_at(err, CLV_ETIMEOUT, one, first.op,
                       "rank %s did not return within %lld ms after a failure; the failure: %s", ranks,
                       (long long)(team->timeout_ns / 1000000), first.message);
}

/* The failing rank's own error if it is local, else what the world knows. */
static clv_status first_failure(const clv_rank_threads *team, clv_error *err)
{
    clv_error first = {0};

    clv_world_has_failed(team->world, &first);
    bool is_here = first.rank >= team->first_local_rank && first.rank < team->first_local_rank + team->n_local_ranks;
    const member *m = is_here ? &team->members[first.rank - team->first_local_rank] : NULL;
    if (m && m->status != CLV_OK) {
        char op[sizeof first.op];

        memcpy(op, m->error.op[0] ? m->error.op : first.op, sizeof op);
        first = m->error;
        first.rank = m->rank;
        memcpy(first.op, op, sizeof op);
    }
    if (err && err->code == CLV_OK)
        *err = first;
    return first.code;
}

static clv_status run(clv_rank_threads *team, clv_rank_fn *fn, void *arg, const watch *w, clv_error *err)
{
    CLV_TRY(check_process(team, err));
    if (team->stuck)
        return fail_stuck(team, err);
    if (clv_world_has_failed(team->world, NULL))
        return first_failure(team, err);
    dispatch(team, fn, arg);
    if (!wait_done(team, w)) {
        team->stuck = 1;
        return fail_stuck(team, err);
    }
    return clv_world_has_failed(team->world, NULL) ? first_failure(team, err) : CLV_OK;
}

clv_status clv_rank_threads_run(clv_rank_threads *team, clv_rank_fn *fn, void *arg, clv_error *err)
{
    return run(team, fn, arg, &(watch){.on = false}, err);
}

clv_status clv_rank_threads_run_user_function(clv_rank_threads *team, clv_rank_fn *fn, void *arg,
                                              const clv_cancel *cancel, clv_error *err)
{
    for (int i = 0; i < team->n_local_ranks; i++)
        team->members[i].watched = false;
    return run(team, fn, arg, &(watch){.cancel = cancel, .on = true}, err);
}

/* ---- starting and ending ---- */

/* OpenMP ends threads with pthread_exit, for which glibc loads its unwinder, and aborts when out of memory. A backtrace
 * loads it now. */
static clv_status load_unwinder(clv_error *err)
{
#ifdef __GLIBC__
    void *frame;

    if (backtrace(&frame, 1) == 0)
        return clv_fail(err, CLV_ENOMEM, "out of memory: libgcc_s.so.1, which ends threads, could not be loaded");
#endif
    return CLV_OK;
}

/* A rank's stack has the default size of threads, which is the limit on the main thread's, but at least five times what
 * ops need. */
static int rank_attr(pthread_attr_t *out)
{
    enum { LEAST_STACK = 1 << 20 };
    size_t size;
    int code = pthread_attr_init(out);

    if (code == 0 && pthread_attr_getstacksize(out, &size) == 0 && size < LEAST_STACK)
        code = pthread_attr_setstacksize(out, LEAST_STACK);
    return code;
}

/* Rank threads, and the OpenMP threads that they start, block asynchronous signals, which are the program's. Signals
 * that a thread raises itself (SIGSEGV) are not blocked: they reach the program's handlers. */
static int start_threads(clv_rank_threads *team)
{
    pthread_attr_t attr;
    int code = rank_attr(&attr);

    if (code != 0)
        return code;
    while (code == 0 && team->started < team->n_local_ranks) {
        member *m = &team->members[team->started];

        code = clv_thread_start(&m->thread, &attr, rank_main, m);
        team->started += code == 0;
    }
    pthread_attr_destroy(&attr);
    return code;
}

/* ---- OpenMP ---- */

typedef struct thread_trial {
    pthread_mutex_t held;
    int n;
    pthread_t thread[];
} thread_trial;

/* Uses what a thread uses: a stack, and a malloc arena, which the next thread reuses. */
static void *wait_and_end(void *p)
{
    thread_trial *r = p;
    void *volatile some = malloc(1);

    free(some);
    pthread_mutex_lock(&r->held);
    pthread_mutex_unlock(&r->held);
    return NULL;
}

/* OpenMP ends the process if it cannot start a thread, so start as many threads first, and some to spare. */
static clv_status try_starting_threads(int n, clv_error *err)
{
    thread_trial *r = malloc(sizeof *r + (size_t)n * sizeof *r->thread);
    int code = 0;

    if (!r)
        return clv_fail_memory(err, "a team's threads", (size_t)n * sizeof *r->thread);
    pthread_mutex_init(&r->held, NULL);
    pthread_mutex_lock(&r->held);
    for (r->n = 0; code == 0 && r->n < n; r->n += code == 0)
        code = pthread_create(&r->thread[r->n], NULL, wait_and_end, r);
    clv_status status =
        code == 0 ? CLV_OK
                  : clv_fail(err, CLV_ENOMEM, "thread %d of %d could not be started: %s", r->n + 1, n, strerror(code));
    pthread_mutex_unlock(&r->held);
    while (r->n > 0)
        pthread_join(r->thread[--r->n], NULL);
    pthread_mutex_destroy(&r->held);
    free(r);
    return status;
}

static size_t stack_of_this_thread(void)
{
    size_t size = SIZE_MAX;
#ifdef __GLIBC__
    pthread_attr_t attr;
    void *at;

    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &at, &size);
        pthread_attr_destroy(&attr);
    }
#endif
    return size;
}

/* Starts a rank's OpenMP threads by a first parallel region, one rank at a time, while the tried memory is still free.
 * OpenMP sets their stack size (OMP_STACKSIZE, else the limit on the main thread's); too small ones would crash in a
 * matrix product. */
static clv_status start_openmp(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    enum { LEAST_STACK = CLV_GEMM_MAX_STACK_BYTES + (64 << 10) }; /* a matrix product and its callers */
    size_t least = SIZE_MAX;

    pthread_mutex_lock(arg);
#ifdef _OPENMP
#pragma omp parallel reduction(min : least)
    least = stack_of_this_thread();
#else
    least = stack_of_this_thread();
#endif
    pthread_mutex_unlock(arg);
    if (least < LEAST_STACK)
        return clv_fail(
            err, CLV_ELIMIT,
            "OpenMP's threads have stacks of %zu bytes, and products need %d; valid: OMP_STACKSIZE=1M, or no "
            "OMP_STACKSIZE and ulimit -s 1024 or more",
            least, LEAST_STACK);
    return CLV_OK;
}

static clv_status start_openmp_of_all(clv_rank_threads *team, clv_error *err)
{
    pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    clv_status status = clv_rank_threads_run(team, start_openmp, &one_at_a_time, err);

    pthread_mutex_destroy(&one_at_a_time);
    return status;
}

static void free_team(clv_rank_threads *team)
{
    if (team->started > 0)
        dispatch(team, NULL, NULL);
    for (int r = 0; r < team->started; r++)
        pthread_join(team->members[r].thread, NULL);
    clv_world_free(team->world);
    clv_task_pool_free(team->pool);
    clv_cpu_pinning_free(team->pins);
    free(team->members);
    free(team);
}

static clv_status check_options(int ranks, const clv_rank_threads_options *options, clv_error *err)
{
    if (ranks < 1)
        return clv_fail(err, CLV_EINVAL, "%d ranks; valid: 1 and above", ranks);
    if (options->threads_per_rank < 0)
        return clv_fail(err, CLV_EINVAL, "threads_per_rank is %d; valid: 0 (which is 1) to %d",
                        options->threads_per_rank, CLV_MAX_THREADS_PER_RANK);
    if (options->threads_per_rank > CLV_MAX_THREADS_PER_RANK)
        return clv_fail(err, CLV_ELIMIT, "threads_per_rank is %d; at most %d", options->threads_per_rank,
                        CLV_MAX_THREADS_PER_RANK);
    if (options->timeout_ms < 0)
        return clv_fail(err, CLV_EINVAL, "timeout_ms is %lld; valid: 0 (which is %d) and above",
                        (long long)options->timeout_ms, CLV_DEFAULT_TIMEOUT_MS);
    return CLV_OK;
}

clv_status clv_rank_threads_new(clv_rank_threads **out, int ranks, const clv_rank_threads_options *options,
                                clv_error *err)
{
    static const clv_rank_threads_options defaults = {.pin = -1};

    if (!options)
        options = &defaults;
    CLV_TRY(check_options(ranks, options, err));
    CLV_TRY(load_unwinder(err));
    int first = options->links ? options->links->first[options->links->me] : 0;
    int n = options->links ? options->links->first[options->links->me + 1] - first : ranks;
    if (n < 1)
        return clv_fail(err, CLV_EINVAL, "a process of a team has %d ranks; valid: 1 and above", n);
    if (options->threads_per_rank > 1 && n > CLV_MAX_THREADS_OF_ALL_RANKS / options->threads_per_rank)
        return clv_fail(err, CLV_ELIMIT, "%d ranks of threads_per_rank %d; at most %d threads in a process", n,
                        options->threads_per_rank, CLV_MAX_THREADS_OF_ALL_RANKS);
    if (options->threads_per_rank > 1)
        CLV_TRY(try_starting_threads(n * options->threads_per_rank + SPARE_THREADS, err));
    clv_rank_threads *team = clv_cache_line_alloc(1, sizeof *team);
    if (!team)
        return clv_fail_memory(err, "a team", sizeof *team);
    team->process = getpid();
    team->first_local_rank = first;
    team->n_local_ranks = n;
    team->threads_per_rank = options->threads_per_rank ? options->threads_per_rank : 1;
    int cores = options->links && options->links->cores ? options->links->cores : clv_usable_cpus();
    team->spare_cores = cores - n * team->threads_per_rank;
    team->timeout_ns = clv_timeout_ms_to_ns(options->timeout_ms);
    team->members = clv_cache_line_alloc((size_t)n, sizeof *team->members);
    if (n > 1 && team->spare_cores >= 0)
        team->pool = clv_task_pool_new(n);
    bool allocated = team->members && (team->pool || n == 1 || team->spare_cores < 0);
    clv_world_options world = {.timeout_ms = team->timeout_ns / 1000000,
                               .spin = team->spare_cores >= 0,
                               .transport = options->transport,
                               .seed = options->seed,
                               .links = options->links,
                               .pool = team->pool};
    clv_status status = allocated ? clv_world_new(&team->world, ranks, &world, err)
                                  : clv_fail_memory(err, "a team", (size_t)n * sizeof *team->members);
    if (status == CLV_OK) {
        for (int i = 0; i < n; i++) {
            team->members[i].team = team;
            team->members[i].rank = first + i;
        }
        if (options->pin && cores == clv_usable_cpus()) /* else other processes would pin to the same cores */
            team->pins = clv_cpu_pinning_new(n, team->threads_per_rank, options->pin > 0);
        int code = start_threads(team);
        if (code != 0)
            status = clv_fail(err, CLV_ENOMEM, "thread %d of %d could not be started: %s", team->started + 1, ranks,
                              strerror(code));
        else if (team->threads_per_rank > 1)
            status = start_openmp_of_all(team, err);
    }
    if (status != CLV_OK) {
        free_team(team);
        return status;
    }
    *out = team;
    return CLV_OK;
}

clv_status clv_rank_threads_free(clv_rank_threads *team, clv_error *err)
{
    if (!team)
        return CLV_OK;
    CLV_TRY(check_process(team, err)); /* in a child of fork, ranks stopped at any point in this memory */
    if (team->stuck && !wait_done(team, &(watch){.on = false})) {
        clv_status status = fail_stuck(team, err);

        for (int i = 0; i < team->n_local_ranks; i++)
            pthread_detach(team->members[i].thread);
        return status;
    }
    free_team(team);
    return CLV_OK;
}

clv_world *clv_rank_threads_world(clv_rank_threads *team)
{
    return team->world;
}

clv_task_pool_member clv_rank_threads_task_pool_member(const clv_rank_threads *team, int rank)
{
    return (clv_task_pool_member){team->pool, rank - team->first_local_rank};
}

int clv_rank_threads_are_pinned(const clv_rank_threads *team)
{
    return team->pins != NULL;
}
