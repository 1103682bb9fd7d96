/* shm_segment.c - shared-memory segment (memfd): creates, maps, publishes and reads slots and the first failure. */
#include "comm/mpi/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"

enum { PAGE = 4096, NAME = 64 };

_Static_assert(sizeof(clv_shm_slot) % CLV_CACHE_LINE == 0, "slots are cache lines apart");
_Static_assert(CLV_SHM_SLOT_BYTES % PAGE == 0, "elements begin a page");

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t slot_count(int ranks)
{
    return (size_t)CLV_SHM_GROUP_SETS * (size_t)ranks * 2;
}

static size_t bytes_of(int ranks)
{
    return pages_of(slot_count(ranks) * sizeof(clv_shm_slot)) + slot_count(ranks) * CLV_SHM_SLOT_BYTES;
}

static void print_name(char *out, uint64_t name)
{
    snprintf(out, NAME, "cleave-%016llx", (unsigned long long)name);
}

static clv_status map(clv_shm_segment **out, int ranks, int file, uint64_t name, clv_error *err)
{
    clv_shm_segment *segment = malloc(sizeof *segment);
    if (!segment)
        return clv_fail_memory(err, "a segment", sizeof *segment);
    *segment = (clv_shm_segment){.ranks = ranks, .file = file, .name = name, .bytes = bytes_of(ranks)};
    segment->published = calloc(slot_count(ranks) / 2, sizeof *segment->published);
    segment->memory =
        segment->published ? mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (segment->memory == MAP_FAILED) {
        free(segment->published);
        free(segment);
        return clv_fail_memory(err, "a segment", bytes_of(ranks));
    }
    (void)madvise(segment->memory, segment->bytes, MADV_DONTDUMP); /* it is large and mostly untouched */
    (void)madvise(segment->memory, segment->bytes, MADV_DONTFORK); /* a child would keep it alive */
    segment->slots = (clv_shm_slot *)(void *)segment->memory;
    segment->elements = (unsigned char *)segment->slots + pages_of(slot_count(ranks) * sizeof *segment->slots);
    *out = segment;
    return CLV_OK;
}

static clv_status fail_system(const char *what, clv_error *err)
{
    return clv_fail(err, CLV_EIO, "memory shared by processes: %s: %s", what, strerror(errno));
}

/* Growing a file beyond the limit raises a signal. */
static bool may_grow(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

clv_status clv_shm_segment_create(clv_shm_segment **out, int ranks, clv_error *err)
{
    char text[NAME];
    uint64_t name = clv_unique_id();
    if (!may_grow(bytes_of(ranks))) {
        errno = EFBIG;
        return fail_system("ulimit -f", err);
    }
    print_name(text, name);
    int file = memfd_create(text, MFD_CLOEXEC);
    if (file < 0)
        return fail_system("memfd_create", err);
    clv_status status =
        ftruncate(file, (off_t)bytes_of(ranks)) == 0 ? map(out, ranks, file, name, err) : fail_system("ftruncate", err);
    if (status != CLV_OK)
        close(file);
    return status;
}

/* Checks what the file number names before it opens it: it may be another file of another process. */
clv_status clv_shm_segment_open(clv_shm_segment **out, int ranks, int64_t pid, int file, uint64_t name, clv_error *err)
{
    char path[NAME], text[NAME], wanted[2 * NAME], found[2 * NAME] = "";
    struct stat is;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, file);
    print_name(text, name);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", text);
    if (readlink(path, found, sizeof found - 1) < 0)
        return fail_system(path, err);
    if (strcmp(found, wanted) != 0)
        return clv_fail(err, CLV_ENOTFOUND, "memory shared by processes: %s is another file", path);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return fail_system(path, err);
    clv_status status = fstat(mine, &is) == 0 && (size_t)is.st_size == bytes_of(ranks)
                            ? map(out, ranks, mine, name, err)
                            : clv_fail(err, CLV_EINVAL, "memory shared by processes: %s has another size", path);
    if (status != CLV_OK)
        close(mine);
    return status;
}

void clv_shm_segment_close_file(clv_shm_segment *segment)
{
    if (segment->file >= 0)
        close(segment->file);
    segment->file = -1;
}

void clv_shm_segment_free(clv_shm_segment *segment)
{
    if (!segment)
        return;
    clv_shm_segment_close_file(segment);
    munmap(segment->memory, segment->bytes);
    free(segment->published);
    free(segment);
}

/* ---- slots ---- */

static size_t index_of(const clv_shm_segment *segment, int group_set, int rank)
{
    return (size_t)group_set * (size_t)segment->ranks + (size_t)rank;
}

static clv_shm_slot *slot_of(const clv_shm_segment *segment, int group_set, int rank, uint32_t number)
{
    return &segment->slots[2 * index_of(segment, group_set, rank) + (number & 1)];
}

clv_shm_slot *clv_shm_next_slot(const clv_shm_segment *segment, int group_set, int rank)
{
    return slot_of(segment, group_set, rank, segment->published[index_of(segment, group_set, rank)] + 1);
}

uint32_t clv_shm_publish_slot(clv_shm_segment *segment, int group_set, int rank)
{
    uint32_t number = ++segment->published[index_of(segment, group_set, rank)];
    atomic_store_explicit(&slot_of(segment, group_set, rank, number)->number, number, memory_order_release);
    return number;
}

const clv_shm_slot *clv_shm_read_slot(const clv_shm_segment *segment, int group_set, int rank, uint32_t number)
{
    const clv_shm_slot *slot = slot_of(segment, group_set, rank, number);
    return atomic_load_explicit(&slot->number, memory_order_acquire) == number ? slot : NULL;
}

unsigned char *clv_shm_slot_elements(const clv_shm_segment *segment, const clv_shm_slot *slot)
{
    return segment->elements + (size_t)(slot - segment->slots) * CLV_SHM_SLOT_BYTES;
}
