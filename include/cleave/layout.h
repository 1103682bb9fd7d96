/** @file layout.h - layouts: how a tensor is sharded over a mesh.
 *
 * A layout lists, for each dimension, the (sub-)axes that cut it, major to minor, and the axes over which the tensor is
 * partial: its true value is the sum, or the maximum, over the ranks along those axes. Over all other axes the tensor
 * is replicated. (The first part is JAX's PartitionSpec; "partial" is Shardy's "unreduced".)
 *
 * **Cuts.** A dimension of n elements over k blocks is cut at floor(i*n/k), i = 0..k. So any size is cut over any
 * number of ranks, blocks differ by at most one element, blocks may be empty, and cuts nest: the blocks over (X,Y)
 * lie inside the blocks over (X). With an *alignment* a > 1, which divides the dimension, cuts are at multiples of a:
 * a*floor(i*(n/a)/k). It keeps elements together, such as the head_dim elements of a head.
 *
 * **Text form**, printed and parsed without loss: one entry per dimension, comma-separated: `_` (not cut), an axis, or
 * `(X,Y)` major to minor; an entry may have an alignment: `model*64`, `(X,Y)*64`. A partial tensor adds ` + sum{axes}`
 * or ` + max{axes}`. A sub-axis is `y:(2)2`. Examples: `data,_,model`, `(X,Y),_`, `x,_ + sum{y}`, `_,y:(1)2`. The text
 * of a scalar is empty, or `+ sum{x}`.
 *
 * **Stages.** A tensor of a program with pipeline stages (clv_graph_set_stage) is held by the ranks of some stages
 * alone: those with these coordinates on the axis of stages. All other ranks hold an empty shard. The text form ends
 * with ` @pipe{0,3}`.
 *
 * Layouts and shards are plain values. For a layout that is invalid on the mesh (clv_layout_check), a function fails if
 * it returns a status, and else returns 0, false, or an empty string or shard. All functions are thread-safe and keep
 * no pointers.
 */
#ifndef CLEAVE_LAYOUT_H
#define CLEAVE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/mesh.h"
#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CLV_MAX_RANK = 8,      /**< most dimensions of a tensor */
    CLV_MAX_SUBAXES = 30,  /**< most sub-axes of a layout; fewer than 2^31 ranks have no more */
    CLV_MAX_STAGES = 32,   /**< most stages of a pipeline */
    CLV_LAYOUT_TEXT = 2048 /**< bytes that hold the text form of any layout */
};

/** How the values of several ranks are combined. Layouts use only NONE, SUM and MAX; MIN and PRODUCT are for the
 *  collectives of spmd.h. */
typedef enum clv_reduction {
    CLV_REDUCTION_NONE,
    CLV_REDUCTION_SUM,
    CLV_REDUCTION_MAX,
    CLV_REDUCTION_MIN,
    CLV_REDUCTION_PRODUCT
} clv_reduction;

/** A sharding. A plain value. Invariants (clv_layout_check): sub-axes are disjoint parts of the mesh's axes; alignments
 *  are >= 1, and 1 where a dimension is not cut; `reduction` is CLV_REDUCTION_NONE iff there are no partial axes. A
 *  layout is in normal form: no sub-axis has size 1, neighbours in a dimension that form a larger sub-axis are merged,
 *  and partial axes are sorted by (axis, pre). All functions here return normal forms. */
typedef struct clv_layout {
    int rank;                        /**< number of dimensions of the tensor */
    clv_reduction reduction;         /**< how partial values are combined */
    uint8_t begin[CLV_MAX_RANK + 2]; /**< dimension d is cut by axes[begin[d] .. begin[d+1]), major to minor;
                                            d = rank holds the partial axes */
    uint8_t stage_axis;              /**< 1 + the mesh axis of stages; 0: ranks of every stage hold it */
    uint32_t stages;                 /**< bit s: ranks with coordinate s on that axis hold it; 0 if stage_axis is 0 */
    int64_t alignment[CLV_MAX_RANK]; /**< dimension d is cut at multiples of alignment[d] elements */
    clv_subaxis axes[CLV_MAX_SUBAXES];
} clv_layout;

/** A box of a tensor: the index range [lo[d], hi[d]) in each dimension d; such as the part that a rank holds. */
typedef struct clv_shard {
    int rank; /**< number of dimensions */
    int64_t lo[CLV_MAX_RANK];
    int64_t hi[CLV_MAX_RANK];
} clv_shard;

/** Returns the layout of a replicated tensor of `rank` dimensions: every rank holds all of it. */
CLV_API clv_layout clv_layout_replicated(int rank);

/** Parses the text form of a layout on `mesh` for a tensor of `rank` dimensions.
 *  @return CLV_ESYNTAX, with the column; CLV_EAXIS for an unknown axis, with a list of the axes, or for an axis used
 *          twice; CLV_ELIMIT for too many dimensions or sub-axes */
CLV_API clv_status clv_layout_parse(clv_layout *out, const char *text, const clv_mesh *mesh, int rank, clv_error *err);

/** Writes the text form. As snprintf, returns the length of the whole text without the NUL. */
CLV_API int clv_layout_print(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh);

/** Checks all invariants and, if shape is not NULL, that alignments divide dimensions.
 *  @return CLV_EINVAL, CLV_EAXIS, CLV_ELIMIT, CLV_ESHAPE; the failures of clv_mesh_check */
CLV_API clv_status clv_layout_check(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape,
                                    clv_error *err);

/** Returns whether two layouts are identical in normal form. */
CLV_API bool clv_layout_equal(const clv_layout *a, const clv_layout *b);

