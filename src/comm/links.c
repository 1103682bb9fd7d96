/* links.c - see links.h. */
#include "comm/links.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/thread.h"

typedef struct line {
    clv_lines *lines;
    int process;
    bool reading; /* the thread was started */
    pthread_t reader;
    pthread_mutex_t writing;
} line;

struct clv_lines {
    int processes, me;
    int *socket; /* [processes] */
    clv_frame_fn *take;
    clv_end_fn *end;
    void *arg;
    line line[];
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

static bool read_frame(line *l)
{
    clv_lines *lines = l->lines;
    clv_frame frame;
    if (!read_all(lines->socket[l->process], &frame, sizeof frame) || frame.what_bytes < 0 || frame.bytes < 0 ||
        frame.what_bytes > CLV_FRAME_MOST || frame.bytes > CLV_FRAME_MOST)
        return false;
    size_t bytes = (size_t)frame.what_bytes + (size_t)frame.bytes;
    unsigned char *data = malloc(bytes + 1);
    if (!data || !read_all(lines->socket[l->process], data, bytes)) {
        free(data);
        return false;
    }
    return lines->take(lines->arg, l->process, &frame, data);
}

static void *reader_main(void *p)
{
    line *l = p;
    while (read_frame(l))
        continue;
    l->lines->end(l->lines->arg, l->process);
    return NULL;
}

void clv_lines_close(clv_lines *lines)
{
    if (!lines)
        return;
    for (int p = 0; p < lines->processes; p++)
        if (p != lines->me && lines->line[p].reading) {
            shutdown(lines->socket[p], SHUT_RDWR);
            pthread_join(lines->line[p].reader, NULL);
        }
    for (int p = 0; p < lines->processes; p++)
        pthread_mutex_destroy(&lines->line[p].writing);
    free(lines->socket);
    free(lines);
}

clv_status clv_lines_open(clv_lines **out, const clv_links *links, clv_frame_fn *take, clv_end_fn *end, void *arg,
                          clv_error *err)
{
    size_t n = (size_t)links->processes;
    clv_lines *lines = calloc(1, sizeof *lines + n * sizeof *lines->line);
    if (lines)
        lines->socket = malloc(n * sizeof *lines->socket);
    if (!lines || !lines->socket) {
        free(lines);
        return clv_fail_memory(err, "links", n * sizeof *lines->line);
    }
    memcpy(lines->socket, links->socket, n * sizeof *lines->socket);
    lines->processes = links->processes;
    lines->me = links->me;
    lines->take = take;
    lines->end = end;
    lines->arg = arg;
    for (int p = 0; p < links->processes; p++) {
        lines->line[p].lines = lines;
        lines->line[p].process = p;
        pthread_mutex_init(&lines->line[p].writing, NULL);
    }
    *out = lines; /* what a reader takes may be answered at once */
    for (int p = 0; p < links->processes; p++) {
        line *l = &lines->line[p];
        int code = p == links->me ? 0 : clv_thread_start(&l->reader, NULL, reader_main, l);
        if (code != 0) {
            clv_lines_close(lines);
            *out = NULL;
            return clv_fail(err, CLV_ENOMEM, "the thread of a link could not be started: %s", strerror(code));
        }
        l->reading = p != links->me;
    }
    return CLV_OK;
}

bool clv_lines_send(clv_lines *lines, int process, const clv_frame *frame, const char *what, const void *data)
{
    line *l = &lines->line[process];
    int socket = lines->socket[process];
    pthread_mutex_lock(&l->writing);
    bool ok = write_all(socket, frame, sizeof *frame) && write_all(socket, what, (size_t)frame->what_bytes) &&
              write_all(socket, data, (size_t)frame->bytes);
    pthread_mutex_unlock(&l->writing);
    return ok;
}
