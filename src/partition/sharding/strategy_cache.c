/* strategy_cache.c - cache of chosen strategies keyed by op and layouts: a repeated layer is solved once. */
#include "partition/sharding/strategy_cache.h"

#include "base/error.h"
#include "partition/key_cache.h"

clv_strategy_cache *clv_strategy_cache_new(clv_arena *arena)
{
    const clv_key_cache cache = {.arena = arena};
    return clv_arena_copy(arena, &cache, sizeof cache);
}

static void add_type(clv_key_cache *cache, const clv_type *type)
{
    clv_key_add(cache, &type->dtype, sizeof type->dtype);
    clv_key_add(cache, &type->rank, sizeof type->rank);
    clv_key_add(cache, type->shape, (size_t)type->rank * sizeof *type->shape);
}

static void build_key(clv_key_cache *cache, const clv_strategy_problem *p)
{
    const clv_op *op = p->op;
    clv_key_begin(cache);
    clv_key_add(cache, &op->def, sizeof op->def);
    clv_key_add(cache, &op->n_in, sizeof op->n_in);
    if (op->attrs)
        clv_key_add(cache, op->attrs, op->def->attrs_size);
    for (int i = 0; i < op->n_in; i++) {
        clv_key_add(cache, &p->n_available[i], sizeof p->n_available[i]);
        clv_key_add(cache, &p->stationary_axes[i], sizeof p->stationary_axes[i]);
        if (p->n_available[i] > 0)
            add_type(cache, &p->in[i]);
        for (int k = 0; k < p->n_available[i]; k++)
            clv_key_add_layout(cache, p->available[i][k]);
    }
    for (int o = 0; o < op->n_out; o++) {
        clv_key_add(cache, &p->out[o].dtype, sizeof p->out[o].dtype);
        clv_key_add(cache, &p->has_target[o], sizeof p->has_target[o]);
        clv_key_add(cache, &p->accumulation_count[o], sizeof p->accumulation_count[o]);
        clv_key_add(cache, &p->stays_partial[o], sizeof p->stays_partial[o]);
        if (p->has_target[o])
            clv_key_add_layout(cache, &p->target[o]);
    }
}

clv_status clv_strategy_cache_choose(const clv_strategy **out, clv_strategy_cache *cache,
                                     const clv_strategy_problem *problem, clv_error *err)
{
    build_key(cache, problem);
    *out = clv_key_find(cache);
    if (*out)
        return CLV_OK;
    clv_strategy chosen = {0};
    CLV_TRY(clv_strategy_choose(&chosen, problem, err));
    *out = clv_key_insert(cache, &chosen, sizeof chosen);
    return *out ? CLV_OK : clv_fail_memory(err, "a strategy", sizeof chosen);
}
