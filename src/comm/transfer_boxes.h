/* transfer_boxes.h - which boxes each member of a group sends and receives in a collective, computed from shards alone.
 * Sender and receiver follow the same rule, so neither has to ask the other.
 */
#pragma once

#include "cleave/layout.h"

/* Each member's shard of the operand and of the result. The operand's shards follow one layout, so any two of them are
 * equal or disjoint. */
typedef struct clv_group_shards {
    int n;                     /* number of members */
    bool reduces;              /* results combine all members' values; else each element comes from one member */
    const clv_shard *in, *out; /* [n] */
} clv_group_shards;

/* A box that is sent to, or received from, a member of the group. */
typedef struct clv_transfer_box {
    int peer;
    clv_shard box;
} clv_transfer_box;

/* Finds the box that member `to` receives from member `from`; false: none. Of members with the same shard it receives
 * from the first at or after itself, cyclically. */
bool clv_find_transfer_box(clv_shard *box, const clv_group_shards *parts, int to, int from);

/* Fills out[n] with the boxes that this member receives and that are not empty, its own first, then those of the other
 * members in cyclic order, and returns their number. */
int clv_list_receive_boxes(clv_transfer_box *out, const clv_group_shards *parts, int me);

/* How a member gets a box of another member, where members of one process read each other's memory. */
typedef struct clv_receive_route {
    int from; /* the member whose operand holds the box */
    int by;   /* the member that it is sent to: the receiver itself or another of its process; -1: it is not sent, the
                 receiver reads the operand */
    clv_shard box;
} clv_receive_route;

/* Finds the route by which member `to` gets its box of `from`; false: it gets none. process[m] is member m's process.
 * Of members with the same shard, `to` reads from the first at or after itself (cyclically) in its own process. A shard
 * that no member there has is sent by one member for all of them, and a box that several of them need is sent once. */
bool clv_find_receive_route(clv_receive_route *out, const clv_group_shards *parts, const int *process, int to,
                            int from);

/* Whether a reduction gives all members the whole result. */
bool clv_group_shards_is_all_reduce(const clv_group_shards *parts);
