/* transfer_boxes.h - which boxes each member of a group sends and receives in a collective, computed from shards
 * alone. One rule says both, so that either end knows them without asking the other.
 */
#ifndef CLEAVE_COMM_TRANSFER_BOXES_H
#define CLEAVE_COMM_TRANSFER_BOXES_H

#include <stdbool.h>

#include "cleave/layout.h"

/* Each member's shard of the operand and of the result. The operand's are those of one layout, so any two are the same
 * or have no element in common. */
typedef struct clv_group_shards {
    int n;                     /* members */
    bool reduces;              /* results are combined of all members' values; else each element comes from one */
    const clv_shard *in, *out; /* [n] */
} clv_group_shards;

/* A box sent to, or taken from, a member of the group. */
typedef struct clv_transfer_box {
    int peer;
    clv_shard box;
} clv_transfer_box;

/* Whether member `to` takes anything from member `from`, and which box. Of members that hold the same shard it takes
 * from the first in turn after itself; itself first. */
bool clv_find_transfer_box(clv_shard *box, const clv_group_shards *parts, int to, int from);

/* Fills out[n] with the moves that are not empty and returns their number. Takes are in turn, own box first. */
int clv_list_receive_boxes(clv_transfer_box *out, const clv_group_shards *parts, int me);
int clv_list_send_boxes(clv_transfer_box *out, const clv_group_shards *parts, int me);

/* How a member gets what it takes of another, where members of one process read each other's memory. */
typedef struct clv_receive_route {
    int from; /* whose operand it is of */
    int by;   /* the member that it is sent to: the taker, or another of its process; -1: none, the operand is read */
    clv_shard box;
} clv_receive_route;

/* Whether member `to` takes anything of `from`, and how; process[m] has member m. Of members that hold the same shard
 * it takes from the first in turn after itself in its process; itself first. A shard that nobody there has comes from
 * one member for all of them, and what several take alike comes once. */
bool clv_find_receive_route(clv_receive_route *out, const clv_group_shards *parts, const int *process, int to,
                            int from);

/* Of a step that reduces: whether all members get all of it. */
bool clv_group_shards_is_all_reduce(const clv_group_shards *parts);

#endif
