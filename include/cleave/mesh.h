/** @file mesh.h - ranks arranged along named axes.
 *
 * `data=2,model=4` has 8 ranks. Ranks are row-major over the axes, so the last axis is contiguous: with 16 ranks and
 * model=4, {0..3}, {4..7}, ... are the model groups (Megatron-LM's order). A group is all ranks that differ only on
 * a set of (sub-)axes.
 *
 * A sub-axis is a part of an axis: an axis of size n = pre * size * post, seen as three nested axes, major to minor;
 * the middle one is the sub-axis (Shardy's form `x:(pre)size`). A whole axis has pre = 1 and size = n.
 *
 * Meshes are plain values. One that breaks an invariant (clv_mesh_check), or a sub-axis that is no part of it, is an
 * error where a status is returned; else what comes back means nothing (0, an empty text), and nothing else is touched.
 * No call keeps what it is given: all are safe from several threads.
 */
#ifndef CLEAVE_MESH_H
#define CLEAVE_MESH_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CLV_MAX_AXES = 16,       /**< axes a mesh */
    CLV_AXIS_NAME_SIZE = 32, /**< bytes of an axis name with its end */
    CLV_MESH_TEXT = 1024     /**< bytes that hold any mesh's text form, or the names of its axes */
};

/** A named direction of a mesh. A plain value. */
typedef struct clv_axis {
    char name[CLV_AXIS_NAME_SIZE]; /**< [A-Za-z][A-Za-z0-9_]*, unique */
    int64_t size;                  /**< >= 1 */
} clv_axis;

/** A plain value: copy it, no ownership. */
typedef struct clv_mesh {
    int n_axes;
    clv_axis axis[CLV_MAX_AXES];
} clv_mesh;

/** A part of an axis, or all of it. A plain value. */
typedef struct clv_subaxis {
    int32_t axis; /**< index into clv_mesh.axis */
    int32_t pre;  /**< product of the sub-axes before it, >= 1 */
    int32_t size; /**< >= 1; pre * size divides the axis' size */
} clv_subaxis;

/** Parses "data=2,model=4" (spaces allowed). "" is the mesh of one rank with no axes.
 *  @return CLV_ESYNTAX with the column, CLV_EAXIS for a name used twice, CLV_EINVAL for a size < 1 or more than
 *          2^31 - 1 ranks, CLV_ELIMIT for more than CLV_MAX_AXES axes. */
CLV_API clv_status clv_mesh_parse(clv_mesh *out, const char *text, clv_error *err);

/** Writes the text form as snprintf does: returns the bytes needed without the end. */
CLV_API int clv_mesh_print(char *out, size_t size, const clv_mesh *mesh);

/** Verifies the invariants of the struct.
 *  @return CLV_ELIMIT, CLV_ESYNTAX of a name, CLV_EAXIS of one twice, CLV_EINVAL */
CLV_API clv_status clv_mesh_check(const clv_mesh *mesh, clv_error *err);

/** The product of the sizes; 1 without axes; 0 where that is no number of ranks. */
CLV_API int64_t clv_mesh_rank_count(const clv_mesh *mesh);

/** Whether both have the same axes, by name and size, in the same order; 0 when one is NULL. */
CLV_API int clv_mesh_equal(const clv_mesh *a, const clv_mesh *b);

/** The index of an axis; CLV_EAXIS with the names that exist. */
CLV_API clv_status clv_mesh_find(int *out, const clv_mesh *mesh, const char *name, clv_error *err);

/** The sub-axis that is the whole of an axis. */
CLV_API clv_subaxis clv_mesh_whole_axis(const clv_mesh *mesh, int axis);

/** Writes "model", or "model:(2)2" for a part of the axis, as snprintf does. */
CLV_API int clv_subaxis_print(char *out, size_t size, clv_subaxis sub, const clv_mesh *mesh);

/** A rank's coordinate on a sub-axis, in [0, size). */
CLV_API int64_t clv_mesh_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank);

/** The rank that differs from `rank` only in having `coordinate` on the sub-axis; 0 for a coordinate that there is
 *  not. */
CLV_API int64_t clv_mesh_with_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank, int64_t coordinate);

/** The group of `rank` over n disjoint sub-axes: all ranks that differ from it only there, ordered by their
 *  coordinates, first sub-axis major. out holds the product of the sizes; `rank` itself is among them.
 *  Returns the number of members. */
CLV_API int64_t clv_mesh_group(int64_t *out, const clv_mesh *mesh, const clv_subaxis *subs, int n, int64_t rank);

#ifdef __cplusplus
}
#endif
#endif
