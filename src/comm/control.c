/* control.c - watching the connections between the processes of a job: see control.h. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/control_wire.h"
#include "comm/mpi_wire.h"

enum {
    STRANGER_NS = 2000000000, /* until one has shown a token */
    GOODBYE_MS = 100,         /* for what is to be sent yet, and until others have closed their ends */
    MOST_FRAME = 1 << 20,     /* bytes; more is no frame */
    READ_BYTES = 4096,
    SILENT_PULSES = 4, /* that did not come */
    ANSWER_MS = 80,    /* until others have said where they stand */
    SOON_MS = 40,      /* the same of those that have no pulse */
};

typedef enum kind { PULSE = 1, FAILURE, GOODBYE, ASK, STANDING, SPOKEN, KINDS } kind;

typedef struct frame {
    uint32_t kind, bytes; /* behind this */
    uint64_t world;
} frame;

/* What ASK says. */
typedef struct question {
    uint64_t number;
    int64_t set;
} question;

/* ---- sending ---- */

/* Under the lock: what the socket takes now. */
static void flush(clv_control_peer *peer)
{
    while (peer->fd >= 0 && peer->out_bytes > 0) {
        ssize_t n = send(peer->fd, peer->out, peer->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* full; or it has ended, which reading says */
            return;
        peer->out_bytes -= (size_t)n;
        memmove(peer->out, peer->out + n, peer->out_bytes);
    }
}

static bool make_room(unsigned char **data, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return true;
    unsigned char *more = realloc(*data, 2 * bytes);
    if (!more)
        return false;
    *data = more;
    *room = 2 * bytes;
    return true;
}

/* Under the lock. A pulse is left out where more is to be sent yet. */
static void say(clv_control_peer *peer, kind what, uint64_t world, const void *data, size_t bytes)
{
    const frame f = {.kind = what, .bytes = (uint32_t)bytes, .world = world};
    size_t all = peer->out_bytes + sizeof f + bytes;
    if (peer->fd < 0 || (what == PULSE && peer->out_bytes > 0) || !make_room(&peer->out, &peer->out_room, all))
        return;
    memcpy(peer->out + peer->out_bytes, &f, sizeof f);
    if (bytes > 0)
        memcpy(peer->out + peer->out_bytes + sizeof f, data, bytes);
    peer->out_bytes = all;
    flush(peer);
}

static void say_to_all(clv_control *c, kind what, uint64_t world, const void *data, size_t bytes)
{
    for (int p = 0; p < c->n; p++)
        say(&c->peers[p], what, world, data, bytes);
}

void clv_control_wake(const clv_control *c)
{
    const uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one);
}

/* ---- losses ---- */

static void hang_up(clv_control_peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
    peer->out_bytes = peer->in_bytes = 0;
}

/* What the loss of a process is to a world: which ranks are gone, and where the run was. */
static clv_error loss_of_ranks(const clv_control *c, clv_world *world)
{
    pthread_mutex_lock(&world->lock); /* what the note is in may not go */
    int first = world->firsts[c->lost_process], last = world->firsts[c->lost_process + 1] - 1;
    const clv_thread_comm *mine = &world->comms[world->first];
    const char *note = atomic_load_explicit(&mine->base.note, memory_order_acquire);
    const char *doing = atomic_load_explicit(&mine->doing, memory_order_acquire);
    uint64_t steps = atomic_load_explicit(&mine->begun, memory_order_relaxed);
    clv_error error = {.code = c->loss.code, .rank = first};
    char ranks[48], where[240] = "before any step";
    snprintf(ranks, sizeof ranks, first == last ? "rank %d is" : "ranks %d to %d are", first, last);
    if (doing)
        snprintf(where, sizeof where, "in step %llu, %s of group set %d ('%.120s')", (unsigned long long)steps, doing,
                 atomic_load_explicit(&mine->doing_in, memory_order_relaxed), note ? note : "no note");
    else if (note)
        snprintf(where, sizeof where, "before any step, at '%.120s'", note);
    snprintf(error.op, sizeof error.op, "%s", note ? note : doing ? doing : "");
    snprintf(error.message, sizeof error.message, "%s lost: %s; rank %d was %s", ranks, c->loss.message, world->first,
             where);
    pthread_mutex_unlock(&world->lock);
    return error;
}

/* Under the lock. */
static void fail_world(const clv_control *c, clv_world *world)
{
    const clv_error error = c->lost_process >= 0 ? loss_of_ranks(c, world) : c->loss;
    (void)clv_threads_record(world, &error);
}

