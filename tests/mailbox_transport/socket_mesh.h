/* socket_mesh.h - framed messages over a stream socket to each other process; which process has which ranks. Messages
 * to ranks of other processes go over them; what comes is given to a function on a thread of the link's own.
 */
#ifndef SOCKET_MESH_H
#define SOCKET_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"
#include "comm/comm.h"

/* What travels ahead of a message's bytes. */
typedef struct socket_frame {
    int32_t kind; /* the users' own */
    int32_t to, set, from;
    uint64_t step, tag;
    int64_t what_bytes; /* of the text behind it */
    int64_t bytes;      /* behind the text */
} socket_frame;

enum { SOCKET_FRAME_MAX_BYTES = 1 << 30 /* bytes of a message; more is no frame */ };

typedef struct socket_mesh socket_mesh;

/* Takes a frame and what is behind it, which it frees; data begins with what_bytes of text. Returns whether the link
 * goes on. */
typedef bool socket_frame_fn(void *arg, int process, const socket_frame *frame, unsigned char *data);
/* The other end is gone; everything that came before was taken. */
typedef void socket_closed_fn(void *arg, int process);

/* Starts reading; *out is there before, and NULL on failure. */
clv_status socket_mesh_open(socket_mesh **out, const clv_process_links *links, socket_frame_fn *take,
                            socket_closed_fn *end, void *arg, clv_error *err);
/* Writes a frame, its text and its bytes whole, from any thread; false when the other end is gone. */
bool socket_mesh_send(socket_mesh *mesh, int process, const socket_frame *frame, const char *what, const void *data);
/* Ends what is read and written; NULL is a no-op. */
void socket_mesh_close(socket_mesh *mesh);

#endif
