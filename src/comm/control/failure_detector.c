/* failure_detector.c - watches the connections to other processes: heartbeats, lost processes, failure messages (one
 * poll thread).
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_internal.h"

enum {
    HANDSHAKE_TIMEOUT_NS = 2000000000,
    GOODBYE_MS = 100, /* timeout at the end: to send queued bytes and for peers to close their ends */
    MAX_FRAME_BYTES = 1 << 20,
    READ_BYTES = 4096,
};

/* ---- losses ---- */

/* Writes the bytes received in the collective that a rank waits in; "": it expects none. */
static void print_bytes(char out[64], const clv_recorder *r)
{
    const clv_collective_record *record = &r->collectives[clv_recorder_last_slot(r)];
    int32_t phase = atomic_load_explicit(&r->records[clv_recorder_last_slot(r)].phase, memory_order_relaxed);
    long long expected = atomic_load_explicit(&record->expected, memory_order_relaxed);
    long long received = atomic_load_explicit(&record->received, memory_order_relaxed);
    out[0] = '\0';
    if (phase != CLV_RECORD_NO_COLLECTIVE && phase != CLV_RECORD_ENDED && expected > 0)
        snprintf(out, 64, ", of which %lld of %lld bytes came", received, expected);
}

/* The error of a lost process for a world: the lost ranks, and where the run was. */
static clv_error describe_loss(const clv_control *c, clv_world *world)
{
    pthread_mutex_lock(&world->lock); /* keeps the activity's memory */
    int first = world->first_ranks[c->lost_process], last = world->first_ranks[c->lost_process + 1] - 1;
    const clv_comm *mine = &world->comms[world->first_local];
    const char *activity = atomic_load_explicit(&mine->activity, memory_order_acquire);
    const char *collective = atomic_load_explicit(&mine->collective, memory_order_acquire);
    uint64_t begun = atomic_load_explicit(&mine->collectives_begun, memory_order_relaxed);
    clv_error error = {.code = c->loss.code, .rank = first};
    char ranks[48], bytes[64], where[280] = "before any collective";
    snprintf(ranks, sizeof ranks, first == last ? "rank %d is" : "ranks %d to %d are", first, last);
    print_bytes(bytes, mine->recorder);
    if (collective)
        snprintf(where, sizeof where, "in collective %llu, %s of group set %d ('%.120s')%s", (unsigned long long)begun,
                 collective, atomic_load_explicit(&mine->collective_set, memory_order_relaxed),
                 activity ? activity : "no activity", bytes);
    else if (activity)
        snprintf(where, sizeof where, "before any collective, at '%.120s'", activity);
    snprintf(error.op, sizeof error.op, "%s", activity ? activity : collective ? collective : "");
    snprintf(error.message, sizeof error.message, "%s lost: %s; rank %d was %s", ranks, c->loss.message,
             world->first_local, where);
    pthread_mutex_unlock(&world->lock);
    return error;
}

/* Under the lock. */
static void fail_world(const clv_control *c, clv_world *world)
{
    const clv_error error = c->lost_process >= 0 ? describe_loss(c, world) : c->loss;
    (void)clv_world_record_remote_failure(world, &error);
}

/* Under the lock: whether this process must call on_lost: it is the lowest that is left, and none has. */
static bool should_report_loss(const clv_control *c)
{
    bool reports = atomic_load(&c->lost) && !c->loss_reported && c->job->on_lost;
    for (int p = 0; p < c->me; p++)
        reports = reports && atomic_load(&c->peers[p].state) == CLV_PEER_LOST;
    return reports;
}

/* Calls on_lost if this process must: after the worlds have failed, and without the lock, which on_lost may need. */
static void report_loss(clv_control *c)
{
    pthread_mutex_lock(&c->lock);
    bool reports = should_report_loss(c);
    clv_error error = {0};
    if (reports)
        error = c->lost_process >= 0 && c->n_worlds > 0 ? describe_loss(c, c->worlds[0]) : c->loss;
    c->loss_reported = c->loss_reported || reports;
    pthread_mutex_unlock(&c->lock);
    if (!reports)
        return;
    c->job->on_lost(c->job->on_lost_arg, &error);
    pthread_mutex_lock(&c->lock);
    clv_control_broadcast(c, CLV_FRAME_LOSS_REPORTED, 0, NULL, 0); /* in case this process ends next */
    pthread_mutex_unlock(&c->lock);
}

/* Under the lock: a process has ended, does not respond, or left because of a failure (why). All waits return the first
 * loss. The job is poisoned, as MPI's calls may hang when a process is gone. */
