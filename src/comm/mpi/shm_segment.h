/* shm_segment.h - shared-memory segment of a host's processes: two slots per rank and group set.
 *
 * **Slots.** Each rank of the host has an index in the segment, and two slots for every group set, used in turn. In
 * each collective of the set it fills the next one (the collective's name and the elements that others need), and then
 * publishes it by storing its number, which rises by one per collective. The others read the slot in place. When all
 * members of a group have published a number, each may read all of these slots. No rank publishes number n + 2, which
 * uses the slot of n, before all have published n + 1, and so have read n: no second barrier is needed, and the operand
 * may be changed at once.
 *
 * **The memory** has no name in a file system (memfd): it is freed with the last process that maps it, however the
 * processes end. The others open it in /proc under the pid of the process that made it, by the file number that this
 * process sends them; where that fails (other pid namespaces, other users) they have none. Only touched pages exist.
 * Children made by fork do not have it.
 *
 * All ordering is by release stores and acquire loads of the numbers.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "cleave/status.h"

enum {
    CLV_SHM_GROUP_SETS = 32,      /* the first so many group sets have slots */
    CLV_SHM_SLOT_BYTES = 4 << 20, /* bytes of elements in a slot */
    CLV_SHM_NAME_BYTES = 96,      /* bytes of a collective's name */
};

typedef struct clv_shm_slot {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t number; /* published last; 0 at first */
    uint64_t tag;
    int64_t bytes;        /* of the rank's whole operand, whether its elements are in the slot or not */
    int64_t published_ns; /* of an overlapped collective: clv_now_ns, which is one clock on a host */
    char what[CLV_SHM_NAME_BYTES];
} clv_shm_slot;

typedef struct clv_shm_segment {
    int ranks;
    int file;      /* closed (-1) once all processes have mapped it */
    uint64_t name; /* random; proves to the others that they open the right file */
    unsigned char *memory;
    size_t bytes;
    clv_shm_slot *slots;     /* [CLV_SHM_GROUP_SETS][ranks][2] */
    unsigned char *elements; /* the same, CLV_SHM_SLOT_BYTES each */
    uint32_t *published;     /* [CLV_SHM_GROUP_SETS][ranks] numbers published last; private to this process */
} clv_shm_segment;

/* The first process of a host creates the segment, the others open it. Free with clv_shm_segment_free. */
clv_status clv_shm_segment_create(clv_shm_segment **out, int ranks, clv_error *err);
clv_status clv_shm_segment_open(clv_shm_segment **out, int ranks, int64_t pid, int file, uint64_t name, clv_error *err);
/* Closes the file, so that nobody can open it any more; the mapping stays. */
void clv_shm_segment_close_file(clv_shm_segment *segment);
void clv_shm_segment_free(clv_shm_segment *segment); /* NULL is a no-op; other processes keep theirs */

/* The slot that a rank of this process must fill next. */
clv_shm_slot *clv_shm_next_slot(const clv_shm_segment *segment, int group_set, int rank);
/* Publishes it. Returns its number. */
uint32_t clv_shm_publish_slot(clv_shm_segment *segment, int group_set, int rank);
/* A rank's slot with this number; NULL: not published yet. */
const clv_shm_slot *clv_shm_read_slot(const clv_shm_segment *segment, int group_set, int rank, uint32_t number);
/* The elements of a slot. */
unsigned char *clv_shm_slot_elements(const clv_shm_segment *segment, const clv_shm_slot *slot);
