/* stall_diagnosis.h - progress of every rank (current collective, awaited members) and stall diagnosis: which rank is
 * the culprit. Private to src/comm.
 */
#pragma once

#include "comm/world/world.h"

/* A rank's progress, as its process reports it. Collectives are counted over all group sets, which all ranks do alike;
 * "the collective" is the one that the rank is in, or was in last. */
typedef struct clv_rank_progress {
    int32_t rank;
    int32_t group_set;    /* group set of the collective */
    uint64_t begun;       /* number of collectives begun */
    uint64_t collective;  /* index of the collective, from 1 */
    uint64_t waits_begun; /* number of starts and waits of collectives so far */
    uint64_t awaited;     /* members whose messages it awaits in the collective, as bits; 0: none, or the transport
                               sends no messages */
    uint64_t set_begun;   /* number of collectives begun in the group set of the query */
    uint64_t set_tag;     /* tag of the last of these */
    int32_t known;        /* 0: its process did not answer or cannot be asked, and only rank and unresponsive are set */
    int32_t unresponsive; /* 1: its process was asked and did not answer */
    int32_t in_collective;    /* 1: it is in the collective, waiting or moving bytes; these are set then: */
    int32_t transferring;     /*   1: it moves bytes */
    int32_t at_end_barrier;   /*   1: it waits for all members to reach the end */
    int32_t at_local_barrier; /* 1: it has its messages, and waits for the members in its process to have theirs */
    int32_t phase;            /*   index of the phase, where messages come in several phases */
    int32_t idle;             /* 1: it runs nothing */
    char what[32];            /* kind of the collective; "": none yet */
    char activity[96];        /* its op or other activity; "": none */
} clv_rank_progress;

/* The progress of a rank (its number in the world) that this process has; group_set: for set_begun and set_tag. */
clv_rank_progress clv_local_rank_progress(const clv_world *world, int rank, int group_set);

/* The culprit of a timeout. */
typedef struct clv_culprit {
    int rank;           /* -1: nobody is missing any more */
    int undelivered_to; /* >= 0: the culprit went on, but its message to this rank was not delivered; -1: the culprit is
                           behind */
} clv_culprit;

/* Finds the rank that holds up the members of a group for which missing[i] is set: follows who waits for whom to the
 * first rank that is unresponsive or waits for nobody; else finds the sender of an undelivered message; else the first
 * missing member. all: [ranks]; scratch: [ranks]. */
clv_culprit clv_find_culprit(const clv_world *world, const clv_rank_progress *all, const clv_group *group,
                             const bool *missing, bool *scratch);
/* Writes "rank 3 (last in all_gather of group set 1, activity 'layer 2 mlp')"; process: description of its process, "":
 * this one. */
void clv_rank_progress_describe(char *out, size_t size, const clv_rank_progress *s, const char *process);
