/* socket_mesh.c - sends frames over sockets to other processes; one reader thread per socket. */
#include "socket_mesh.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/threads/thread.h"

typedef struct connection {
    socket_mesh *mesh;
    int process;
    bool started; /* the reader thread */
    pthread_t reader;
    pthread_mutex_t writing;
} connection;

struct socket_mesh {
    int processes, me;
    int *socket; /* [processes] */
    socket_frame_fn *on_frame;
    socket_closed_fn *on_close;
    void *arg;
    connection connection[];
};

static bool read_all(int socket, void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(socket, (char *)out + done, bytes - done, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool write_all(int socket, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool read_frame(connection *c)
{
    socket_mesh *mesh = c->mesh;
    socket_frame frame;
    if (!read_all(mesh->socket[c->process], &frame, sizeof frame) || frame.what_bytes < 0 || frame.bytes < 0 ||
        frame.what_bytes > SOCKET_FRAME_MAX_BYTES || frame.bytes > SOCKET_FRAME_MAX_BYTES)
        return false;
    size_t bytes = (size_t)frame.what_bytes + (size_t)frame.bytes;
    unsigned char *data = malloc(bytes + 1);
    if (!data || !read_all(mesh->socket[c->process], data, bytes)) {
        free(data);
        return false;
    }
    return mesh->on_frame(mesh->arg, c->process, &frame, data);
}

static void *reader_main(void *p)
{
    connection *c = p;
    while (read_frame(c))
        continue;
    c->mesh->on_close(c->mesh->arg, c->process);
    return NULL;
}

void socket_mesh_close(socket_mesh *mesh)
{
    if (!mesh)
        return;
    for (int p = 0; p < mesh->processes; p++)
        if (p != mesh->me && mesh->connection[p].started) {
            shutdown(mesh->socket[p], SHUT_RDWR);
            pthread_join(mesh->connection[p].reader, NULL);
        }
    for (int p = 0; p < mesh->processes; p++)
        pthread_mutex_destroy(&mesh->connection[p].writing);
    free(mesh->socket);
    free(mesh);
}

clv_status socket_mesh_open(socket_mesh **out, const clv_process_links *links, socket_frame_fn *on_frame,
                            socket_closed_fn *on_close, void *arg, clv_error *err)
{
    size_t n = (size_t)links->processes;
    socket_mesh *mesh = calloc(1, sizeof *mesh + n * sizeof *mesh->connection);
    if (mesh)
        mesh->socket = malloc(n * sizeof *mesh->socket);
    if (!mesh || !mesh->socket) {
        free(mesh);
        return clv_fail_memory(err, "connections", n * sizeof *mesh->connection);
    }
    memcpy(mesh->socket, links->sockets, n * sizeof *mesh->socket);
    mesh->processes = links->processes;
    mesh->me = links->me;
    mesh->on_frame = on_frame;
    mesh->on_close = on_close;
    mesh->arg = arg;
    for (int p = 0; p < links->processes; p++) {
        mesh->connection[p].mesh = mesh;
        mesh->connection[p].process = p;
        pthread_mutex_init(&mesh->connection[p].writing, NULL);
    }
    *out = mesh; /* a reader may answer a frame at once */
    for (int p = 0; p < links->processes; p++) {
        connection *c = &mesh->connection[p];
        int code = p == links->me ? 0 : clv_thread_start(&c->reader, NULL, reader_main, c);
        if (code != 0) {
            socket_mesh_close(mesh);
            *out = NULL;
            return clv_fail(err, CLV_ENOMEM, "the thread of a connection could not be started: %s", strerror(code));
        }
        c->started = p != links->me;
    }
    return CLV_OK;
}

bool socket_mesh_send(socket_mesh *mesh, int process, const socket_frame *frame, const char *what, const void *data)
{
    connection *c = &mesh->connection[process];
    int socket = mesh->socket[process];
    pthread_mutex_lock(&c->writing);
    bool ok = write_all(socket, frame, sizeof *frame) && write_all(socket, what, (size_t)frame->what_bytes) &&
              write_all(socket, data, (size_t)frame->bytes);
    pthread_mutex_unlock(&c->writing);
    return ok;
}