/* Under the lock: tells the program, where this is the process that does, before anything else: the launcher is about
 * to end it. */
static void tell_program(clv_control *c)
{
    bool tells = atomic_load(&c->lost) && !c->told && c->job->lost;
    for (int p = 0; p < c->me; p++)
        tells = tells && atomic_load(&c->peers[p].presence) == CLV_LOST;
    if (!tells)
        return;
    const clv_error words = c->lost_process >= 0 && c->n_worlds > 0 ? loss_of_ranks(c, c->worlds[0]) : c->loss;
    c->told = true;
    c->job->lost(c->job->lost_arg, &words);
    say_to_all(c, SPOKEN, 0, NULL, 0); /* should this process be the next to go */
}

static bool is_silent(const clv_control *c, int process)
{
    const clv_control_peer *peer = &c->peers[process];
    return peer->fd >= 0 && atomic_load_explicit(&peer->quiet_ns, memory_order_relaxed) > SILENT_PULSES * c->pulse_ns;
}

/* Under the lock: a process has ended, is as good as that, or left because of a failure (why). The first loss is what
 * all that waits returns. MPI is not called any more: with a process that is gone, its calls may not return. */
static void lose(clv_control *c, int process, const char *how, const clv_error *why)
{
    clv_control_peer *peer = &c->peers[process];
    char name[160];
    hang_up(peer);
    atomic_store(&peer->presence, CLV_LOST);
    if (c->ends)
        return;
    if (atomic_load(&c->lost)) {
        tell_program(c); /* of the first loss, where those are lost that were to */
        return;
    }
    clv_job_name(name, sizeof name, c->job, process);
    c->lost_process = why ? -1 : process;
    c->loss = (clv_error){.code = CLV_EPEER, .rank = -1};
    if (why)
        c->loss = *why;
    else
        snprintf(c->loss.message, sizeof c->loss.message, "%s %s", name, how);
    c->job->broken = 1;
    atomic_store_explicit(&c->lost, 1, memory_order_release);
    tell_program(c);
    for (int w = 0; w < c->n_worlds; w++)
        fail_world(c, c->worlds[w]);
}

/* Under the lock: a deadline has passed, and those of which nothing comes are why. Should they go on, they find why
 * others have gone. */
static void lose_silent(clv_control *c, const clv_error *why)
{
    for (int p = 0; p < c->n && why->code == CLV_ETIMEOUT; p++)
        if (is_silent(c, p)) {
            say(&c->peers[p], GOODBYE, 0, why, sizeof *why);
            lose(c, p, NULL, why);
        }
}

void clv_control_tell(clv_control *c, uint64_t world, const clv_error *error)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    say_to_all(c, FAILURE, world, error, sizeof *error);
    lose_silent(c, error);
    pthread_mutex_unlock(&c->lock);
    clv_control_wake(c);
}

bool clv_control_lost(const clv_control *c, clv_error *error)
{
    if (!c || !atomic_load_explicit(&c->lost, memory_order_acquire))
        return false;
    if (error)
        *error = c->loss;
    return true;
}

int64_t clv_control_silence_ns(const clv_control *c, int process)
{
    return c && process != c->me ? atomic_load_explicit(&c->peers[process].quiet_ns, memory_order_relaxed) : 0;
}

void clv_control_add_world(clv_control *c, clv_world *world)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    clv_world **worlds = realloc(c->worlds, (size_t)(c->n_worlds + 1) * sizeof(clv_world *));
    if (worlds) { /* else its own deadlines find what fails */
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

/* NULL: it is gone, or not there yet. */
static clv_world *find_world(const clv_control *c, uint64_t number)
{
    for (int w = 0; w < c->n_worlds; w++)
        if (c->worlds[w]->mpi->number == number)
            return c->worlds[w];
    return NULL;
}

/* Of a world that is not there MPI tells, too. */
static void take_failure(clv_control *c, uint64_t number, const clv_error *error)
{
    clv_world *world = find_world(c, number);
    if (world)
        (void)clv_threads_record(world, error);
    lose_silent(c, error);
}

/* Under the lock: says where the ranks of this process stand. Those of a world that has failed do not stand where they
 * failed any more; that it has is on its way. */
static void answer(const clv_control *c, int process, uint64_t number, const question *q)
{
    clv_world *world = find_world(c, number);
    int n = world ? world->here : 0;
    size_t bytes = sizeof q->number + (size_t)n * sizeof(clv_standing);
    if (world && clv_world_failed(world, NULL))
        return;
    unsigned char *data = malloc(bytes);
    if (!data)
        return;
    memcpy(data, &q->number, sizeof q->number);
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&world->lock); /* what the note is in may not go */
        const clv_standing s = clv_standing_of(world, world->first + i, q->set);
        pthread_mutex_unlock(&world->lock);
        memcpy(data + sizeof q->number + (size_t)i * sizeof s, &s, sizeof s);
    }
    say(&c->peers[process], STANDING, number, data, bytes);
    free(data);
}