static void mark_lost(clv_control *c, int process, const char *how, const clv_error *why)
{
    clv_control_peer *peer = &c->peers[process];
    char name[160];
    clv_control_disconnect(peer);
    atomic_store(&peer->state, CLV_PEER_LOST);
    if (c->closing || atomic_load(&c->lost))
        return;
    clv_job_describe_process(name, sizeof name, c->job, process);
    c->lost_process = why ? -1 : process;
    c->loss = (clv_error){.code = CLV_EPEER, .rank = -1};
    if (why)
        c->loss = *why;
    else
        snprintf(c->loss.message, sizeof c->loss.message, "%s %s", name, how);
    c->job->poisoned = 1;
    atomic_store_explicit(&c->lost, 1, memory_order_release);
    for (int w = 0; w < c->n_worlds; w++)
        fail_world(c, c->worlds[w]);
}

/* Under the lock: after a timeout, marks unresponsive processes as lost, and sends them the reason. */
static void mark_unresponsive_lost(clv_control *c, const clv_error *why)
{
    for (int p = 0; p < c->n && why->code == CLV_ETIMEOUT; p++)
        if (clv_control_is_unresponsive(c, p)) {
            clv_control_send(&c->peers[p], CLV_FRAME_GOODBYE, 0, why, sizeof *why);
            mark_lost(c, p, NULL, why);
        }
}

void clv_control_notify_failure(clv_control *c, uint64_t world, const clv_error *error)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    clv_control_broadcast(c, CLV_FRAME_FAILURE, world, error, sizeof *error);
    mark_unresponsive_lost(c, error);
    pthread_mutex_unlock(&c->lock);
    clv_control_wake(c);
}

bool clv_control_has_lost_process(const clv_control *c, clv_error *error)
{
    if (!c || !atomic_load_explicit(&c->lost, memory_order_acquire))
        return false;
    if (error)
        *error = c->loss;
    return true;
}

int64_t clv_control_since_heartbeat_ns(const clv_control *c, int process)
{
    return c && process != c->me ? atomic_load_explicit(&c->peers[process].idle_ns, memory_order_relaxed) : 0;
}

void clv_control_add_world(clv_control *c, clv_world *world)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    clv_world **worlds = realloc(c->worlds, (size_t)(c->n_worlds + 1) * sizeof(clv_world *));
    if (worlds) { /* else its deadlines find losses */
        c->worlds = worlds;
        c->worlds[c->n_worlds++] = world;
    }
    if (atomic_load(&c->lost))
        fail_world(c, world);
    pthread_mutex_unlock(&c->lock);
}

void clv_control_remove_world(clv_control *c, const clv_world *world)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    for (int w = 0; w < c->n_worlds; w++)
        if (c->worlds[w] == world)
            c->worlds[w--] = c->worlds[--c->n_worlds];
    pthread_mutex_unlock(&c->lock);
}

/* ---- receiving ---- */

/* A world that is not made yet receives the failure as an MPI notice. */
static void receive_failure(clv_control *c, uint64_t number, const clv_error *error)
{
    clv_world *world = clv_control_find_world(c, number);
    if (world)
        (void)clv_world_record_remote_failure(world, error);
    mark_unresponsive_lost(c, error);
}

/* Under the lock: a process left because of a failure. It has reported the failure itself. */
static void handle_goodbye(clv_control *c, int process, const clv_error *why)
{
    mark_lost(c, process, NULL, why);
    atomic_store(&c->peers[process].state, CLV_PEER_FAILED);
}

/* Under the lock; false: the frame is malformed. */
static bool handle_frame(clv_control *c, int process, const clv_control_frame *f, const unsigned char *data)
{
    clv_error error;
    c->loss_reported = c->loss_reported || f->kind == CLV_FRAME_LOSS_REPORTED;
    if (f->kind == CLV_FRAME_HEARTBEAT || f->kind == CLV_FRAME_LOSS_REPORTED)
        return true;
    if (f->kind == CLV_FRAME_PROGRESS_QUERY)
        return clv_control_answer_query(c, process, f->world, data, f->bytes);
    if (f->kind == CLV_FRAME_PROGRESS)
        return clv_control_receive_answer(c, process, data, f->bytes);
    if ((f->kind != CLV_FRAME_FAILURE && f->kind != CLV_FRAME_GOODBYE) || f->bytes != sizeof error)
        return false;
    memcpy(&error, data, sizeof error);
    error.op[sizeof error.op - 1] = error.message[sizeof error.message - 1] = '\0';
    if (f->kind == CLV_FRAME_FAILURE)
        receive_failure(c, f->world, &error);
    else if (error.code == CLV_OK)
        atomic_store(&c->peers[process].state, CLV_PEER_LEFT);
    else
        handle_goodbye(c, process, &error);
    return true;
}

