/* control_accept.c - accepts control connections: handshake with a token; unauthenticated peers are dropped. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_internal.h"

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
    c->left--;
    if (c->left == 0 && c->listener >= 0) {
        close(c->listener);
        c->listener = -1;
    }
    pthread_cond_broadcast(&c->came);
}

void clv_control_accept(clv_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    clv_pending_connection *room = c->pending;
    int one = 1;
    if (fd < 0) {
        c->accept_paused =
            errno != EAGAIN && errno != EINTR && errno != ECONNABORTED; /* no descriptors: poll would not rest */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int s = 0; s < c->pending_count && room->fd >= 0; s++)
        if (c->pending[s].fd < 0 || c->pending[s].idle_ns > room->idle_ns)
            room = &c->pending[s];
    if (room->fd >= 0)
        clv_pending_connection_close(room);
    *room = (clv_pending_connection){.fd = fd};
}

void clv_control_receive_handshake(clv_control *c, clv_pending_connection *s)
{
    clv_control_handshake mine = {.is = CLV_CONTROL_MAGIC, .from = c->me, .version = CLV_CONTROL_VERSION};
    ssize_t n = recv(s->fd, (char *)&s->hello + s->bytes, sizeof s->hello - s->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        clv_pending_connection_close(s);
        return;
    }
    s->bytes += (size_t)n;
    if (s->bytes < sizeof s->hello)
        return;
    int from = s->hello.from;
    bool known = memcmp(s->hello.is, mine.is, sizeof mine.is) == 0 && s->hello.version == mine.version &&
                 memcmp(s->hello.token, c->token, sizeof c->token) == 0 && from > c->me && from < c->n &&
                 atomic_load(&c->peers[from].state) == CLV_PEER_AWAITED;
    if (known)
        memcpy(mine.token, c->theirs[from], sizeof mine.token);
    if (!known || send(s->fd, &mine, sizeof mine, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof mine) {
        clv_pending_connection_close(s);
        return;
    }
    clv_control_add_peer(c, from, s->fd);
    s->fd = -1;
}
