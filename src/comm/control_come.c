/* control_come.c - who comes to be connected: see control.h. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control_wire.h"

void clv_control_drop(clv_control_stranger *s)
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

void clv_control_take_stranger(clv_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    clv_control_stranger *room = c->strangers;
    int one = 1;
    if (fd < 0) {
        c->deaf = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED; /* no descriptors: poll would not rest */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int s = 0; s < c->n_strangers && room->fd >= 0; s++)
        if (c->strangers[s].fd < 0 || c->strangers[s].quiet_ns > room->quiet_ns)
            room = &c->strangers[s];
    if (room->fd >= 0)
        clv_control_drop(room);
    *room = (clv_control_stranger){.fd = fd};
}

void clv_control_hear_stranger(clv_control *c, clv_control_stranger *s)
{
    clv_control_hello mine = {.is = CLV_CONTROL_IS, .from = c->me, .version = CLV_CONTROL_VERSION};
    ssize_t n = recv(s->fd, (char *)&s->hello + s->bytes, sizeof s->hello - s->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        clv_control_drop(s);
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
        clv_control_drop(s);
        return;
    }
    clv_control_connected(c, from, s->fd);
    s->fd = -1;
}