/** Returns whether each rank holds the same elements of a tensor of this shape under both layouts, and both are partial
 *  over the same axes in the same way. */
CLV_API bool clv_layout_same_shards(const clv_layout *a, const clv_layout *b, const clv_mesh *mesh,
                                    const int64_t *shape);

/* ---- building: on failure *layout is not modified ---- */

/** Cuts dimension d further by one sub-axis, which becomes its most minor. @return as clv_layout_set_dim */
CLV_API clv_status clv_layout_shard_dim(clv_layout *layout, const clv_mesh *mesh, int d, clv_subaxis sub,
                                        clv_error *err);
/** Makes the tensor partial over one more sub-axis.
 *  @return CLV_EINVAL for a reduction other than SUM and MAX, or one that differs from the layout's; CLV_EAXIS as
 *          clv_layout_set_dim */
CLV_API clv_status clv_layout_add_partial(clv_layout *layout, const clv_mesh *mesh, clv_reduction reduction,
                                          clv_subaxis sub, clv_error *err);
/** Replaces the axes (n of them, major to minor) and the alignment of dimension d.
 *  @return CLV_EINVAL for a dimension out of range, or an alignment below 1; CLV_EAXIS for a sub-axis that is
 *          not part of the mesh or is used twice; CLV_ELIMIT for more than CLV_MAX_SUBAXES sub-axes */
CLV_API clv_status clv_layout_set_dim(clv_layout *layout, const clv_mesh *mesh, int d, const clv_subaxis *subs, int n,
                                      int64_t alignment, clv_error *err);
/** Has the tensor held by the ranks of some stages alone: bit s of `stages` is coordinate s on a mesh axis; all bits:
 *  by every rank. @return CLV_EAXIS for an axis that the mesh lacks, that the layout uses, or that has more than
 *  CLV_MAX_STAGES coordinates; CLV_EINVAL for no stage, or one that the axis lacks */
CLV_EXPERIMENTAL clv_status clv_layout_set_stages(clv_layout *layout, const clv_mesh *mesh, int axis, uint32_t stages,
                                                  clv_error *err);
/** Returns whether a rank is of a stage that holds the tensor. */
CLV_EXPERIMENTAL bool clv_layout_has_rank(const clv_layout *layout, const clv_mesh *mesh, int64_t rank);
/** Returns the layout without its partial axes. */
CLV_API clv_layout clv_layout_without_partial(const clv_layout *layout);
/** Brings n sub-axes to normal form in place: drops those of size 1, merges neighbours. Returns the new count. */
CLV_API int clv_subaxes_normalize(clv_subaxis *subs, int n);

/* ---- queries: d = layout->rank stands for the partial axes ---- */

/** Returns the number of sub-axes that cut dimension d, and points *out at the first of them, inside the layout. */
CLV_API int clv_layout_axes(const clv_subaxis **out, const clv_layout *layout, int d);
/** Returns the number of blocks into which dimension d is cut; 1 if it is not cut. */
CLV_API int64_t clv_layout_block_count(const clv_layout *layout, int d);
/** Returns the index of the block of dimension d that a rank holds, in [0, block count). */
CLV_API int64_t clv_layout_block_index(const clv_layout *layout, const clv_mesh *mesh, int d, int64_t rank);
/** Returns whether a sub-axis overlaps any sub-axis that the layout uses, for a dimension or as a partial axis. */
CLV_API bool clv_layout_uses_subaxis(const clv_layout *layout, clv_subaxis sub);
/** Returns whether the tensor is partial: values of several ranks have yet to be summed, or their maximum taken. */
CLV_API bool clv_layout_is_partial(const clv_layout *layout);
/** Returns whether two sub-axes overlap: they are not disjoint parts of the mesh. */
CLV_API bool clv_subaxis_overlap(clv_subaxis a, clv_subaxis b);
/** Returns whether `part` is a part of `sub`: the coordinate on `sub` determines the coordinate on `part`. */
CLV_API bool clv_subaxis_contains(clv_subaxis sub, clv_subaxis part);

/** Computes block `block` of a dimension of `size` elements that is cut into `blocks`: [*lo, *hi), by the formula at
 *  the top; [0, 0) if the block is out of range. */
CLV_API void clv_block_range(int64_t size, int64_t alignment, int64_t blocks, int64_t block, int64_t *lo, int64_t *hi);

/** Returns the shard that a rank holds of a tensor of this shape. */
CLV_API clv_shard clv_layout_shard(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int64_t rank);
/** Returns the number of elements of a shard; 1 for a scalar. */
CLV_API int64_t clv_shard_elems(const clv_shard *shard);
/** Writes the indices of element `at` of a row-major tensor, such as "[1,0,7]", as far as they fit; "" for a scalar. */
CLV_API void clv_index_print(char *out, size_t size, int rank, const int64_t *shape, int64_t at);
/** Returns the number of elements of the largest shard of any rank: the size of a buffer that holds it. */
CLV_API int64_t clv_layout_max_elems(const clv_layout *layout, const int64_t *shape);
/** Returns the intersection of two shards; an empty dimension has lo == hi. */
CLV_API clv_shard clv_shard_intersect(const clv_shard *a, const clv_shard *b);
/** Returns the reshard volume: the most elements that any rank must receive to go from layout `from` to layout `to`,
 *  which is the maximum over ranks r of |to_r \ from_r|. Exact also for uneven blocks. The time does not grow with the
 *  number of ranks, except where the sub-axes of an axis do not nest (x:(1)2 against x:(1)3). Partial axes are
 *  ignored. */
CLV_API int64_t clv_layout_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                                              const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
