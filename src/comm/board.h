/* board.h - memory that the processes of one host share, in which ranks show each other what they have.
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
 * All ordering is by release stores and acquire loads of the numbers. */
#ifndef CLEAVE_COMM_BOARD_H
#define CLEAVE_COMM_BOARD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/line.h"
#include "cleave/status.h"

enum {
    CLV_BOARD_SETS = 32,      /* group sets that have cards: the first ones */
    CLV_BOARD_ROOM = 4 << 20, /* bytes of elements on a card */
    CLV_BOARD_WHAT = 96,      /* of a step's name */
};

typedef struct clv_card {
    alignas(CLV_LINE) _Atomic uint32_t number; /* shown last; 0 at first */
    uint64_t tag;
    int64_t bytes;    /* of all elements of the rank's operand, whether they are on the card or not */
    int64_t shown_ns; /* of a step that flies: when, clv_now_ns, which is one clock on a host */
    char what[CLV_BOARD_WHAT];
} clv_card;

typedef struct clv_board_head clv_board_head;

typedef struct clv_board {
    int seats;
    int file;      /* until all have it; -1 then */
    uint64_t name; /* by which the others know it */
    unsigned char *memory;
    size_t bytes;
    clv_board_head *head;
    clv_card *cards;         /* [CLV_BOARD_SETS][seats][2] */
    unsigned char *elements; /* likewise: CLV_BOARD_ROOM each */
    uint32_t *shown;         /* [CLV_BOARD_SETS][seats] of this process: the numbers shown last */
} clv_board;

/* The first process of a host makes it, the others open it. Free with clv_board_free. */
clv_status clv_board_new(clv_board **out, int seats, clv_error *err);
clv_status clv_board_open(clv_board **out, int seats, int64_t pid, int file, uint64_t name, clv_error *err);
/* All have it who are to. */
void clv_board_close(clv_board *board);
void clv_board_free(clv_board *board); /* NULL is a no-op; what the others have stays theirs */

/* The card that a rank of this process is to fill next, and where its elements go. */
clv_card *clv_board_next(const clv_board *board, int set, int seat);
/* Shows it. Returns its number. */
uint32_t clv_board_show(clv_board *board, int set, int seat);
/* A rank's card once it has shown this number; NULL: not yet. */
const clv_card *clv_board_look(const clv_board *board, int set, int seat, uint32_t number);
unsigned char *clv_board_elements(const clv_board *board, const clv_card *card);

/* Tells all of a failure, unless one was told before. */
void clv_board_tell(const clv_board *board, const clv_error *error);
/* Whether one was; out: which. */
bool clv_board_hear(const clv_board *board, clv_error *out);

#endif
