/* socket_mesh.h - framed messages over a stream socket to each other process; which process has which ranks. Messages
 * to ranks of other processes go over them; what comes is given to a function on a thread of the link's own.
 */
#ifndef CLEAVE_COMM_MAILBOX_SOCKET_MESH_H
#define CLEAVE_COMM_MAILBOX_SOCKET_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

/* Process p has the ranks [first[p], first[p + 1]). Borrowed until the world is freed; sockets are the caller's to
 * close then. */
typedef struct clv_process_links {
    int processes, me;
    const int *first;  /* [processes + 1] */
    const int *socket; /* [processes]; that of `me` is not used. NULL: the processes are of a job */
    struct clv_job *job;
    int cores; /* that this process may reckon with; 0: all that it may run on */
} clv_process_links;

/* What travels ahead of a message's bytes. */
typedef struct clv_socket_frame {
    int32_t kind; /* the users' own */
    int32_t to, set, from;
    uint64_t step, tag;
    int64_t what_bytes; /* of the text behind it */
    int64_t bytes;      /* behind the text */
} clv_socket_frame;

enum { CLV_SOCKET_FRAME_MAX_BYTES = 1 << 30 /* bytes of a message; more is no frame */ };

typedef struct clv_socket_mesh clv_socket_mesh;

/* Takes a frame and what is behind it, which it frees; data begins with what_bytes of text. Returns whether the link
 * goes on. */
typedef bool clv_socket_frame_fn(void *arg, int process, const clv_socket_frame *frame, unsigned char *data);
/* The other end is gone; everything that came before was taken. */
typedef void clv_socket_closed_fn(void *arg, int process);

/* Starts reading; *out is there before, and NULL on failure. */
clv_status clv_socket_mesh_open(clv_socket_mesh **out, const clv_process_links *links, clv_socket_frame_fn *take,
                                clv_socket_closed_fn *end, void *arg, clv_error *err);
/* Writes a frame, its text and its bytes whole, from any thread; false when the other end is gone. */
bool clv_socket_mesh_send(clv_socket_mesh *mesh, int process, const clv_socket_frame *frame, const char *what,
                          const void *data);
/* Ends what is read and written; NULL is a no-op. */
void clv_socket_mesh_close(clv_socket_mesh *mesh);

#endif
