/* reshard_planner.h - plans any layout change as the cheapest sequence of collectives, with a plan cache.
 *
 * In: two layouts of a tensor. Out: the steps of the cheapest reshard. The algorithm is exact within its moves
 * (docs/reshard.md): branch and bound over layouts for reductions; without partial axes a search for collectives that
 * reach the lower bound, else one `exchange` in which every rank receives exactly the elements that it lacks. So no
 * plan costs more than an all_reduce and an exchange, and no plan gathers a whole tensor unless `to` is replicated.
 *
 * Order of preference: bytes (with a cost model: seconds); named collectives before exchange; fewer collectives; peak
 * memory; then stable ids. Plans are deterministic and depend only on the arguments.
 */
#pragma once

#include "base/memory/arena.h"
#include "cleave/dtype.h"
#include "cleave/layout.h"
#include "program/cost/cost_model.h"
#include "program/reshard_step.h"

typedef struct clv_reshard_plan {
    int n_steps; /* 0: every rank holds what it needs already */
    const clv_reshard_step *steps;
    double bytes;       /* sum of the steps' bytes */
    int moves;          /* number of collectives */
    double seconds;     /* predicted by the cost model; 0 without */
    double start_s;     /* of that, latency: independent of bytes */
    int64_t peak_bytes; /* peak memory of the largest rank: a step's input and output, where a slice is a view, and a
                           mask or an all_reduce of a step's output is in place. At most that of `from` and `to`, or
                           1.5 times `to` if that is gathered over several dimensions */
} clv_reshard_plan;

/* Plans a reshard of a tensor of `shape` from one layout to another.
 *
 * @param out       steps are allocated from the arena
 * @param cost      predicts seconds; may be NULL
 * @param by_bytes  minimise bytes, as without a cost model; else seconds
 * @return CLV_OK; CLV_ESHAPE if ranks differ or an alignment does not divide; CLV_EAXIS, CLV_EINVAL for invalid
 * layouts;
 *         CLV_ENOMEM */
clv_status clv_reshard_plan_make(clv_reshard_plan *out, clv_arena *arena, const clv_mesh *mesh, const clv_layout *from,
                                 const clv_layout *to, const int64_t *shape, clv_dtype dtype,
                                 const clv_cost_model *cost, bool by_bytes, clv_error *err);

/* Predicted time of one step of a tensor of `shape`. */
clv_step_cost clv_reshard_step_cost(const clv_cost_model *cost, const clv_reshard_step *step, const int64_t *shape,
                                    clv_dtype dtype);

/* Lower bound of the bytes of any plan: max over ranks of |to_r \ from_r|; -1 (unknown) if `from` is partial. */
int64_t clv_reshard_lower_bound(const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                                const int64_t *shape, clv_dtype dtype);

/* Cache of plans by (from, to, shape, dtype), for one mesh and one cost model. Not thread-safe. */
typedef struct clv_reshard_cache clv_reshard_cache;

/* Makes a cache, which lives in the arena with its plans. The cost model is borrowed. NULL: out of memory. */
clv_reshard_cache *clv_reshard_cache_new(clv_arena *arena, const clv_mesh *mesh, const clv_cost_model *cost,
                                         bool by_bytes);

/* As clv_reshard_plan_make; *out points into the cache and stays valid. */
clv_status clv_reshard_cache_plan(const clv_reshard_plan **out, clv_reshard_cache *cache, const clv_layout *from,
                                  const clv_layout *to, const int64_t *shape, clv_dtype dtype, clv_error *err);

/* The cheapest reshard to `to` from any of n > 0 layouts of one tensor; *source: which one. By seconds or bytes, as the
 * cache minimises, then bytes, collectives and steps; the first of equals. */
clv_status clv_reshard_cache_cheapest(const clv_reshard_plan **out, int *source, clv_reshard_cache *cache,
                                      const clv_layout *const *from, int n, const clv_layout *to, const int64_t *shape,
                                      clv_dtype dtype, clv_error *err);
