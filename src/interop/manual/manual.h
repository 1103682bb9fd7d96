/* manual.h - manual SPMD (sdy.manual_computation, JAX's shard_map): what a device computes, as ops on whole tensors.
 *
 * A value that may differ between the devices of an axis has a dimension for that axis, with an element for each
 * device; it stands before the value's own dimensions, and the axis shards it. So an op of a device is the same op with
 * more batch dimensions (batch_ops.c), a psum is a sum over such a dimension, and every collective is what the
 * partitioner makes of it. A value that is the same on all devices of an axis has 1 element there: this is the analysis
 * of variance, too (JAX's check_vma), and what out_specs claim is held against it (region.c).
 */
#pragma once

#include "interop/importer.h"

/* The region of manual SPMD that is built. Device dimensions are those of all axes of its mesh with more than one rank,
 * in the mesh's order, so that regions inside it have the same ones. */
struct manual {
    const clv_mesh *mesh; /* of the text */
    int n;
    int axis[MANUAL_AXES]; /* of the mesh, of device dimension i */
    int64_t size[MANUAL_AXES];
    uint32_t axes; /* manual here or around it, as bits */
    bool whole;    /* every axis of the graph's mesh is: layouts say all */
};

/* Number of device dimensions that the value has: those of the region, or 0. */
int manual_lead(const importer *im, const imported *x);
/* Elements in each device dimension: 1 for those that it lacks. */
void manual_extents(const importer *im, const imported *x, int64_t *extents);
/* The same as x, for `type` with device dimensions of these extents before it; elements that are repeated are given
 * once. */
clv_status manual_lift(imported *out, importer *im, const imported *x, const int64_t *extents, clv_error *err);
/* All elements of x on all devices of these extents. */
clv_status manual_spread(clv_value *out, importer *im, const imported *x, const int64_t *extents, clv_error *err);
/* A value of a device's `type` of a graph's value with device dimensions, which it keeps if devices differ. */
imported manual_settle(importer *im, clv_type type, clv_value value);
/* States the layout of a value with device dimensions: each sharded by its axis, but for those of `gone`; dimension
 * `dim` of a device's, if it is not negative, sharded by the axes of `gone` in the order of `order`. collective: what
 * asks for it, and names what it takes; NULL: the region. */
clv_value manual_constrain(importer *im, const mlir_op *collective, clv_value value, uint32_t gone, int dim,
                           const int *order, int n);
/* Names the op that was added last after the collective: "model.py:12.all_gather"; NULL: nothing. */
void manual_name_last(importer *im, const mlir_op *collective);
/* What devices of these axes have is not moved to others before it is reduced. */
void manual_keep(importer *im, clv_value value, uint32_t axes);
/* Moves dimensions, and gives the result this shape. */
clv_value manual_arrange(importer *im, clv_value value, const int *order, int n, int rank, const int64_t *shape);
/* Names of axes: "data, model". */
const char *manual_axis_names(importer *im, uint32_t axes);

/* An op on operands of which devices have different ones (batch_ops.c). */
clv_status manual_build(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err);
/* Whether the op counts devices in ui32, as JAX's axis_index does, and its result; integers of 64 bits hold them. */
clv_status manual_count_devices(bool *done, importer *im, const mlir_op *op, clv_error *err);

/* ---- what is known of how devices differ (devices.c) ---- */

/* Of the results of an op on values of devices. */
void devices_follow(const importer *im, const mlir_op *op, const imported *in, imported *out);
/* Of a sum over the devices of axes: the marks of `in` and what is wrong with it. */
void devices_summed(importer *im, const mlir_op *op, const imported *in, uint32_t axes, imported *out);
/* Holds a result of a region against its out_specs: `named` axes split it along dimension `along[i]`, over `claimed`
 * ones it is said to be the same. value: with device dimensions. */
clv_status devices_check_result(importer *im, const mlir_op *region, int i, const imported *x, uint32_t named,
                                const int *along, uint32_t claimed, clv_error *err);