/* Under the lock: handles the complete frames; false: one is malformed. */
static bool handle_frames(clv_control *c, int process)
{
    clv_control_peer *peer = &c->peers[process];
    size_t at = 0;
    clv_control_frame f;
    while (peer->in_bytes - at >= sizeof f) {
        memcpy(&f, peer->in + at, sizeof f);
        if (f.kind < CLV_FRAME_HEARTBEAT || f.kind >= CLV_FRAME_KIND_COUNT || f.bytes > MAX_FRAME_BYTES)
            return false;
        if (peer->in_bytes - at < sizeof f + f.bytes)
            break;
        if (!handle_frame(c, process, &f, peer->in + at + sizeof f))
            return false;
        if (peer->fd < 0) /* it left */
            return true;
        at += sizeof f + f.bytes;
    }
    peer->in_bytes -= at;
    memmove(peer->in, peer->in + at, peer->in_bytes);
    return true;
}

/* Under the lock. */
static void handle_disconnect(clv_control *c, int process, int code)
{
    char how[128];
    if (c->closing || atomic_load(&c->peers[process].state) == CLV_PEER_LEFT) {
        clv_control_disconnect(&c->peers[process]);
        return;
    }
    snprintf(how, sizeof how, code ? "ended or was cut off: %s" : "ended or was killed", code ? strerror(code) : "");
    mark_lost(c, process, how, NULL);
}

/* Under the lock: receives what has arrived. */
static void receive_from(clv_control *c, int process)
{
    clv_control_peer *peer = &c->peers[process];
    while (peer->fd >= 0) {
        if (!clv_control_grow_buffer(&peer->in, &peer->in_capacity, peer->in_bytes + READ_BYTES)) {
            mark_lost(c, process, "sent more than there is memory for", NULL);
            return;
        }
        ssize_t n = recv(peer->fd, peer->in + peer->in_bytes, READ_BYTES, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            handle_disconnect(c, process, n == 0 || errno == ECONNRESET ? 0 : errno);
            return;
        }
        atomic_store_explicit(&peer->idle_ns, 0, memory_order_relaxed);
        peer->in_bytes += (size_t)n;
        if (!handle_frames(c, process))
            mark_lost(c, process, "sent a malformed message", NULL);
    }
}

/* ---- the thread ---- */

/* Under the lock: returns the number of entries. */
static nfds_t fill_pollfds(const clv_control *c)
{
    struct pollfd *fds = c->polled;
    int *process = c->polled_process;
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = c->accept_paused ? -1 : c->listener, .events = POLLIN};
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0) {
            process[n] = p;
            fds[n++] =
                (struct pollfd){.fd = c->peers[p].fd,
                                .events = (short)(POLLIN | POLLRDHUP | (c->peers[p].out_bytes > 0 ? POLLOUT : 0))};
        }
    for (int s = 0; s < c->n_pending; s++)
        if (c->pending[s].fd >= 0) {
            process[n] = c->n + s;
            fds[n++] = (struct pollfd){.fd = c->pending[s].fd, .events = POLLIN};
        }
    return n;
}

/* Under the lock. Handles connections that have ended first: messages of others may be a consequence. */
static void handle_events(clv_control *c, nfds_t n)
{
    const struct pollfd *fds = c->polled;
    const int *process = c->polled_process;
    uint64_t woken;
    if (fds[0].revents)
        (void)!read(c->wake_fd, &woken, sizeof woken);
    for (int ended = 1; ended >= 0; ended--)
        for (nfds_t i = 2; i < n; i++) {
            bool has_ended = (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
            if (process[i] >= c->n || !fds[i].revents || has_ended != (ended == 1))
                continue;
            clv_control_flush(&c->peers[process[i]]);
            receive_from(c, process[i]);
        }
    for (nfds_t i = 2; i < n; i++)
        if (process[i] >= c->n && fds[i].revents)
            clv_control_receive_handshake(c, &c->pending[process[i] - c->n]);
    if (fds[1].revents && c->listener >= 0)
        clv_control_accept(c);
}

/* Under the lock. ns: time since the last heartbeats in which this process ran. */
static void send_heartbeats(clv_control *c, int64_t ns)
{
    c->accept_paused = false;
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0) {
            atomic_fetch_add_explicit(&c->peers[p].idle_ns, ns, memory_order_relaxed);
            clv_control_send(&c->peers[p], CLV_FRAME_HEARTBEAT, 0, NULL, 0);
        }
    for (int s = 0; s < c->n_pending; s++)
        if (c->pending[s].fd >= 0 && (c->pending[s].idle_ns += ns) > HANDSHAKE_TIMEOUT_NS)
            clv_pending_connection_close(&c->pending[s]);
}

