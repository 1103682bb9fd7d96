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

enum { PAGE = 4096, NAME = 64, NOT_TOLD = 0, PUBLISHING, PUBLISHED };

struct clv_shm_header {
    alignas(CLV_CACHE_LINE) _Atomic int state; /* of the failure */
    clv_error failure;
};

_Static_assert(sizeof(clv_shm_slot) % CLV_CACHE_LINE == 0, "cards lie lines apart");
_Static_assert(CLV_SHM_SLOT_BYTES % PAGE == 0, "elements begin a page");

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t cards_of(int seats)
{
    return (size_t)CLV_SHM_GROUP_SETS * (size_t)seats * 2;
}

static size_t bytes_of(int seats)
{
    return pages_of(sizeof(clv_shm_header)) + pages_of(cards_of(seats) * sizeof(clv_shm_slot)) +
           cards_of(seats) * CLV_SHM_SLOT_BYTES;
}

static void print_name(char *out, uint64_t name)
{
    snprintf(out, NAME, "cleave-%016llx", (unsigned long long)name);
}

static clv_status map(clv_shm_segment **out, int seats, int file, uint64_t name, clv_error *err)
{
    clv_shm_segment *board = malloc(sizeof *board);
    if (!board)
        return clv_fail_memory(err, "a board", sizeof *board);
    *board = (clv_shm_segment){.seats = seats, .file = file, .name = name, .bytes = bytes_of(seats)};
    board->shown = calloc(cards_of(seats) / 2, sizeof *board->shown);
    board->memory = board->shown ? mmap(NULL, board->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (board->memory == MAP_FAILED) {
        free(board->shown);
        free(board);
        return clv_fail_memory(err, "a board", bytes_of(seats));
    }
    (void)madvise(board->memory, board->bytes, MADV_DONTDUMP); /* it is large, and mostly not there */
    (void)madvise(board->memory, board->bytes, MADV_DONTFORK); /* a child would keep it when all processes are gone */
    board->head = (clv_shm_header *)(void *)board->memory;
    board->cards = (clv_shm_slot *)(void *)(board->memory + pages_of(sizeof *board->head));
    board->elements = (unsigned char *)board->cards + pages_of(cards_of(seats) * sizeof *board->cards);
    *out = board;
    return CLV_OK;
}

static clv_status fail_system(const char *what, clv_error *err)
{
    return clv_fail(err, CLV_EIO, "memory shared by processes: %s: %s", what, strerror(errno));
}

/* Growing a file beyond the limit is a signal. */
static bool may_grow(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

clv_status clv_shm_segment_create(clv_shm_segment **out, int seats, clv_error *err)
{
    char text[NAME];
    uint64_t name = clv_unique_id();
    if (!may_grow(bytes_of(seats))) {
        errno = EFBIG;
        return fail_system("ulimit -f", err);
    }
    print_name(text, name);
    int file = memfd_create(text, MFD_CLOEXEC);
    if (file < 0)
        return fail_system("memfd_create", err);
    clv_status status =
        ftruncate(file, (off_t)bytes_of(seats)) == 0 ? map(out, seats, file, name, err) : fail_system("ftruncate", err);
    if (status != CLV_OK)
        close(file);
    return status;
}

/* What is under that number is looked at before it is opened: it may be another process's, and anything. */
clv_status clv_shm_segment_open(clv_shm_segment **out, int seats, int64_t pid, int file, uint64_t name, clv_error *err)
{
    char path[NAME], text[NAME], wanted[2 * NAME], found[2 * NAME] = "";
    struct stat is;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, file);
    print_name(text, name);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", text);
    if (readlink(path, found, sizeof found - 1) < 0)
        return fail_system(path, err);
    if (strcmp(found, wanted) != 0)
        return clv_fail(err, CLV_ENOTFOUND, "memory shared by processes: %s is something else", path);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return fail_system(path, err);
    clv_status status = fstat(mine, &is) == 0 && (size_t)is.st_size == bytes_of(seats)
                            ? map(out, seats, mine, name, err)
                            : clv_fail(err, CLV_EINVAL, "memory shared by processes: %s has another size", path);
    if (status != CLV_OK)
        close(mine);
    return status;
}

void clv_shm_segment_close_file(clv_shm_segment *board)
{
    if (board->file >= 0)
        close(board->file);
    board->file = -1;
}

void clv_shm_segment_free(clv_shm_segment *board)
{
    if (!board)
        return;
    clv_shm_segment_close_file(board);
    munmap(board->memory, board->bytes);
    free(board->shown);
    free(board);
}

/* ---- cards ---- */

static size_t place_of(const clv_shm_segment *board, int set, int seat)
{
    return (size_t)set * (size_t)board->seats + (size_t)seat;
}

static clv_shm_slot *card_of(const clv_shm_segment *board, int set, int seat, uint32_t number)
{
    return &board->cards[2 * place_of(board, set, seat) + (number & 1)];
}

clv_shm_slot *clv_shm_next_slot(const clv_shm_segment *board, int set, int seat)
{
    return card_of(board, set, seat, board->shown[place_of(board, set, seat)] + 1);
}

uint32_t clv_shm_publish_slot(clv_shm_segment *board, int set, int seat)
{
    uint32_t number = ++board->shown[place_of(board, set, seat)];
    atomic_store_explicit(&card_of(board, set, seat, number)->number, number, memory_order_release);
    return number;
}

const clv_shm_slot *clv_shm_read_slot(const clv_shm_segment *board, int set, int seat, uint32_t number)
{
    const clv_shm_slot *card = card_of(board, set, seat, number);
    return atomic_load_explicit(&card->number, memory_order_acquire) == number ? card : NULL;
}

unsigned char *clv_shm_slot_elements(const clv_shm_segment *board, const clv_shm_slot *card)
{
    return board->elements + (size_t)(card - board->cards) * CLV_SHM_SLOT_BYTES;
}

/* ---- the first failure ---- */

void clv_shm_publish_failure(const clv_shm_segment *board, const clv_error *error)
{
    int before = NOT_TOLD;
    if (!atomic_compare_exchange_strong_explicit(&board->head->state, &before, PUBLISHING, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    board->head->failure = *error;
    atomic_store_explicit(&board->head->state, PUBLISHED, memory_order_release);
}

bool clv_shm_read_failure(const clv_shm_segment *board, clv_error *out)
{
    if (atomic_load_explicit(&board->head->state, memory_order_acquire) != PUBLISHED)
        return false;
    *out = board->head->failure;
    out->op[sizeof out->op - 1] = out->message[sizeof out->message - 1] = '\0';
    return true;
}
