/* control_connections.c - one control connection: sends frames without blocking, accepts peers and drops
 * unauthenticated ones.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_internal.h"
#include "comm/mpi/mpi_world.h"

enum { MISSED_HEARTBEATS = 4 /* a process that misses more is unresponsive */ };

void clv_control_flush(clv_control_peer *peer)
{
    while (peer->fd >= 0 && peer->out_bytes > 0) {
        ssize_t n = send(peer->fd, peer->out, peer->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* full, or the peer has ended, which receiving finds */
            return;
        peer->out_bytes -= (size_t)n;
        memmove(peer->out, peer->out + n, peer->out_bytes);
    }
}

bool clv_control_grow_buffer(unsigned char **data, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity)
        return true;
    unsigned char *more = realloc(*data, 2 * bytes);
    if (!more)
        return false;
    *data = more;
    *capacity = 2 * bytes;
    return true;
}

void clv_control_send(clv_control_peer *peer, clv_control_frame_kind what, uint64_t world, const void *data,
                      size_t bytes)
{
    const clv_control_frame f = {.kind = what, .bytes = (uint32_t)bytes, .world = world};
    size_t all = peer->out_bytes + sizeof f + bytes;
    if (peer->fd < 0 || (what == CLV_FRAME_HEARTBEAT && peer->out_bytes > 0) ||
        !clv_control_grow_buffer(&peer->out, &peer->out_capacity, all))
        return;
    memcpy(peer->out + peer->out_bytes, &f, sizeof f);
    if (bytes > 0)
        memcpy(peer->out + peer->out_bytes + sizeof f, data, bytes);
    peer->out_bytes = all;
    clv_control_flush(peer);
}

void clv_control_broadcast(clv_control *c, clv_control_frame_kind what, uint64_t world, const void *data, size_t bytes)
{
    for (int p = 0; p < c->n; p++)
        clv_control_send(&c->peers[p], what, world, data, bytes);
}

void clv_control_wake(const clv_control *c)
{
    const uint64_t one = 1;
    (void)!write(c->wake_fd, &one, sizeof one);
}

void clv_control_disconnect(clv_control_peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
    peer->out_bytes = peer->in_bytes = 0;
}

bool clv_control_is_unresponsive(const clv_control *c, int process)
{
    const clv_control_peer *peer = &c->peers[process];
    return peer->fd >= 0 &&
           atomic_load_explicit(&peer->idle_ns, memory_order_relaxed) > MISSED_HEARTBEATS * c->heartbeat_ns;
}

clv_world *clv_control_find_world(const clv_control *c, uint64_t number)
{
    for (int w = 0; w < c->n_worlds; w++)
        if (c->worlds[w]->mpi->number == number)
            return c->worlds[w];
    return NULL;
}

/* ---- accepting ---- */

void clv_pending_connection_close(clv_pending_connection *s)
{
    close(s->fd);
    s->fd = -1;
}

void clv_control_add_peer(clv_control *c, int process, int fd)
{
    clv_control_peer *peer = &c->peers[process];
    peer->fd = fd;
    atomic_store(&peer->state, CLV_PEER_CONNECTED);
    atomic_store(&peer->idle_ns, 0);
    c->n_awaited--;
    if (c->n_awaited == 0 && c->listener >= 0) {
        close(c->listener);
        c->listener = -1;
    }
    pthread_cond_broadcast(&c->changed);
}

void clv_control_accept(clv_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    clv_pending_connection *place = c->pending;
    int one = 1;
    if (fd < 0) {
        c->accept_paused = errno != EAGAIN && errno != EINTR &&
                           errno != ECONNABORTED; /* out of descriptors: poll would return at once */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int s = 0; s < c->n_pending && place->fd >= 0; s++)
        if (c->pending[s].fd < 0 || c->pending[s].idle_ns > place->idle_ns)
            place = &c->pending[s];
    if (place->fd >= 0)
        clv_pending_connection_close(place);
    *place = (clv_pending_connection){.fd = fd};
}

void clv_control_receive_handshake(clv_control *c, clv_pending_connection *s)
{
    clv_control_handshake mine = {.is = CLV_CONTROL_MAGIC, .from = c->me, .version = CLV_CONTROL_VERSION};
    ssize_t n = recv(s->fd, (char *)&s->handshake + s->bytes, sizeof s->handshake - s->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        clv_pending_connection_close(s);
        return;
    }
    s->bytes += (size_t)n;
    if (s->bytes < sizeof s->handshake)
        return;
    int from = s->handshake.from;
    bool known = memcmp(s->handshake.is, mine.is, sizeof mine.is) == 0 && s->handshake.version == mine.version &&
                 memcmp(s->handshake.token, c->token, sizeof c->token) == 0 && from > c->me && from < c->n &&
                 atomic_load(&c->peers[from].state) == CLV_PEER_AWAITED;
    if (known)
        memcpy(mine.token, c->peer_tokens[from], sizeof mine.token);
    if (!known || send(s->fd, &mine, sizeof mine, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof mine) {
        clv_pending_connection_close(s);
        return;
    }
    clv_control_add_peer(c, from, s->fd);
    s->fd = -1;
}
