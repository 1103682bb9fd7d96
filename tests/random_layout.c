#include "random_layout.h"

#include "unit_test.h"

static uint64_t generator;

void any_seed(uint64_t seed)
{
    generator = seed * 0x9e3779b97f4a7c15u;
}

int64_t any_pick(int64_t n)
{
    generator = generator * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((generator >> 20) % (uint64_t)n);
}

/* Sizes with many divisors are as likely as all others, for they have sub-axes. */
clv_mesh any_mesh(int64_t max_ranks)
{
    static const int64_t round[] = {2, 4, 6, 8, 12, 16, 24, 30, 36, 60};
    clv_mesh mesh = {.n_axes = 1 + (int)any_pick(4)};
    int64_t ranks = 1;
    for (int a = 0; a < mesh.n_axes; a++) {
        int64_t left = max_ranks / ranks,
                size = any_pick(2) ? round[any_pick(10)] : 1 + any_pick(left < 40 ? left : 40);
        if (max_ranks > 400 && any_pick(2))
            size = 1 + any_pick(left);
        mesh.axis[a].name[0] = "wxyz"[a];
        mesh.axis[a].size = size > left ? 1 : size;
        ranks *= mesh.axis[a].size;
    }
    return mesh;
}

int64_t any_divisor(int64_t n)
{
    int64_t divisor = 1;
    for (int tries = 0; tries < 3; tries++) {
        int64_t prime = (const int64_t[]){2, 2, 3, 5}[any_pick(4)];
        if (n / divisor % prime == 0)
            divisor *= prime;
    }
    return n > 0 && any_pick(3) == 0 ? n / divisor : divisor;
}

/* Parts of axes as the most minor of any dimension; unless they nest, those of two layouts may cross. */
clv_layout any_layout(const clv_mesh *mesh, int rank, const int64_t *shape, const int64_t *nested)
{
    clv_layout layout = clv_layout_replicated(rank);
    for (int turn = 0; turn < 2 * mesh->n_axes; turn++) {
        clv_subaxis sub = clv_mesh_whole_axis(mesh, (int)any_pick(mesh->n_axes));
        int64_t size = sub.size;
        if (nested != NULL && any_pick(2)) {
            sub.pre = (int32_t)(any_pick(2) ? nested[sub.axis] : 1);
            sub.size = (int32_t)(sub.pre == 1 ? nested[sub.axis] : size / sub.pre);
        } else if (nested == NULL && any_pick(2)) {
            sub.pre = (int32_t)any_divisor(size);
            sub.size = (int32_t)any_divisor(size / sub.pre);
        }
        if (any_pick(4) > 0)
            (void)clv_layout_shard_dim(&layout, mesh, (int)any_pick(rank), sub, NULL); /* refused if in use */
    }
    for (int d = 0; d < rank; d++)
        if (clv_layout_block_count(&layout, d) > 1 && any_pick(3) == 0)
            layout.alignment[d] = any_divisor(shape[d]);
    assert_int_equal(clv_layout_check(&layout, mesh, shape, NULL), CLV_OK);
    return layout;
}

int64_t any_size(int64_t most)
{
    int64_t size = any_pick(8) == 0 ? any_pick(3) : 1 + any_pick(most);
    return any_pick(2) ? size : (size + 11) / 12 * 12;
}