/* Under the lock. */
static void take_answer(clv_control *c, int process, const unsigned char *data, size_t bytes)
{
    uint64_t number;
    memcpy(&number, data, sizeof number);
    if (!c->answers || number != c->question)
        return;
    for (size_t at = sizeof number; at + sizeof(clv_standing) <= bytes; at += sizeof(clv_standing)) {
        clv_standing s;
        memcpy(&s, data + at, sizeof s);
        s.what[sizeof s.what - 1] = s.note[sizeof s.note - 1] = '\0';
        if (s.rank >= 0 && s.rank < c->n_answers)
            c->answers[s.rank] = s;
    }
    c->answered[process] = true;
    pthread_cond_broadcast(&c->came);
}

/* Under the lock: whether all have answered that will, ms after they were asked. */
static bool all_answered(const clv_control *c, int64_t ms)
{
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0 && !c->answered[p] && (ms < SOON_MS || !is_silent(c, p)))
            return false;
    return true;
}

void clv_control_ask(clv_control *c, clv_world *world, int set, clv_standing *all)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->asking);
    pthread_mutex_lock(&c->lock);
    int64_t began = clv_now_ns(), ms = 0;
    c->question++;
    c->answers = all;
    c->n_answers = world->ranks;
    memset(c->answered, 0, (size_t)c->n * sizeof *c->answered);
    const question q = {.number = c->question, .set = set};
    say_to_all(c, ASK, world->mpi->number, &q, sizeof q);
    while (!all_answered(c, ms) && ms < ANSWER_MS && !clv_world_failed(world, NULL)) {
        struct timespec until = clv_wall_time_in(5000000);
        pthread_cond_timedwait(&c->came, &c->lock, &until);
        ms = (clv_now_ns() - began) / 1000000;
    }
    c->answers = NULL;
    for (int r = 0; r < world->ranks; r++) {
        int process = clv_threads_process(world, r);
        all[r].silent = process != c->me && !c->answered[process] && is_silent(c, process);
    }
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&c->asking);
}

/* Under the lock: a process left because of a failure, and has said it where it was to. */
static void leave(clv_control *c, int process, const clv_error *why)
{
    lose(c, process, NULL, why);
    atomic_store(&c->peers[process].presence, CLV_FAILED);
}

/* Under the lock; false: no such frame. */
static bool take(clv_control *c, int process, const frame *f, const unsigned char *data)
{
    clv_error error;
    c->told = c->told || f->kind == SPOKEN;
    if (f->kind == PULSE || f->kind == SPOKEN)
        return true;
    if (f->kind == ASK && f->bytes == sizeof(question)) {
        question q;
        memcpy(&q, data, sizeof q);
        answer(c, process, f->world, &q);
        return true;
    }
    if (f->kind == STANDING && f->bytes >= sizeof(uint64_t)) {
        take_answer(c, process, data, f->bytes);
        return true;
    }
    if ((f->kind != FAILURE && f->kind != GOODBYE) || f->bytes != sizeof error)
        return false;
    memcpy(&error, data, sizeof error);
    error.op[sizeof error.op - 1] = error.message[sizeof error.message - 1] = '\0';
    if (f->kind == FAILURE)
        take_failure(c, f->world, &error);
    else if (error.code == CLV_OK)
        atomic_store(&c->peers[process].presence, CLV_GONE);
    else
        leave(c, process, &error);
    return true;
}

