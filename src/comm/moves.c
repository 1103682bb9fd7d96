/* moves.c - see moves.h. */
#include "comm/moves.h"

#include "tensor/view.h"

bool clv_move_between(clv_shard *box, const clv_parts *parts, int to, int from)
{
    for (int m = to; !parts->reduces && m != from; m = (m + 1) % parts->n)
        if (clv_shard_equal(&parts->in[m], &parts->in[from]))
            return false;
    *box = clv_shard_intersect(&parts->out[to], &parts->in[from]);
    return clv_shard_elems(box) > 0;
}

int clv_moves_takes(clv_move *out, const clv_parts *parts, int me)
{
    int n = 0;

    for (int i = 0; i < parts->n; i++) {
        out[n].peer = (me + i) % parts->n;
        n += clv_move_between(&out[n].box, parts, me, out[n].peer);
    }
    return n;
}

int clv_moves_sends(clv_move *out, const clv_parts *parts, int me)
{
    int n = 0;

    for (int i = 0; i < parts->n; i++) {
        out[n].peer = (me + i) % parts->n;
        n += clv_move_between(&out[n].box, parts, out[n].peer, me);
    }
    return n;
}

bool clv_parts_all_get_all(const clv_parts *parts)
{
    bool all = true;

    for (int m = 0; m < parts->n; m++)
        all = all && clv_shard_equal(&parts->out[m], &parts->in[0]);
    return all;
}
