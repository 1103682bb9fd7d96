/* links.h - what joins the processes of a world, each of which has some of its ranks: a job (job.h), or a stream (a
 * socket) to every other.
 * Messages to ranks of other processes go over them; what comes is given to a function on a thread of the link's own.
 */
#ifndef CLEAVE_COMM_LINKS_H
#define CLEAVE_COMM_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

/* Process p has the ranks [first[p], first[p + 1]). Borrowed until the world is freed; sockets are the caller's to
 * close then. */
typedef struct clv_links {
    int processes, me;
    const int *first;  /* [processes + 1] */
    const int *socket; /* [processes]; that of `me` is not used. NULL: the processes are of a job */
    struct clv_job *job;
    int cores; /* that this process may reckon with; 0: all that it may run on */
} clv_links;

/* What travels ahead of a message's bytes. */
typedef struct clv_frame {
    int32_t kind; /* the users' own */
    int32_t to, set, from;
    uint64_t step, tag;
    int64_t what_bytes; /* of the text behind it */
    int64_t bytes;      /* behind the text */
} clv_frame;

enum { CLV_FRAME_MOST = 1 << 30 /* bytes of a message; more is no frame */ };

typedef struct clv_lines clv_lines;

/* Takes a frame and what is behind it, which it frees; data begins with what_bytes of text. Returns whether the link
 * goes on. */
typedef bool clv_frame_fn(void *arg, int process, const clv_frame *frame, unsigned char *data);
/* The other end is gone; everything that came before was taken. */
typedef void clv_end_fn(void *arg, int process);

/* Starts reading; *out is there before, and NULL on failure. */
clv_status clv_lines_open(clv_lines **out, const clv_links *links, clv_frame_fn *take, clv_end_fn *end, void *arg,
                          clv_error *err);
/* Writes a frame, its text and its bytes whole, from any thread; false when the other end is gone. */
bool clv_lines_send(clv_lines *lines, int process, const clv_frame *frame, const char *what, const void *data);
/* Ends what is read and written; NULL is a no-op. */
void clv_lines_close(clv_lines *lines);

#endif
