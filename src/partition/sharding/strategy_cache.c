/* strategy_cache.c - cache of chosen strategies keyed by op and layouts: a repeated layer is solved once. */
#include "partition/sharding/strategy_cache.h"

#include <string.h>

#include "base/hash.h"
#include "base/error.h"

enum { BUCKETS = 1024 };

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    size_t key_size;
    const void *key;
    clv_strategy strategy;
} entry;

struct clv_strategy_cache {
    clv_arena *arena;
    entry *bucket[BUCKETS];
    unsigned char *key; /* scratch, grown as needed */
    size_t key_size, key_capacity;
};

clv_strategy_cache *clv_strategy_cache_new(clv_arena *arena)
{
    clv_strategy_cache *memo = clv_arena_alloc(arena, 1, sizeof *memo);
    if (memo)
        memo->arena = arena;
    return memo;
}

static bool append(clv_strategy_cache *memo, const void *bytes, size_t size)
{
    if (memo->key_size + size > memo->key_capacity) {
        size_t capacity = 2 * (memo->key_size + size) + 4096;
        unsigned char *grown = clv_arena_alloc(memo->arena, capacity, 1);
        if (!grown)
            return false;
        if (memo->key_size)
            memcpy(grown, memo->key, memo->key_size);
        memo->key = grown;
        memo->key_capacity = capacity;
    }
    if (size)
        memcpy(memo->key + memo->key_size, bytes, size);
    memo->key_size += size;
    return true;
}

/* A layout by its parts that mean something, so that bytes past them never differ. */
static bool append_layout(clv_strategy_cache *memo, const clv_layout *layout)
{
    size_t n_axes = layout->begin[layout->rank + 1];
    return append(memo, &layout->rank, sizeof layout->rank) &&
           append(memo, &layout->reduction, sizeof layout->reduction) &&
           append(memo, layout->begin, (size_t)layout->rank + 2) &&
           append(memo, layout->alignment, (size_t)layout->rank * sizeof *layout->alignment) &&
           append(memo, layout->axes, n_axes * sizeof *layout->axes);
}

static bool append_type(clv_strategy_cache *memo, const clv_type *type)
{
    return append(memo, &type->dtype, sizeof type->dtype) && append(memo, &type->rank, sizeof type->rank) &&
           append(memo, type->shape, (size_t)type->rank * sizeof *type->shape);
}

static bool build_key(clv_strategy_cache *memo, const clv_strategy_problem *p)
{
    const clv_op *op = p->op;
    memo->key_size = 0;
    bool ok = append(memo, &op->def, sizeof op->def) && append(memo, &op->n_in, sizeof op->n_in) &&
              (!op->attrs || append(memo, op->attrs, op->def->attrs_size));
    for (int i = 0; ok && i < op->n_in; i++) {
        ok = append(memo, &p->n_available[i], sizeof p->n_available[i]);
        ok = ok && append(memo, &p->stationary_axes[i], sizeof p->stationary_axes[i]);
        if (p->n_available[i] > 0)
            ok = ok && append_type(memo, &p->in[i]);
        for (int k = 0; ok && k < p->n_available[i]; k++)
            ok = append_layout(memo, p->available[i][k]);
    }
    for (int o = 0; ok && o < op->n_out; o++)
        ok = append(memo, &p->out[o].dtype, sizeof p->out[o].dtype) &&
             append(memo, &p->has_target[o], sizeof p->has_target[o]) &&
             append(memo, &p->accumulation_count[o], sizeof p->accumulation_count[o]) &&
             append(memo, &p->stays_partial[o], sizeof p->stays_partial[o]) &&
             (!p->has_target[o] || append_layout(memo, &p->target[o]));
    return ok;
}

clv_status clv_strategy_cache_choose(const clv_strategy **out, clv_strategy_cache *memo,
                                     const clv_strategy_problem *problem, clv_error *err)
{
    if (!build_key(memo, problem))
        return clv_fail_memory(err, "a strategy's key", memo->key_size);
    uint64_t hash = clv_hash_bytes(memo->key, memo->key_size);
    entry **bucket = &memo->bucket[hash % BUCKETS];
    for (const entry *e = *bucket; e; e = e->next)
        if (e->hash == hash && e->key_size == memo->key_size && memcmp(e->key, memo->key, e->key_size) == 0) {
            *out = &e->strategy;
            return CLV_OK;
        }
    entry *made = clv_arena_alloc(memo->arena, 1, sizeof *made);
    const void *key = clv_arena_copy(memo->arena, memo->key, memo->key_size);
    if (!made || !key)
        return clv_fail_memory(err, "a strategy", sizeof *made);
    *made = (entry){.next = *bucket, .hash = hash, .key_size = memo->key_size, .key = key};
    CLV_TRY(clv_strategy_choose(&made->strategy, problem, err));
    *bucket = made;
    *out = &made->strategy;
    return CLV_OK;
}
