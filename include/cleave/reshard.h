/** @file reshard.h - plans the change of a tensor from one layout to another: its collectives and their bytes.
 *
 * Plans any change of layout, on any mesh. Of all plans it takes one in which the busiest rank receives the fewest
 * bytes; among those, one of named collectives (all_gather, ...) rather than a general exchange; among those, one of
 * the fewest steps (docs/reshard.md). Programs change layouts by these plans. Plans are immutable and depend only on
 * the arguments, so threads may share them.
 */
#ifndef CLEAVE_RESHARD_H
#define CLEAVE_RESHARD_H

#include "cleave/dtype.h"
#include "cleave/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A plan to change a layout. */
typedef struct clv_reshard clv_reshard;

/** Plans the change of a tensor from layout `from` to layout `to`. `shape` has as many sizes as the layouts have
 *  dimensions. All arguments are copied. Free with clv_reshard_free.
 *  @return CLV_ESHAPE when the layouts have different numbers of dimensions, or an alignment does not divide its
 *          dimension; CLV_EAXIS or CLV_EINVAL for invalid layouts; CLV_EDTYPE; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_reshard_new(clv_reshard **out, const clv_mesh *mesh, const clv_layout *from,
                                            const clv_layout *to, const int64_t *shape, clv_dtype dtype,
                                            clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_reshard_free(clv_reshard *reshard);

/** A step of a plan. Strings are static. */
typedef struct clv_reshard_step_info {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *kind; /**< all_gather, reduce_scatter, all_reduce, all_to_all, permute, exchange, slice, mask */
    int n_axes;
    clv_subaxis axes[CLV_MAX_SUBAXES]; /**< axes that the collective goes over */
    double bytes;                      /**< received by the busiest rank; 0 for a slice or a mask */
    clv_layout to;                     /**< the layout after the step */
} clv_reshard_step_info;

/** Number of steps; 0 when every rank already holds its shard of the new layout. */
CLV_EXPERIMENTAL int clv_reshard_step_count(const clv_reshard *reshard);
/** Step i, in order. Fills *out, whose `size` the caller has set. @return CLV_EINVAL for an i out of range */
CLV_EXPERIMENTAL clv_status clv_reshard_get_step(const clv_reshard *reshard, int i, clv_reshard_step_info *out,
                                                 clv_error *err);

/** Sum of the bytes of all steps. */
CLV_EXPERIMENTAL double clv_reshard_bytes(const clv_reshard *reshard);
/** Peak memory of a rank while the plan runs. */
CLV_EXPERIMENTAL int64_t clv_reshard_peak_bytes(const clv_reshard *reshard);
/** Lower bound of any plan's bytes: the most bytes that a rank needs and does not hold. -1 when `from` is partial and
 *  no bound is known. */
CLV_EXPERIMENTAL int64_t clv_reshard_lower_bound_bytes(const clv_reshard *reshard);

/** Runs the plan on rank threads, with distinct numbers as elements and partial sums, and compares every element on
 *  every rank with the expected value. @return CLV_ECHECK naming rank and element; CLV_ENOMEM; clv_session_run's */
CLV_EXPERIMENTAL clv_status clv_reshard_verify(const clv_reshard *reshard, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
