/** @file mesh.h - device mesh: ranks arranged along named axes.
 *
 * The mesh `data=2,model=4` has 8 ranks. Ranks are numbered row-major over the axes, so the last axis is contiguous:
 * with 16 ranks and model=4 the model groups are {0..3}, {4..7}, ... (Megatron-LM's order). A group is the set of ranks
 * that differ only in their coordinates on given (sub-)axes.
 *
 * A sub-axis is a part of an axis: an axis of size n = pre * size * post is split into three nested axes, major to
 * minor, and the middle one is the sub-axis (Shardy's `x:(pre)size`). A whole axis has pre = 1 and size = n.
 *
 * Meshes are plain values. For an invalid mesh (clv_mesh_check), or a sub-axis that is not part of the mesh, a function
 * fails if it returns a status, and else returns 0 or an empty string. All functions are thread-safe and keep no
 * pointers.
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
    CLV_MAX_AXES = 16,       /**< most axes of a mesh */
    CLV_AXIS_NAME_SIZE = 32, /**< bytes of an axis name, including the terminating NUL */
    CLV_MESH_TEXT = 1024     /**< bytes that hold the text form of any mesh, or the list of its axis names */
};

/** A named axis of a mesh. A plain value. */
typedef struct clv_axis {
    char name[CLV_AXIS_NAME_SIZE]; /**< [A-Za-z][A-Za-z0-9_]*, unique */
    int64_t size;                  /**< >= 1 */
} clv_axis;

/** A device mesh. A plain value: copy it freely. */
typedef struct clv_mesh {
    int n_axes;
    clv_axis axis[CLV_MAX_AXES];
} clv_mesh;

/** A whole axis, or a part of one. A plain value. */
typedef struct clv_subaxis {
    int32_t axis; /**< index into clv_mesh.axis */
    int32_t pre;  /**< product of the sizes of the more major sub-axes, >= 1 */
    int32_t size; /**< >= 1; pre * size must divide the size of the axis */
} clv_subaxis;

/** Parses a text such as "data=2,model=4"; spaces are allowed. "" is the mesh of one rank without axes.
 *  @return CLV_ESYNTAX with the column, CLV_EAXIS for a name used twice, CLV_EINVAL for a size < 1 or more than
 *          2^31 - 1 ranks, CLV_ELIMIT for more than CLV_MAX_AXES axes. */
CLV_API clv_status clv_mesh_parse(clv_mesh *out, const char *text, clv_error *err);

/** Writes the text form. As snprintf, returns the length of the whole text without the NUL. */
CLV_API int clv_mesh_print(char *out, size_t size, const clv_mesh *mesh);

/** Checks the invariants of a mesh.
 *  @return CLV_ELIMIT for too many axes, CLV_ESYNTAX for an invalid name, CLV_EAXIS for a name used twice,
 *          CLV_EINVAL for an invalid size */
CLV_API clv_status clv_mesh_check(const clv_mesh *mesh, clv_error *err);

/** Returns the number of ranks: the product of the sizes, 1 without axes; 0 if a size is below 1 or the product exceeds
 *  2^31 - 1. */
CLV_API int64_t clv_mesh_rank_count(const clv_mesh *mesh);

/** Returns whether two meshes have the same axis names and sizes in the same order; 0 if one is NULL. */
CLV_API int clv_mesh_equal(const clv_mesh *a, const clv_mesh *b);

/** Finds an axis by name and stores its index. @return CLV_EAXIS, with a message that lists the axes of the mesh */
CLV_API clv_status clv_mesh_find(int *out, const clv_mesh *mesh, const char *name, clv_error *err);

/** Returns a whole axis as a sub-axis. */
CLV_API clv_subaxis clv_mesh_whole_axis(const clv_mesh *mesh, int axis);

/** Writes "model" for a whole axis or "model:(2)2" for a part of one. Returns a length as snprintf does. */
CLV_API int clv_subaxis_print(char *out, size_t size, clv_subaxis sub, const clv_mesh *mesh);

/** Returns the coordinate of a rank on a sub-axis, in [0, size). */
CLV_API int64_t clv_mesh_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank);

/** Returns the rank at `coordinate` on the sub-axis and at the coordinates of `rank` elsewhere; 0 if the coordinate is
 *  out of range. */
CLV_API int64_t clv_mesh_with_coordinate(const clv_mesh *mesh, clv_subaxis sub, int64_t rank, int64_t coordinate);

/** Lists the group of `rank` over n disjoint sub-axes: the ranks, itself included, that differ from it only on those,
 *  ordered by their coordinates, first sub-axis major. `out` must have room for the product of the sizes. Returns the
 *  number of members. */
CLV_API int64_t clv_mesh_group(int64_t *out, const clv_mesh *mesh, const clv_subaxis *subs, int n, int64_t rank);

#ifdef __cplusplus
}
#endif
#endif
