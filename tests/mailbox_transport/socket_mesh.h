/* socket_mesh.h - framed messages over a stream socket to each other process. A reader thread per socket passes
 * received frames to a function.
 */
#ifndef SOCKET_MESH_H
#define SOCKET_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"
#include "comm/comm.h"

/* Header of a frame. */
typedef struct socket_frame {
    int32_t kind; /* defined by the caller */
    int32_t to, group_set, from;
    uint64_t step, tag;
    int64_t what_bytes; /* of the text after it */
    int64_t bytes;      /* after the text */
} socket_frame;

enum { SOCKET_FRAME_MAX_BYTES = 1 << 30 /* largest frame */ };

typedef struct socket_mesh socket_mesh;

/* Called with a frame and its data (what_bytes of text first), which it frees. Returns false to close the connection.
 * */
typedef bool socket_frame_fn(void *arg, int process, const socket_frame *frame, unsigned char *data);
/* Called when the other end has closed, after all its frames. */
typedef void socket_closed_fn(void *arg, int process);

/* Starts the reader threads; *out is set before they run, and NULL on failure. */
clv_status socket_mesh_open(socket_mesh **out, const clv_process_links *links, socket_frame_fn *on_frame,
                            socket_closed_fn *on_close, void *arg, clv_error *err);
/* Sends a frame with its text and data, from any thread; false: the other end has closed. */
bool socket_mesh_send(socket_mesh *mesh, int process, const socket_frame *frame, const char *what, const void *data);
/* Closes the connections; NULL is a no-op. */
void socket_mesh_close(socket_mesh *mesh);

#endif
