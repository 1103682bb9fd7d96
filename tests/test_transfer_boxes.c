/* test_transfer_boxes.c - boxes of collectives: p sends to q what q receives from p, and the received boxes cover the
 * result once. On random layouts over whole meshes and over groups of sub-axes.
 */
#include <string.h>

#include "comm/transfer_boxes.h"
#include "random_layout.h"
#include "unit_test.h"

enum { CASES = 1500, RANKS = 24 };

typedef struct step {
    clv_mesh mesh;
    int rank;
    int64_t shape[CLV_MAX_RANK], members[RANKS];
    clv_shard in[RANKS], out[RANKS];
    clv_group_shards parts;
} step;

/* Over all ranks, or over some parts of axes. */
static int pick_group(int64_t *members, const clv_mesh *mesh)
{
    clv_subaxis subs[CLV_MAX_AXES];
    int n = 0;
    bool all = any_pick(2);
    for (int a = 0; a < mesh->n_axes; a++) {
        clv_subaxis sub = clv_mesh_whole_axis(mesh, a);
        if (!all && any_pick(2) && sub.size % 2 == 0) {
            sub.pre = 1 + (int32_t)any_pick(2);
            sub.size = sub.pre == 2 ? sub.size / 2 : 2;
        }
        if (all || any_pick(2))
            subs[n++] = sub;
    }
    return (int)clv_mesh_group(members, mesh, subs, n, any_pick(clv_mesh_rank_count(mesh)));
}

static void make(step *s, uint64_t seed)
{
    any_seed(seed);
    *s = (step){.mesh = any_mesh(RANKS), .rank = (int)any_pick(4)};
    for (int d = 0; d < s->rank; d++)
        s->shape[d] = any_pick(6) == 0 ? any_pick(3) : 1 + any_pick(14);
    s->parts = (clv_group_shards){.n = pick_group(s->members, &s->mesh), .in = s->in, .out = s->out};
    clv_layout from = clv_layout_replicated(0), to = from;
    if (s->rank > 0) {
        from = any_layout(&s->mesh, s->rank, s->shape, NULL);
        to = any_layout(&s->mesh, s->rank, s->shape, NULL);
    }
    for (int m = 0; m < s->parts.n; m++) {
        s->in[m] = clv_layout_shard(&from, &s->mesh, s->shape, s->members[m]);
        s->out[m] = clv_layout_shard(&to, &s->mesh, s->shape, s->members[m]);
    }
}

static const clv_transfer_box *find(const clv_transfer_box *moves, int n, int peer)
{
    for (int i = 0; i < n; i++)
        if (moves[i].peer == peer)
            return &moves[i];
    return NULL;
}

static bool equal(const clv_shard *a, const clv_shard *b)
{
    size_t bytes = (size_t)a->rank * sizeof *a->lo;
    return a->rank == b->rank && memcmp(a->lo, b->lo, bytes) == 0 && memcmp(a->hi, b->hi, bytes) == 0;
}

static void ends_agree(const step *s, uint64_t seed)
{
    static clv_transfer_box takes[RANKS];
    clv_shard sent;
    for (int q = 0; q < s->parts.n; q++) {
        int n_takes = clv_list_receive_boxes(takes, &s->parts, q);
        for (int p = 0; p < s->parts.n; p++) {
            const clv_transfer_box *taken = find(takes, n_takes, p);
            bool sends = clv_find_transfer_box(&sent, &s->parts, q, p);
            if (!taken != !sends || (taken && !equal(&taken->box, &sent)))
                fail_msg("case %llu: what member %d sends to %d is not what that takes", (unsigned long long)seed, p,
                         q);
        }
        if (find(takes, n_takes, q) && takes[0].peer != q)
            fail_msg("case %llu: member %d takes its own box late", (unsigned long long)seed, q);
    }
}

static bool holds(const clv_shard *shard, const int64_t *index)
{
    for (int d = 0; d < shard->rank; d++)
        if (index[d] < shard->lo[d] || index[d] >= shard->hi[d])
            return false;
    return true;
}

static int count(const clv_shard *shards, int n, const int64_t *index)
{
    int held = 0;
    for (int i = 0; i < n; i++)
        held += holds(&shards[i], index);
    return held;
}

