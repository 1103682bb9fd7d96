/* control_send.c - sends frames on control connections without blocking (output buffers, broadcast, wake-up). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/control/control_internal.h"
#include "comm/mpi/mpi_world.h"

enum { MISSED_HEARTBEATS = 4 /* that did not come */ };

void clv_control_flush(clv_control_peer *peer)
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

bool clv_control_reserve(unsigned char **data, size_t *room, size_t bytes)
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

void clv_control_send(clv_control_peer *peer, clv_control_frame_kind what, uint64_t world, const void *data,
                      size_t bytes)
{
    const clv_control_frame f = {.kind = what, .bytes = (uint32_t)bytes, .world = world};
    size_t all = peer->out_bytes + sizeof f + bytes;
    if (peer->fd < 0 || (what == CLV_FRAME_HEARTBEAT && peer->out_bytes > 0) ||
        !clv_control_reserve(&peer->out, &peer->out_room, all))
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
    (void)!write(c->wake, &one, sizeof one);
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