/* Under the lock: takes the frames that have come whole; false: what came is none. */
static bool take_all(clv_control *c, int process)
{
    clv_control_peer *peer = &c->peers[process];
    size_t at = 0;
    frame f;
    while (peer->in_bytes - at >= sizeof f) {
        memcpy(&f, peer->in + at, sizeof f);
        if (f.kind < PULSE || f.kind >= KINDS || f.bytes > MOST_FRAME)
            return false;
        if (peer->in_bytes - at < sizeof f + f.bytes)
            break;
        if (!take(c, process, &f, peer->in + at + sizeof f))
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
static void end_of(clv_control *c, int process, int code)
{
    char how[128];
    if (c->ends || atomic_load(&c->peers[process].presence) == CLV_GONE) {
        hang_up(&c->peers[process]);
        return;
    }
    snprintf(how, sizeof how, code ? "ended or was cut off: %s" : "ended or was killed", code ? strerror(code) : "");
    lose(c, process, how, NULL);
}

/* Under the lock: takes what is there. */
static void listen_to(clv_control *c, int process)
{
    clv_control_peer *peer = &c->peers[process];
    while (peer->fd >= 0) {
        if (!make_room(&peer->in, &peer->in_room, peer->in_bytes + READ_BYTES)) {
            lose(c, process, "sent what there is no memory for", NULL);
            return;
        }
        ssize_t n = recv(peer->fd, peer->in + peer->in_bytes, READ_BYTES, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            end_of(c, process, n == 0 || errno == ECONNRESET ? 0 : errno);
            return;
        }
        atomic_store_explicit(&peer->quiet_ns, 0, memory_order_relaxed);
        peer->in_bytes += (size_t)n;
        if (!take_all(c, process))
            lose(c, process, "sent what is no message of cleave's", NULL);
    }
}

/* ---- who comes ---- */

static void drop(clv_control_stranger *s)
{
    close(s->fd);
    s->fd = -1;
}

void clv_control_connected(clv_control *c, int process, int fd)
{
    clv_control_peer *peer = &c->peers[process];
    peer->fd = fd;
    atomic_store(&peer->presence, CLV_HERE);
    atomic_store(&peer->quiet_ns, 0);
    c->left--;
    if (c->left == 0 && c->listener >= 0) {
        close(c->listener);
        c->listener = -1;
    }
    pthread_cond_broadcast(&c->came);
}

/* The longest-waiting one makes room where there is none. */
static void take_stranger(clv_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    clv_control_stranger *room = c->strangers;
    int one = 1;
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int s = 0; s < c->n_strangers && room->fd >= 0; s++)
        if (c->strangers[s].fd < 0 || c->strangers[s].quiet_ns > room->quiet_ns)
            room = &c->strangers[s];
    if (room->fd >= 0)
        drop(room);
    *room = (clv_control_stranger){.fd = fd};
}

/* It shows the token that this process told it, and is shown its own. */
static void hear_stranger(clv_control *c, clv_control_stranger *s)
{
    clv_control_hello mine = {.is = CLV_CONTROL_IS, .from = c->me, .version = CLV_CONTROL_VERSION};
    ssize_t n = recv(s->fd, (char *)&s->hello + s->bytes, sizeof s->hello - s->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(s);
        return;
    }
    s->bytes += (size_t)n;
    if (s->bytes < sizeof s->hello)
        return;
    int from = s->hello.from;
    bool known = memcmp(s->hello.is, mine.is, sizeof mine.is) == 0 && s->hello.version == mine.version &&
                 memcmp(s->hello.token, c->token, sizeof c->token) == 0 && from > c->me && from < c->n &&
                 atomic_load(&c->peers[from].presence) == CLV_NOT_YET;
    if (known)
        memcpy(mine.token, c->theirs[from], sizeof mine.token);
    if (!known || send(s->fd, &mine, sizeof mine, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof mine) {
        drop(s);
        return;
    }
    clv_control_connected(c, from, s->fd);
    s->fd = -1;
}

/* ---- the thread ---- */

/* Under the lock: what is to be polled; returns how many. who[i]: the process of a peer's, n and above a stranger's. */
static nfds_t collect(const clv_control *c, struct pollfd *fds, int *who)
{
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0) {
            who[n] = p;
            fds[n++] =
                (struct pollfd){.fd = c->peers[p].fd,
                                .events = (short)(POLLIN | POLLRDHUP | (c->peers[p].out_bytes > 0 ? POLLOUT : 0))};
        }
    for (int s = 0; s < c->n_strangers; s++)
        if (c->strangers[s].fd >= 0) {
            who[n] = c->n + s;
            fds[n++] = (struct pollfd){.fd = c->strangers[s].fd, .events = POLLIN};
        }
    return n;
}

/* Under the lock. Connections that have ended come first: what others say may be of that. */
static void handle(clv_control *c, const struct pollfd *fds, const int *who, nfds_t n)
{
    uint64_t woken;
    if (fds[0].revents)
        (void)!read(c->wake, &woken, sizeof woken);
    for (int ended = 1; ended >= 0; ended--)
        for (nfds_t i = 2; i < n; i++) {
            bool has_ended = (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
            if (who[i] >= c->n || !fds[i].revents || has_ended != (ended == 1))
                continue;
            flush(&c->peers[who[i]]);
            listen_to(c, who[i]);
        }
    for (nfds_t i = 2; i < n; i++)
        if (who[i] >= c->n && fds[i].revents)
            hear_stranger(c, &c->strangers[who[i] - c->n]);
    if (fds[1].revents && c->listener >= 0)
        take_stranger(c);
}

/* Under the lock: one beat; ns: since the last one, as far as this process ran. */
static void beat(clv_control *c, int64_t ns)
{
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0) {
            atomic_fetch_add_explicit(&c->peers[p].quiet_ns, ns, memory_order_relaxed);
            say(&c->peers[p], PULSE, 0, NULL, 0);
        }
    for (int s = 0; s < c->n_strangers; s++)
        if (c->strangers[s].fd >= 0 && (c->strangers[s].quiet_ns += ns) > STRANGER_NS)
            drop(&c->strangers[s]);
}

/* Whether nothing is left to do at the end: all is sent, and who said goodbye has closed its end. */
static bool is_over(const clv_control *c)
{
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0)
            return false;
    return true;
}