/* Each element of a result that a member of the group holds is taken once; in a reduction, from all that hold it. */
static void takes_cover(const step *s, uint64_t seed)
{
    static clv_transfer_box takes[RANKS];
    int64_t elems = 1;
    for (int d = 0; d < s->rank; d++)
        elems *= s->shape[d];
    for (int q = 0; q < s->parts.n; q++) {
        int n = clv_list_receive_boxes(takes, &s->parts, q);
        for (int64_t e = 0; e < elems; e++) {
            int64_t index[CLV_MAX_RANK], rest = e;
            for (int d = s->rank - 1; d >= 0; rest /= s->shape[d--])
                index[d] = rest % s->shape[d];
            int taken = 0, held = count(s->in, s->parts.n, index);
            for (int i = 0; i < n; i++)
                taken += holds(&takes[i].box, index);
            int wanted = !holds(&s->out[q], index) ? 0 : s->parts.reduces ? held : held > 0;
            if (taken != wanted)
                fail_msg("case %llu: member %d takes element %lld %d times, not %d", (unsigned long long)seed, q,
                         (long long)e, taken, wanted);
        }
    }
}

/* Blocks of members are of a process, now and then members here and there; each has one, some processes no other. */
static void place_anyhow(int *process, int n)
{
    int processes = 1 + (int)any_pick(n), shuffled = any_pick(4) == 0;
    for (int m = 0; m < n; m++)
        process[m] = shuffled ? (int)any_pick(processes) : m * processes / n;
}

/* What was found of `to` and `from`, which differ, by what the rules say of the two processes. */
static const char *fault_of(const step *s, const int *process, const clv_receive_route *way, int to, int from)
{
    clv_receive_route its, other;
    if (way->from != from || (way->by < 0) != (process[from] == process[to]))
        return "is read by one of another process, or sent inside one";
    if (way->by < 0)
        return NULL;
    if (process[way->by] != process[to] || !clv_find_receive_route(&its, &s->parts, process, way->by, from) ||
        its.by != way->by || !equal(&its.box, &way->box))
        return "is sent to a member that does not take it";
    for (int m = 0; m < s->parts.n; m++) {
        if (process[m] != process[to])
            continue;
        if (!s->parts.reduces && equal(&s->in[m], &s->in[from]))
            return "is sent though one of the process has it";
        for (int f = 0; f < s->parts.n; f++)
            if (clv_find_receive_route(&other, &s->parts, process, m, f) && equal(&other.box, &way->box) &&
                other.by != way->by && (f == from || (!s->parts.reduces && equal(&s->in[f], &s->in[from]))))
                return "is sent to the process twice";
    }
    return NULL;
}

/* By processes members take what they take otherwise, each element as often; and see above. */
static void ways_hold(const step *s, uint64_t seed)
{
    static clv_transfer_box takes[RANKS];
    int process[RANKS];
    place_anyhow(process, s->parts.n);
    for (int to = 0; to < s->parts.n; to++) {
        int64_t taken = 0, by_ways = 0;
        int n = clv_list_receive_boxes(takes, &s->parts, to);
        for (int i = 0; i < n; i++)
            taken += clv_shard_elems(&takes[i].box);
        for (int from = 0; from < s->parts.n; from++) {
            clv_receive_route way;
            if (!clv_find_receive_route(&way, &s->parts, process, to, from))
                continue;
            by_ways += clv_shard_elems(&way.box);
            const char *fault = fault_of(s, process, &way, to, from);
            if (fault)
                fail_msg("case %llu: what member %d takes of %d %s", (unsigned long long)seed, to, from, fault);
        }
        if (taken != by_ways)
            fail_msg("case %llu: member %d takes %lld elements, and by processes %lld", (unsigned long long)seed, to,
                     (long long)taken, (long long)by_ways);
    }
}

static void test_random_layouts(void **state)
{
    static step s;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        make(&s, seed);
        for (int reduces = 0; reduces < 2; reduces++) {
            s.parts.reduces = reduces;
            ends_agree(&s, seed);
            takes_cover(&s, seed);
            ways_hold(&s, seed);
        }
    }
}

/* Of x=2,y=2 where only x cuts: member 3 holds what 2 holds; each takes its own half from itself, the other from the
 * next in turn. */
static void test_replicas(void **state)
{
    const clv_shard a = {.rank = 1, .hi = {3}}, b = {.rank = 1, .lo = {3}, .hi = {5}}, whole = {.rank = 1, .hi = {5}};
    const clv_shard in[] = {a, a, b, b}, out[] = {whole, whole, whole, whole};
    const clv_group_shards parts = {.n = 4, .in = in, .out = out};
    const int from[4][2] = {{0, 2}, {1, 2}, {2, 0}, {3, 0}};
    clv_transfer_box takes[4];
    for (int m = 0; m < 4; m++) {
        assert_int_equal(clv_list_receive_boxes(takes, &parts, m), 2);
        assert_int_equal(takes[0].peer, from[m][0]);
        assert_int_equal(takes[1].peer, from[m][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_layouts), cmocka_unit_test(test_replicas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
