/* test_reshard_volume.c - clv_layout_max_received_elems against all ranks, on random meshes and layouts; and that
 * meshes of 2^31 ranks take no longer. CLV_SEED and CLV_CASES choose other cases. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "random_layout.h"
#include "tensor/reshard_volume.h"
#include "unit_test.h"

enum { CASES = 20000, MAX_RANKS = 400, MOST_SECONDS = 5 };

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoll(text) : otherwise;
}

static int64_t by_force(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh, const int64_t *shape)
{
    int64_t most = 0;
    for (int64_t rank = 0; rank < clv_mesh_rank_count(mesh); rank++) {
        clv_shard a = clv_layout_shard(to, mesh, shape, rank), b = clv_layout_shard(from, mesh, shape, rank);
        clv_shard both = clv_shard_intersect(&a, &b);
        int64_t lacks = clv_shard_elems(&a) - clv_shard_elems(&both);
        most = lacks > most ? lacks : most;
    }
    return most;
}

static void describe(char *out, size_t size, const clv_mesh *mesh, const clv_layout *to, const clv_layout *from,
                     const int64_t *shape)
{
    char mesh_text[256], a[CLV_LAYOUT_TEXT], b[CLV_LAYOUT_TEXT];
    clv_mesh_print(mesh_text, sizeof mesh_text, mesh);
    clv_layout_print(a, sizeof a, to, mesh);
    clv_layout_print(b, sizeof b, from, mesh);
    int n = snprintf(out, size, "mesh %s to %s from %s, shape", mesh_text, a, b);
    for (int d = 0; d < to->rank; d++)
        n += snprintf(out + n, size - (size_t)n, " %lld", (long long)shape[d]);
}

static void random_layouts_agree_with_all_ranks(void **state)
{
    int64_t seed = setting("CLV_SEED", 1), cases = setting("CLV_CASES", CASES);
    char text[4096];
    for (int64_t i = 0; i < cases; i++) {
        any_seed((uint64_t)(seed + i));
        clv_mesh mesh = any_mesh(MAX_RANKS);
        int rank = 1 + (int)any_pick(4);
        int64_t shape[CLV_MAX_RANK];
        for (int d = 0; d < rank; d++)
            shape[d] = any_size(any_pick(4) == 0 ? 400 : 30);
        clv_layout to = any_layout(&mesh, rank, shape, NULL), from = any_layout(&mesh, rank, shape, NULL);
        int64_t expected = by_force(&to, &from, &mesh, shape);
        int64_t found = clv_layout_max_received_elems(&to, &from, &mesh, shape);
        describe(text, sizeof text, &mesh, &to, &from, shape);
        if (found != expected)
            fail_msg("CLV_SEED=%lld: %s: %lld, by all ranks %lld", (long long)(seed + i), text, (long long)found,
                     (long long)expected);
    }
}

/* Blocks are equal wherever alignments allow it: the closed form, where it answers, and what answers otherwise. */
static void equal_blocks_agree_with_all_ranks(void **state)
{
    int64_t seed = setting("CLV_SEED", 1), cases = setting("CLV_CASES", CASES) / 4, closed = 0, none = 0;
    char text[4096];
    for (int64_t i = 0; i < cases; i++) {
        any_seed((uint64_t)(seed + i));
        clv_mesh mesh = any_mesh(MAX_RANKS);
        int rank = 1 + (int)any_pick(4);
        int64_t shape[CLV_MAX_RANK], parts[CLV_MAX_AXES];
        for (int d = 0; d < rank; d++)
            shape[d] = clv_mesh_rank_count(&mesh) * (1 + any_pick(4));
        for (int a = 0; a < mesh.n_axes; a++)
            parts[a] = any_divisor(mesh.axis[a].size);
        const int64_t *nested = any_pick(2) ? parts : NULL;
        clv_layout to = any_layout(&mesh, rank, shape, nested), from = any_layout(&mesh, rank, shape, nested);
        int64_t expected = by_force(&to, &from, &mesh, shape), even = clv_max_received_elems_even(&to, &from, shape);
        describe(text, sizeof text, &mesh, &to, &from, shape);
        if (clv_layout_max_received_elems(&to, &from, &mesh, shape) != expected || (even >= 0 && even != expected))
            fail_msg("CLV_SEED=%lld: %s: %lld, in closed form %lld, by all ranks %lld", (long long)(seed + i), text,
                     (long long)clv_layout_max_received_elems(&to, &from, &mesh, shape), (long long)even,
                     (long long)expected);
        closed += even >= 0;
        none += even > 0 && even == clv_layout_max_elems(&to, shape);
    }
    assert_true(cases == 1 || (closed > cases / 4 && none > cases / 20 && closed < cases));
}

/* There is nothing to compare with; but visiting 2^31 ranks takes a minute. */
static void large_meshes_take_no_longer(void **state)
{
    int64_t seed = setting("CLV_SEED", 1), cases = setting("CLV_CASES", CASES) / 10;
    char text[4096];
    for (int64_t i = 0; i < cases; i++) {
        any_seed((uint64_t)(seed + i));
        clv_mesh mesh = any_mesh(INT32_MAX);
        int rank = 1 + (int)any_pick(4);
        int64_t shape[CLV_MAX_RANK], parts[CLV_MAX_AXES];
        for (int d = 0; d < rank; d++)
            shape[d] = any_size((int64_t)1 << any_pick(60 / rank));
        for (int a = 0; a < mesh.n_axes; a++)
            parts[a] = any_divisor(mesh.axis[a].size);
        clv_layout to = any_layout(&mesh, rank, shape, parts), from = any_layout(&mesh, rank, shape, parts);
        clock_t began = clock();
        int64_t found = clv_max_received_elems(&to, &from, &mesh, shape);
        double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
        describe(text, sizeof text, &mesh, &to, &from, shape);
        assert_in_range(found, 0, clv_layout_max_elems(&to, shape));
        if (seconds > MOST_SECONDS)
            fail_msg("CLV_SEED=%lld: %s: %g s", (long long)(seed + i), text, seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_agree_with_all_ranks),
        cmocka_unit_test(equal_blocks_agree_with_all_ranks),
        cmocka_unit_test(large_meshes_take_no_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
