/* flight_dump.c - flight recorder dumps: writes what the local ranks did last to a file when a session fails or ends.
 */
#include "cleave/flight.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/flight_recorder.h"
#include "io/diagnostics/flight_file.h"
#include "runtime/session/session_internal.h"

struct clv_flight {
    pthread_mutex_t lock;
    char *path;
    bool only_on_timeout;
    bool failed;     /* a dump of a failed session was written */
    char *written;   /* path of the last dump; NULL: none */
    clv_error error; /* of the last write */
};

/* ---- reading the recorders ---- */

/* Converts both clocks of a recorder to nanoseconds since 1970. */
typedef struct clock_of {
    int64_t first_ticks, first_ns;
    double ns_per_tick;
    int64_t to_unix; /* offset from clv_now_ns */
} clock_of;

static int64_t unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static clock_of calibrate(const clv_recorder *r)
{
    int64_t ticks = clv_ticks() - r->first_ticks, now = clv_now_ns(), ns = now - r->first_ns;
    return (clock_of){.first_ticks = r->first_ticks,
                      .first_ns = r->first_ns,
                      .ns_per_tick = ticks > 0 ? (double)ns / (double)ticks : 0,
                      .to_unix = unix_now() - now};
}

static int64_t time_of_ticks(const clock_of *c, int64_t ticks)
{
    return c->first_ns + (int64_t)((double)(ticks - c->first_ticks) * c->ns_per_tick) + c->to_unix;
}

#define READ(field) atomic_load_explicit(&(field), memory_order_relaxed)

static void read_step(clv_flight_record *out, const clv_collective_record *s, const clock_of *c)
{
    int64_t waiting = READ(s->waiting_ns);
    out->group_set = READ(s->group_set);
    out->seq = READ(s->seq);
    out->tag = READ(s->tag);
    out->lacks = READ(s->awaited);
    out->expected = READ(s->expected);
    out->seen = READ(s->received);
    out->waiting_ns = waiting ? waiting + c->to_unix : 0;
}

static void read_record(clv_flight_record *out, const clv_recorder *r, uint64_t n, const clock_of *c)
{
    const clv_record *at = &r->records[n % CLV_RECORDER_CAPACITY];
    *out = (clv_flight_record){.number = n + 1,
                               .instruction = READ(at->instruction),
                               .name = atomic_load_explicit(&at->name, memory_order_acquire),
                               .kind = READ(at->kind),
                               .begun_ns = time_of_ticks(c, READ(at->begun_ticks)),
                               .phase = (clv_flight_phase)READ(at->phase)};
    if (out->phase != CLV_FLIGHT_PHASE_NONE)
        read_step(out, &r->collectives[n % CLV_RECORDER_CAPACITY], c);
}

/* The rank may run meanwhile: leaves out the records that it overwrites. */
static void read_rank(clv_flight_rank_dump *out, const clv_recorder *r)
{
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_acquire), idle = READ(r->idle);
    clock_of c = calibrate(r);
    int64_t rests = time_of_ticks(&c, READ(r->idle_ticks));
    uint64_t first = begun > CLV_RECORDER_CAPACITY ? begun - CLV_RECORDER_CAPACITY : 0;
    out->begun = begun;
    for (uint64_t n = first; n < begun; n++)
        read_record(&out->records[out->n++], r, n, &c);
    for (int i = 0; i + 1 < out->n; i++)
        out->records[i].ended_ns = out->records[i + 1].begun_ns;
    const clv_flight_record *last = out->n > 0 ? &out->records[out->n - 1] : NULL;
    out->busy = last && idle != begun && last->phase != CLV_FLIGHT_PHASE_COMPLETED;
    if (last && idle == begun)
        out->records[out->n - 1].ended_ns = rests;
    uint64_t now = atomic_load_explicit(&r->begun, memory_order_acquire), gone = now - begun + (now != begun);
    if (gone > 0 && first + CLV_RECORDER_CAPACITY <= now) {
        int drop = gone < (uint64_t)out->n ? (int)gone : out->n;
        out->n -= drop;
        memmove(out->records, out->records + drop, (size_t)out->n * sizeof *out->records);
    }
}

static void read_sets(clv_flight_dump *d, const clv_world *world)
{
    for (int s = 0; s < d->n_sets; s++) {
        int32_t *members = d->members + (int64_t)s * d->ranks, *group_of = d->group_of + (int64_t)s * d->ranks;
        int n = 0, groups = 0;
        for (int r = 0; r < d->ranks; r++) {
            const clv_group *group = clv_world_group(world, s, r);
            if (group->me != 0)
                continue;
            for (int i = 0; i < group->n; i++) {
                members[n++] = group->ranks[i];
                group_of[group->ranks[i]] = groups;
            }
            groups++;
        }
    }
}

