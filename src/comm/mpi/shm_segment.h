/* shm_segment.h - shared-memory segment of a host's processes: two slots per rank and group set, and the first
 * failure.
 *
 * **Cards.** Each rank of the host has a seat, and at it two cards for every group set, used in turn. In each step of
 * the set it fills the next one (which step this is, and the elements that others are to have of it), and then shows
 * it: publishes its number, which rises by one a step. The others read it where it is. When all members of a group have
 * shown a number, each may read all of these cards. Nobody shows number n + 2, which is on the card of n, before all
 * have shown n + 1, and so have read n: no second meeting is needed, and what was shown may be changed at once.
 *
 * **The first failure** of any process of the host is there, too, for those that do not hear of it otherwise yet.
 *
 * **The memory** has no name in a file system (memfd): it is gone with the last process that has it, whatever ends
 * these. The others find it in /proc, under the pid of the process that made it, by a number that they are told; where
 * that does not lead to it (other namespaces of processes, other users) they have none. Only what is touched is there.
 * Children by fork do not have it.
 *
 * All ordering is by release stores and acquire loads of the numbers.
 */
#ifndef CLEAVE_COMM_MPI_SHM_SEGMENT_H
#define CLEAVE_COMM_MPI_SHM_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "cleave/status.h"

enum {
    CLV_SHM_GROUP_SETS = 32,      /* group sets that have cards: the first ones */
    CLV_SHM_SLOT_BYTES = 4 << 20, /* bytes of elements on a card */
    CLV_SHM_NAME_BYTES = 96,      /* of a step's name */
};

typedef struct clv_shm_slot {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t number; /* shown last; 0 at first */
    uint64_t tag;
    int64_t bytes;    /* of all elements of the rank's operand, whether they are on the card or not */
    int64_t shown_ns; /* of a step that flies: when, clv_now_ns, which is one clock on a host */
    char what[CLV_SHM_NAME_BYTES];
} clv_shm_slot;

typedef struct clv_shm_header clv_shm_header;

typedef struct clv_shm_segment {
    int seats;
    int file;      /* until all have it; -1 then */
    uint64_t name; /* by which the others know it */
    unsigned char *memory;
    size_t bytes;
    clv_shm_header *head;
    clv_shm_slot *cards;     /* [CLV_SHM_GROUP_SETS][seats][2] */
    unsigned char *elements; /* likewise: CLV_SHM_SLOT_BYTES each */
    uint32_t *shown;         /* [CLV_SHM_GROUP_SETS][seats] of this process: the numbers shown last */
} clv_shm_segment;

/* The first process of a host makes it, the others open it. Free with clv_shm_segment_free. */
clv_status clv_shm_segment_create(clv_shm_segment **out, int seats, clv_error *err);
clv_status clv_shm_segment_open(clv_shm_segment **out, int seats, int64_t pid, int file, uint64_t name, clv_error *err);
/* All have it who are to. */
void clv_shm_segment_close_file(clv_shm_segment *board);
void clv_shm_segment_free(clv_shm_segment *board); /* NULL is a no-op; what the others have stays theirs */

/* The card that a rank of this process is to fill next, and where its elements go. */
clv_shm_slot *clv_shm_next_slot(const clv_shm_segment *board, int set, int seat);
/* Shows it. Returns its number. */
uint32_t clv_shm_publish_slot(clv_shm_segment *board, int set, int seat);
/* A rank's card once it has shown this number; NULL: not yet. */
const clv_shm_slot *clv_shm_read_slot(const clv_shm_segment *board, int set, int seat, uint32_t number);
unsigned char *clv_shm_slot_elements(const clv_shm_segment *board, const clv_shm_slot *card);

/* Tells all of a failure, unless one was told before. */
void clv_shm_publish_failure(const clv_shm_segment *board, const clv_error *error);
/* Whether one was; out: which. */
bool clv_shm_read_failure(const clv_shm_segment *board, clv_error *out);

#endif
