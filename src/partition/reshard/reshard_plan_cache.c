/* reshard_plan_cache.c - cache of reshard plans, and the cheapest reshard out of several source layouts. */
#include "base/error.h"
#include "partition/key_cache.h"
#include "partition/reshard/reshard_planner.h"

struct clv_reshard_cache {
    clv_key_cache plans;
    clv_mesh mesh;
    const clv_cost_model *cost;
    bool by_bytes;
};

clv_reshard_cache *clv_reshard_cache_new(clv_arena *arena, const clv_mesh *mesh, const clv_cost_model *cost,
                                         bool by_bytes)
{
    const clv_reshard_cache cache = {
        .plans = {.arena = arena}, .mesh = *mesh, .cost = cost, .by_bytes = by_bytes || cost == NULL};
    return clv_arena_copy(arena, &cache, sizeof cache);
}

clv_status clv_reshard_cache_plan(const clv_reshard_plan **out, clv_reshard_cache *cache, const clv_layout *from,
                                  const clv_layout *to, const int64_t *shape, clv_dtype dtype, clv_error *err)
{
    clv_reshard_plan plan;
    if (from->rank < 0 || from->rank > CLV_MAX_RANK || to->rank != from->rank)
        return clv_fail(err, CLV_ESHAPE, "reshard: from a tensor of %d dimensions to one of %d", from->rank, to->rank);
    if (from->begin[from->rank + 1] > CLV_MAX_SUBAXES || to->begin[to->rank + 1] > CLV_MAX_SUBAXES)
        return clv_fail(err, CLV_EINVAL, "reshard: a layout with more than %d sub-axes", CLV_MAX_SUBAXES);
    clv_key_begin(&cache->plans);
    clv_key_add_layout(&cache->plans, from);
    clv_key_add_layout(&cache->plans, to);
    clv_key_add(&cache->plans, shape, (size_t)from->rank * sizeof *shape);
    clv_key_add(&cache->plans, &dtype, sizeof dtype);
    *out = clv_key_find(&cache->plans);
    if (*out != NULL)
        return CLV_OK;
    CLV_TRY(clv_reshard_plan_make(&plan, cache->plans.arena, &cache->mesh, from, to, shape, dtype, cache->cost,
                                  cache->by_bytes, err));
    *out = clv_key_insert(&cache->plans, &plan, sizeof plan);
    return *out != NULL ? CLV_OK : clv_fail_memory(err, "the cache of reshard plans", sizeof plan);
}

static double score(const clv_reshard_cache *cache, const clv_reshard_plan *plan)
{
    return cache->by_bytes ? plan->bytes : plan->seconds;
}

static bool is_cheaper(const clv_reshard_cache *cache, const clv_reshard_plan *a, const clv_reshard_plan *b)
{
    int order = clv_cost_compare(score(cache, a), score(cache, b));
    if (order != 0)
        return order < 0;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->moves < b->moves || (a->moves == b->moves && a->n_steps < b->n_steps);
}

/* No plan scores less. */
static double least_score(const clv_reshard_cache *cache, const clv_layout *from, const clv_layout *to,
                          const int64_t *shape, clv_dtype dtype)
{
    double bytes = (double)clv_reshard_lower_bound(&cache->mesh, from, to, shape, dtype);
    if (cache->by_bytes || bytes <= 0)
        return bytes;
    return clv_cost_step_seconds_bound(cache->cost, dtype, bytes, 1, 0);
}

clv_status clv_reshard_cache_cheapest(const clv_reshard_plan **out, int *source, clv_reshard_cache *cache,
                                      const clv_layout *const *from, int n, const clv_layout *to, const int64_t *shape,
                                      clv_dtype dtype, clv_error *err)
{
    const clv_reshard_plan *best = NULL;
    for (int k = 0; k < n && (best == NULL || best->n_steps > 0); k++) {
        const clv_reshard_plan *plan;
        if (best != NULL && least_score(cache, from[k], to, shape, dtype) > score(cache, best))
            continue;
        CLV_TRY(clv_reshard_cache_plan(&plan, cache, from[k], to, shape, dtype, err));
        if (best == NULL || is_cheaper(cache, plan, best)) {
            best = plan;
            *source = k;
        }
    }
    *out = best;
    return CLV_OK;
}