static clv_status read_session(clv_flight_dump *d, const clv_session *session, const clv_error *why, clv_error *err)
{
    const clv_world *world = clv_rank_threads_world(session->team);
    *d = (clv_flight_dump){.run = session->run,
                           .process = clv_world_process_index(world),
                           .processes = clv_world_process_count(world),
                           .ranks = session->n_ranks,
                           .pid = getpid(),
                           .written_ns = unix_now()};
    gethostname(d->host, sizeof d->host - 1);
    if (why)
        d->failure = *why;
    else
        (void)clv_world_has_failed(world, &d->failure);
    CLV_TRY(
        clv_flight_dump_alloc(d, clv_world_group_set_count(world), session->n_local_ranks, CLV_RECORDER_CAPACITY, err));
    read_sets(d, world);
    for (int i = 0; i < session->n_local_ranks; i++) {
        clv_flight_rank_dump *of = &d->of[i];
        of->rank = session->first_local_rank + i;
        for (int s = 0; s < d->n_sets; s++)
            clv_world_group_set_progress(&of->steps[s], &of->ended[s], world, s, session->first_local_rank + i);
        of->works = clv_world_is_busy(world, of->rank);
        read_rank(of, clv_world_recorder(world, session->first_local_rank + i));
    }
    return CLV_OK;
}

static clv_status write_session(const clv_session *session, const char *path, const clv_error *why, clv_error *err)
{
    CLV_CLEANUP(clv_flight_dump_free) clv_flight_dump d = {0};
    CLV_TRY(read_session(&d, session, why, err));
    return clv_flight_dump_write(&d, path, err);
}

clv_status clv_flight_write(const clv_session *session, const char *path, clv_error *err)
{
    CLV_TRY(clv_require(session && path, __func__, "a session and a path", err));
    return write_session(session, path, NULL, err);
}

/* ---- writing dumps ---- */

clv_status clv_flight_new(clv_flight **out, const clv_flight_options *options, clv_error *err)
{
    clv_flight_options o;
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    CLV_TRY(clv_require(o.path && o.path[0] != '\0', __func__, "a path", err));
    clv_flight *flight = calloc(1, sizeof *flight);
    char *path = strdup(o.path);
    if (!flight || !path) {
        free(flight);
        free(path);
        return clv_fail_memory(err, "a flight recorder's file", sizeof *flight);
    }
    flight->path = path;
    flight->only_on_timeout = o.only_on_timeout != 0;
    pthread_mutex_init(&flight->lock, NULL);
    *out = flight;
    return CLV_OK;
}

void clv_flight_free(clv_flight *flight)
{
    if (!flight)
        return;
    pthread_mutex_destroy(&flight->lock);
    free(flight->path);
    free(flight->written);
    free(flight);
}

clv_status clv_flight_last_path(const char **path, const clv_flight *flight, clv_error *err)
{
    CLV_TRY(clv_require(path && flight, __func__, "a path and a clv_flight", err));
    if (flight->error.code != CLV_OK) {
        if (err && err->code == CLV_OK)
            *err = flight->error;
        return flight->error.code;
    }
    *path = flight->written;
    return CLV_OK;
}

/* A pipe or device, whose path gets no process index. */
static bool is_device(const char *path)
{
    struct stat is;
    return stat(path, &is) == 0 && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode);
}

/* Caller holds the lock. */
static void write_to(clv_flight *flight, const clv_session *session, const clv_error *why)
{
    const clv_world *world = clv_rank_threads_world(session->team);
    size_t size = strlen(flight->path) + 16;
    char *path = malloc(size);
    flight->error = (clv_error){0};
    if (!path) {
        (void)clv_fail_memory(&flight->error, "a flight recorder's file", size);
        return;
    }
    if (clv_world_process_count(world) > 1 && !is_device(flight->path))
        snprintf(path, size, "%s.%d", flight->path, clv_world_process_index(world));
    else
        snprintf(path, size, "%s", flight->path);
    if (write_session(session, path, why, &flight->error) != CLV_OK) {
        free(path);
        return;
    }
    free(flight->written);
    flight->written = path;
}

static bool is_stuck(const clv_error *why)
{
    return why->code == CLV_ETIMEOUT || why->code == CLV_EPEER;
}

void clv_flight_dump_on_failure(const clv_session *session, const clv_error *why)
{
    clv_flight *flight = session->options.flight;
    if (!flight || !clv_session_has_failed(session) || (flight->only_on_timeout && !is_stuck(why)))
        return;
    pthread_mutex_lock(&flight->lock);
    if (!flight->failed)
        write_to(flight, session, why);
    flight->failed = true;
    pthread_mutex_unlock(&flight->lock);
}

void clv_flight_dump_on_end(const clv_session *session)
{
    clv_flight *flight = session->options.flight;
    if (!flight || flight->only_on_timeout)
        return;
    pthread_mutex_lock(&flight->lock);
    if (!flight->failed)
        write_to(flight, session, NULL);
    pthread_mutex_unlock(&flight->lock);
}
