/* standing.h - where the ranks of a world stand when a deadline has passed, and which of them is to blame: the one that
 * is behind, and not one that waits for it itself. Private to src/comm. */
#ifndef CLEAVE_COMM_STANDING_H
#define CLEAVE_COMM_STANDING_H

#include "comm/threads.h"

/* A rank, as its process says it. */
typedef struct clv_standing {
    int32_t rank;
    int32_t set;    /* of its last step */
    uint64_t begun; /* steps so far */
    int32_t knows;  /* not 0: the rest is known; 0: its process did not answer, or cannot be asked */
    int32_t silent; /* not 0: its process could be asked, and said nothing */
    int32_t inside; /* not 0: in that step, waiting for others or moving what it has */
    int32_t place;  /* not used */
    char what[32];  /* the step; "": none yet */
    char note[96];  /* the op, or where it is; "": none */
} clv_standing;

/* Of a rank of this process. */
clv_standing clv_standing_of(const clv_world *world, int rank);
/* Who keeps the members of a group for which missing[i] holds: the first rank that is silent, or in no step, along the
 * way of who waits for whom; else the first that is missing. -1: none is. all: [ranks]. scratch: [ranks] */
int clv_standing_blame(const clv_world *world, const clv_standing *all, const clv_group *group, const bool *missing,
                       bool *scratch);
/* "rank 3 (last in all_gather of group set 1, noted 'layer 2 mlp')"; where: the process of another's, or "". */
void clv_standing_describe(char *out, size_t size, const clv_standing *s, const char *where);

#endif
