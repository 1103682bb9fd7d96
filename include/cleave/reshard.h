/** @file reshard.h - how a tensor gets from one layout to another: a plan, as data, and what it costs.
 *
 * Any layout to any layout, on any mesh, in the fewest bytes that the fullest rank receives; named collectives before
 * an exchange in which each rank receives exactly what it lacks; then fewer steps (docs/reshard.md). Programs change
 * layouts by these plans. Plans are immutable and depend on nothing but the arguments: threads may share them.
 */
#ifndef CLEAVE_RESHARD_H
#define CLEAVE_RESHARD_H

#include "cleave/dtype.h"
#include "cleave/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A plan. */
typedef struct clv_reshard clv_reshard;

/** Plans the change of a tensor of `shape` (as many sizes as the layouts have dimensions). Everything is copied. Free
 *  with clv_reshard_free.
 *  @return CLV_ESHAPE when dimensions differ or an alignment does not divide; CLV_EAXIS, CLV_EINVAL for layouts that
 *  break
 *          an invariant; CLV_EDTYPE; CLV_ENOMEM */
CLV_API clv_status clv_reshard_new(clv_reshard **out, const clv_mesh *mesh, const clv_layout *from,
                                   const clv_layout *to, const int64_t *shape, clv_dtype dtype, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_reshard_free(clv_reshard *reshard);

/** A step; strings live with the library. */
typedef struct clv_reshard_step_info {
    size_t size;      /**< the caller's: sizeof the struct, or 0 */
    const char *kind; /**< all_gather, reduce_scatter, all_reduce, all_to_all, permute, exchange, slice, mask */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< the axes whose ranks talk */
    double bytes;                      /**< the most that a rank receives; 0 of a slice and a mask */
    clv_layout to;                     /**< the layout behind it */
} clv_reshard_step_info;

/** Steps, in order; 0: every rank holds what it needs under both layouts. */
CLV_API int clv_reshard_step_count(const clv_reshard *reshard);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a step that there is not */
CLV_API clv_status clv_reshard_get_step(const clv_reshard *reshard, int i, clv_reshard_step_info *out, clv_error *err);

/** The sum of the steps' bytes, and the most bytes that a rank holds at once. */
CLV_API double clv_reshard_bytes(const clv_reshard *reshard);
/** See clv_reshard_bytes. */
CLV_API int64_t clv_reshard_peak_bytes(const clv_reshard *reshard);
/** The most bytes that a rank lacks: no plan can do with less. -1 when `from` is partial: none is known. */
CLV_API int64_t clv_reshard_lower_bound_bytes(const clv_reshard *reshard);

/** Runs the plan on rank threads, on numbers that tell every element and addend apart, and checks every rank's elements
 *  (partial ones add up). @return CLV_ECHECK naming rank and element; CLV_ENOMEM; what a session returns */
CLV_API clv_status clv_reshard_verify(const clv_reshard *reshard, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
