/* rank_progress.h - progress of every rank (current collective, whom it awaits) and stall diagnosis: which rank is
 * the culprit. Private to src/comm.
 */
#ifndef CLEAVE_COMM_THREADS_RANK_PROGRESS_H
#define CLEAVE_COMM_THREADS_RANK_PROGRESS_H

#include "comm/threads/world.h"

/* A rank, as its process says it. Steps are counted over all group sets, which all ranks do alike. */
typedef struct clv_rank_progress {
    int32_t rank;
    int32_t set;          /* of the step that it is in, or was last */
    uint64_t begun;       /* steps so far */
    uint64_t step;        /* the one that it is in, or was last: which of these */
    uint64_t waits_begun; /* steps that it began or waited in, at their ends, too, so far */
    uint64_t lacks; /* it waits there for messages of these members, as bits; 0: for none, or for what is not sent */
    uint64_t seq;   /* of the group set that was asked for: steps that it has begun */
    uint64_t tag;   /* the last of these */
    int32_t known;  /* not 0: the rest is known; 0: its process did not answer, or cannot be asked */
    int32_t unresponsive; /* not 0: its process could be asked, and said nothing */
    int32_t inside;       /* not 0: in that step, waiting for others or moving what it has */
    int32_t transferring; /* not 0: then: the latter */
    int32_t ends;         /* not 0: then: it waits at the end, for all to have come there */
    int32_t meets;        /* not 0: then: it has got its messages, and waits for those of its process to have theirs */
    int32_t part;         /* then: of its messages, which come in parts one after another */
    int32_t idle;         /* not 0: it runs nothing */
    char what[32];        /* the step; "": none yet */
    char note[96];        /* the op, or where it is; "": none */
} clv_rank_progress;

/* Of a rank of this process; set: that is asked for. */
clv_rank_progress clv_rank_progress_read(const clv_world *world, int rank, int set);

/* Who is to blame. */
typedef struct clv_culprit {
    int rank;           /* -1: nobody is missing any more */
    int undelivered_to; /* it has gone on, and nothing of it has come to this rank, which waits for it; -1: it is behind
                           */
} clv_culprit;

/* Who keeps the members of a group for which missing[i] holds: the first rank that is unresponsive, or waits for none,
 * along the way of who waits for whom; else who sent what did not come; else the first that is missing. all: [ranks].
 * scratch: [ranks] */
clv_culprit clv_find_culprit(const clv_world *world, const clv_rank_progress *all, const clv_group *group,
                             const bool *missing, bool *scratch);
/* "rank 3 (last in all_gather of group set 1, noted 'layer 2 mlp')"; where: the process of another's, or "". */
void clv_rank_progress_describe(char *out, size_t size, const clv_rank_progress *s, const char *where);

#endif