/* Whether all connections are closed: all bytes are sent, and the peers have closed their ends. */
static bool is_closed(const clv_control *c)
{
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0)
            return false;
    return true;
}

static void run_event_loop(clv_control *c)
{
    clv_deadline end = {0};
    int64_t last_ns = clv_now_ns();
    for (bool ends = false;;) {
        pthread_mutex_lock(&c->lock);
        if (c->closing && !ends)
            end = clv_deadline_after(GOODBYE_MS * INT64_C(1000000));
        ends = c->closing;
        nfds_t n = fill_pollfds(c);
        bool over = ends && (is_closed(c) || clv_deadline_remaining(&end) == 0);
        pthread_mutex_unlock(&c->lock);
        if (over)
            return;
        int64_t since = clv_now_ns() - last_ns, rest = c->heartbeat_ns - since;
        int ready = poll(c->polled, n, ends ? 1 : rest > 0 ? (int)(rest / 1000000) + 1 : 0);
        pthread_mutex_lock(&c->lock);
        if (ready > 0)
            handle_events(c, n);
        since = clv_now_ns() - last_ns;
        if (since >= c->heartbeat_ns) {
            send_heartbeats(c, since < 2 * c->heartbeat_ns ? since : 2 * c->heartbeat_ns);
            last_ns += since;
        }
        pthread_mutex_unlock(&c->lock);
        report_loss(c); /* again after later losses: only then this process may be the lowest left */
    }
}

void *clv_control_thread_main(void *control)
{
    pthread_setname_np(pthread_self(), "cleave control");
    run_event_loop(control);
    return NULL;
}

void clv_control_free(clv_control *c)
{
    if (!c)
        return;
    for (int p = 0; c->peers && p < c->n; p++) {
        clv_control_disconnect(&c->peers[p]);
        free(c->peers[p].in);
        free(c->peers[p].out);
    }
    for (int s = 0; c->pending && s < c->n_pending; s++)
        if (c->pending[s].fd >= 0)
            close(c->pending[s].fd);
    if (c->listener >= 0)
        close(c->listener);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->query_lock);
    pthread_cond_destroy(&c->changed);
    free(c->pending);
    free(c->peers);
    free(c->worlds);
    free(c->peer_tokens);
    free(c->answered);
    free(c->polled);
    free(c->polled_process);
    free(c);
}

/* ---- fork ---- */

/* The control of this process (one at most), for fork handlers, which have no argument. */
static _Atomic(clv_control *) ours;

static void before_fork(void)
{
    clv_control *c = atomic_load(&ours);
    if (c)
        pthread_mutex_lock(&c->lock);
}

static void after_fork(void)
{
    clv_control *c = atomic_load(&ours);
    if (c)
        pthread_mutex_unlock(&c->lock);
}

/* The child is not a process of the job: if it kept the connections the others would not see the parent end. */
static void in_child(void)
{
    clv_control *c = atomic_load(&ours);
    if (!c)
        return;
    for (int p = 0; p < c->n; p++)
        clv_control_disconnect(&c->peers[p]);
    after_fork();
}

static void add_handlers(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

void clv_control_register_atfork(clv_control *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    atomic_store(&ours, c);
    pthread_once(&once, add_handlers);
}

static void unregister_atfork(const clv_control *c)
{
    clv_control *mine = (clv_control *)c;
    (void)atomic_compare_exchange_strong(&ours, &mine, NULL);
}

/* ---- closing ---- */

void clv_control_close(clv_control *c, const clv_error *why)
{
    if (!c)
        return;
    const clv_error well = {.rank = -1};
    pthread_mutex_lock(&c->lock);
    clv_control_broadcast(c, CLV_FRAME_GOODBYE, 0, why ? why : &well, sizeof well);
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0 && c->peers[p].out_bytes == 0)
            shutdown(c->peers[p].fd, SHUT_WR);
    c->closing = true;
    pthread_mutex_unlock(&c->lock);
    clv_control_wake(c);
    pthread_join(c->thread, NULL);
    unregister_atfork(c);
    clv_control_free(c);
}
