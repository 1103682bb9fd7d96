/* reshard_plan_cache.c - hash table of reshard plans, and the cheapest reshard out of several source layouts. */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "partition/reshard/reshard_planner.h"

/* The layouts' bytes are the key, so they are stored canonically: what lies beyond their lists is zero. */
typedef struct key {
    clv_layout from, to;
    int64_t shape[CLV_MAX_RANK];
    int64_t dtype;
} key;

typedef struct entry {
    uint64_t hash;
    key key;
    clv_reshard_plan plan;
} entry;

struct clv_reshard_cache {
    clv_arena *arena;
    clv_mesh mesh;
    const clv_cost_model *cost;
    bool by_bytes;
    size_t count, capacity; /* a power of two, more than count */
    entry **entries;
};

enum { FIRST_CAPACITY = 256 };

clv_reshard_cache *clv_reshard_cache_new(clv_arena *arena, const clv_mesh *mesh, const clv_cost_model *cost,
                                         bool by_bytes)
{
    clv_reshard_cache *cache = clv_arena_alloc(arena, 1, sizeof *cache);
    if (cache == NULL)
        return NULL;
    cache->arena = arena;
    cache->mesh = *mesh;
    cache->cost = cost;
    cache->by_bytes = by_bytes || cost == NULL;
    cache->capacity = FIRST_CAPACITY;
    cache->entries = clv_arena_alloc(arena, cache->capacity, sizeof(entry *));
    return cache->entries != NULL ? cache : NULL;
}

static void copy_layout(clv_layout *out, const clv_layout *in)
{
    out->rank = in->rank;
    out->reduction = in->reduction;
    memcpy(out->begin, in->begin, (size_t)in->rank + 2);
    memcpy(out->alignment, in->alignment, (size_t)in->rank * sizeof in->alignment[0]);
    memcpy(out->axes, in->axes, in->begin[in->rank + 1] * sizeof in->axes[0]);
}

/* Keys are zeroed before they are filled: bytes between their fields are equal, too. */
static bool same_key(const key *a, const key *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* NOLINT(bugprone-suspicious-memory-comparison) */
}

/* The slot that holds the key, or the free one where it belongs. */
static entry **find(const clv_reshard_cache *cache, const key *k, uint64_t hash)
{
    size_t i = hash & (cache->capacity - 1);
    while (cache->entries[i] != NULL && (cache->entries[i]->hash != hash || !same_key(&cache->entries[i]->key, k)))
        i = (i + 1) & (cache->capacity - 1);
    return &cache->entries[i];
}

static bool grow(clv_reshard_cache *cache)
{
    size_t old_capacity = cache->capacity;
    entry **old = cache->entries, **entries = clv_arena_alloc(cache->arena, 2 * old_capacity, sizeof(entry *));
    if (entries == NULL)
        return false;
    cache->entries = entries;
    cache->capacity *= 2;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i] != NULL)
            *find(cache, &old[i]->key, old[i]->hash) = old[i];
    return true;
}

clv_status clv_reshard_cache_plan(const clv_reshard_plan **out, clv_reshard_cache *cache, const clv_layout *from,
                                  const clv_layout *to, const int64_t *shape, clv_dtype dtype, clv_error *err)
{
    key k;
    if (from->rank < 0 || from->rank > CLV_MAX_RANK || to->rank != from->rank)
        return clv_fail(err, CLV_ESHAPE, "reshard: from a tensor of %d dimensions to one of %d", from->rank, to->rank);
    if (from->begin[from->rank + 1] > CLV_MAX_SUBAXES || to->begin[to->rank + 1] > CLV_MAX_SUBAXES)
        return clv_fail(err, CLV_EINVAL, "reshard: a layout with more than %d sub-axes", CLV_MAX_SUBAXES);
    memset(&k, 0, sizeof k);
    copy_layout(&k.from, from);
    copy_layout(&k.to, to);
    memcpy(k.shape, shape, (size_t)from->rank * sizeof *shape);
    k.dtype = dtype;
    uint64_t hash = clv_hash_bytes(&k, sizeof k);
    entry **slot = find(cache, &k, hash);
    if (*slot == NULL) {
        clv_reshard_plan plan;
        CLV_TRY(clv_reshard_plan_make(&plan, cache->arena, &cache->mesh, from, to, shape, dtype, cache->cost,
                                      cache->by_bytes, err));
        entry *fresh = clv_arena_alloc(cache->arena, 1, sizeof *fresh);
        if (fresh == NULL || (cache->count >= cache->capacity / 2 && !grow(cache)))
            return clv_fail_memory(err, "the cache of reshard plans", sizeof *fresh);
        fresh->hash = hash;
        fresh->key = k;
        fresh->plan = plan;
        slot = find(cache, &k, hash);
        *slot = fresh;
        cache->count++;
    }
    *out = &(*slot)->plan;
    return CLV_OK;
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
    return clv_cost_step_bound(cache->cost, dtype, bytes, 1, false);
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