static void watch(clv_control *c, struct pollfd *fds, int *who)
{
    clv_deadline end = {0};
    int64_t beaten = clv_now_ns();
    for (bool ends = false;;) {
        pthread_mutex_lock(&c->lock);
        if (c->ends && !ends)
            end = clv_deadline_in(GOODBYE_MS * INT64_C(1000000));
        ends = c->ends;
        nfds_t n = collect(c, fds, who);
        bool over = ends && (is_over(c) || clv_deadline_look(&end) == 0);
        pthread_mutex_unlock(&c->lock);
        if (over)
            return;
        int64_t since = clv_now_ns() - beaten, rest = c->pulse_ns - since;
        int ready = poll(fds, n, ends ? 1 : rest > 0 ? (int)(rest / 1000000) + 1 : 0);
        pthread_mutex_lock(&c->lock);
        if (ready > 0)
            handle(c, fds, who, n);
        since = clv_now_ns() - beaten;
        if (since >= c->pulse_ns) {
            beat(c, since < 2 * c->pulse_ns ? since : 2 * c->pulse_ns);
            beaten += since;
        }
        pthread_mutex_unlock(&c->lock);
    }
}

void *clv_control_main(void *arg)
{
    clv_control *c = arg;
    size_t most = (size_t)(2 + c->n + c->n_strangers);
    struct pollfd *fds = malloc(most * sizeof *fds);
    int *who = malloc(most * sizeof *who);
    pthread_setname_np(pthread_self(), "cleave control");
    if (fds && who)
        watch(c, fds, who);
    free(fds);
    free(who);
    return NULL;
}

void clv_control_free(clv_control *c)
{
    if (!c)
        return;
    for (int p = 0; c->peers && p < c->n; p++) {
        hang_up(&c->peers[p]);
        free(c->peers[p].in);
        free(c->peers[p].out);
    }
    for (int s = 0; c->strangers && s < c->n_strangers; s++)
        if (c->strangers[s].fd >= 0)
            close(c->strangers[s].fd);
    if (c->listener >= 0)
        close(c->listener);
    if (c->wake >= 0)
        close(c->wake);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->asking);
    pthread_cond_destroy(&c->came);
    free(c->strangers);
    free(c->peers);
    free(c->worlds);
    free(c->theirs);
    free(c->answered);
    free(c);
}

void clv_control_close(clv_control *c, const clv_error *why)
{
    if (!c)
        return;
    const clv_error well = {.rank = -1};
    pthread_mutex_lock(&c->lock);
    say_to_all(c, GOODBYE, 0, why ? why : &well, sizeof well);
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0 && c->peers[p].out_bytes == 0)
            shutdown(c->peers[p].fd, SHUT_WR);
    c->ends = true;
    pthread_mutex_unlock(&c->lock);
    clv_control_wake(c);
    pthread_join(c->thread, NULL);
    clv_control_free(c);
}
