/* reshard_planner.h - plans any layout change as the cheapest sequence of collectives, with a plan cache.
 *
 * One algorithm, exact within its moves (docs/reshard.md): an A* search over layouts for reductions, and without
 * partial axes a matching for collectives that reach the lower bound, else one `exchange` in which every rank
 * receives exactly the elements that it lacks. Hence it never costs more than an all_reduce and an exchange, and no
 * change of layout gathers a whole tensor that need not be whole.
 *
 * Order of preference: bytes (or, with a cost model, seconds); named collectives before exchange; fewer moving steps;
 * peak memory; then stable ids. Plans are deterministic and depend on nothing but the arguments.
 */
#ifndef CLEAVE_PARTITION_RESHARD_RESHARD_PLANNER_H
#define CLEAVE_PARTITION_RESHARD_RESHARD_PLANNER_H

#include "base/memory/arena.h"
#include "cleave/dtype.h"
#include "cleave/layout.h"
#include "program/cost/cost_model.h"
#include "program/reshard_step.h"

typedef struct clv_reshard_plan {
    int n_steps; /* 0: every rank holds what it needs under both layouts */
    const clv_reshard_step *steps;
    double bytes;       /* sum of the steps' bytes */
    int moves;          /* steps in which ranks talk */
    double seconds;     /* of these, by the cost model; 0 without */
    double start_s;     /* of that, whatever is moved */
    int64_t peak_bytes; /* most that the largest rank holds at once: a step's input and its output, where a slice is a
                           view, and a mask or an all_reduce of a step's output works in place. At most that of `from`
                           and `to`, unless `to` is gathered over several dimensions: then at most 1.5 times `to` */
} clv_reshard_plan;

/* Plans the change of a tensor of `shape` from one layout to another.
 *
 * @param out    steps are allocated from the arena
 * @param cost   prices the plan; NULL: nothing does
 * @param by_bytes   minimise bytes, as without a cost model; else seconds
 * @return CLV_OK; CLV_ESHAPE when ranks differ or an alignment does not divide; CLV_EAXIS, CLV_EINVAL for layouts that
 *         break an invariant; CLV_ENOMEM */
clv_status clv_reshard_plan_make(clv_reshard_plan *out, clv_arena *arena, const clv_mesh *mesh, const clv_layout *from,
                                 const clv_layout *to, const int64_t *shape, clv_dtype dtype,
                                 const clv_cost_model *cost, bool by_bytes, clv_error *err);

/* What one step takes, of a tensor of `shape`. */
clv_step_cost clv_reshard_step_cost(const clv_cost_model *cost, const clv_reshard_step *step, const int64_t *shape,
                                    clv_dtype dtype);

/* max over ranks of the bytes of |to_r \ from_r|: no plan can do with less. -1 when `from` is partial: none known. */
int64_t clv_reshard_lower_bound(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                const int64_t *shape, clv_dtype dtype);

/* Plans made before, keyed by (from, to, shape, dtype), for one mesh and one model: the search for layouts asks for the
 * same few changes very many times. Not thread-safe. */
typedef struct clv_reshard_cache clv_reshard_cache;

/* The cache and its plans live in the arena, which must outlive it; there is nothing to free. The cost model is
 * borrowed. NULL: out of memory. */
clv_reshard_cache *clv_reshard_cache_new(clv_arena *arena, const clv_mesh *mesh, const clv_cost_model *cost,
                                         bool by_bytes);

/* As clv_reshard_plan_make; *out points into the cache and stays valid. */
clv_status clv_reshard_cache_plan(const clv_reshard_plan **out, clv_reshard_cache *cache, const clv_layout *from,
                                  const clv_layout *to, const int64_t *shape, clv_dtype dtype, clv_error *err);

/* The cheapest change to `to` out of n > 0 layouts, all of one tensor, and which of them it begins with: by what the
 * cache minimises, then bytes, moves and steps; of equals the first. */
clv_status clv_reshard_cache_cheapest(const clv_reshard_plan **out, int *source, clv_reshard_cache *cache,
                                      const clv_layout *const *from, int n, const clv_layout *to, const int64_t *shape,
                                      clv_dtype dtype, clv_error *err);

#endif
