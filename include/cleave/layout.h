/** @file layout.h - where each part of a tensor lives on a mesh.
 *
 * A layout says, for each dimension, which (sub-)axes cut it, major to minor, and over which axes the tensor is
 * partial: its true value is the sum, or the maximum, over the ranks of those axes. An axis not mentioned holds
 * replicas. (JAX calls the first half a PartitionSpec; "partial" is Shardy's "unreduced".)
 *
 * **Cuts.** A dimension of n elements over k blocks is cut at floor(i*n/k), i = 0..k. So any size is cut over any
 * number of ranks, blocks differ by at most one element, blocks may be empty, and cuts nest: the blocks over (X,Y)
 * lie inside the blocks over (X). With an *alignment* a > 1, which divides the dimension, cuts are at multiples of a:
 * a*floor(i*(n/a)/k). It keeps elements together, such as the head_dim elements of a head.
 *
 * **Text form**, printed and parsed without loss: an entry a dimension, comma-separated: `_`, an axis, or `(X,Y)`
 * major to minor, each entry with an optional alignment `model*64`, `(X,Y)*64`; then ` + sum{axes}` or ` + max{axes}`
 * when partial. A sub-axis is `y:(2)2`. Examples: `data,_,model`, `(X,Y),_`, `x,_ + sum{y}`, `_,y:(1)2`. A tensor of
 * rank 0 has the empty text, or ` + sum{x}`'s second half alone.
 *
 * Layouts and shards are plain values. One that breaks an invariant (clv_layout_check), or is not the mesh's, is an
 * error where a status is returned; else what comes back means nothing (0, false, an empty text or shard), and nothing
 * else is touched. No call keeps what it is given: all are safe from several threads.
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
    CLV_MAX_RANK = 8,      /**< dimensions a tensor */
    CLV_MAX_SUBAXES = 30,  /**< sub-axes a layout: fewer than 2^31 ranks have no more */
    CLV_LAYOUT_TEXT = 2048 /**< bytes that hold any layout's text form */
};

/** How values combine. No layout is partial by minima or products: those are for collectives by hand (spmd.h). */
typedef enum clv_reduction {
    CLV_REDUCTION_NONE,
    CLV_REDUCTION_SUM,
    CLV_REDUCTION_MAX,
    CLV_REDUCTION_MIN,
    CLV_REDUCTION_PRODUCT
} clv_reduction;

/** A plain value. Invariants (clv_layout_check): sub-axes are disjoint parts of the mesh's axes; alignments are >= 1,
 *  and 1 where a dimension is not cut; `reduction` is CLV_REDUCTION_NONE iff there are no partial axes; normal form: no
 *  sub-axis of size 1, neighbours in one dimension that make up a larger sub-axis are merged, partial axes are
 *  sorted by (axis, pre). All functions here return normal forms. */
typedef struct clv_layout {
    int rank;                        /**< dimensions of the tensor */
    clv_reduction reduction;         /**< how partial values combine */
    uint8_t begin[CLV_MAX_RANK + 2]; /**< dimension d is cut by axes[begin[d] .. begin[d+1]), major to minor;
                                            d = rank: the partial axes */
    int64_t alignment[CLV_MAX_RANK]; /**< dimension d is cut at multiples of alignment[d] elements */
    clv_subaxis axes[CLV_MAX_SUBAXES];
} clv_layout;

/** The elements [lo[d], hi[d]) of each dimension that a rank holds. */
typedef struct clv_shard {
    int rank; /**< dimensions */
    int64_t lo[CLV_MAX_RANK];
    int64_t hi[CLV_MAX_RANK];
} clv_shard;

/** Whole on every rank. */
CLV_API clv_layout clv_layout_replicated(int rank);

/** Parses the text form for a tensor of `rank` dimensions.
 *  @param mesh  the axes that may be named; borrowed
 *  @return CLV_OK; CLV_ESYNTAX with the column (and a line with a caret is for the caller to draw); CLV_EAXIS with the
 *          names that exist, or the axis used twice; CLV_ELIMIT. */
CLV_API clv_status clv_layout_parse(clv_layout *out, const char *text, const clv_mesh *mesh, int rank, clv_error *err);

/** Writes the text form as snprintf does: returns the bytes needed without the end. */
CLV_API int clv_layout_print(char *out, size_t size, const clv_layout *layout, const clv_mesh *mesh);

/** Verifies every invariant, one message each; with a shape (may be NULL) also that alignments divide dimensions.
 *  @return CLV_EINVAL, CLV_EAXIS, CLV_ELIMIT, CLV_ESHAPE; clv_mesh_check's */
CLV_API clv_status clv_layout_check(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape,
                                    clv_error *err);

/** Equal as written (normal forms). */
CLV_API bool clv_layout_equal(const clv_layout *a, const clv_layout *b);

/** Whether every rank holds the same elements under both, for this shape, and both are partial alike. */
CLV_API bool clv_layout_same_shards(const clv_layout *a, const clv_layout *b, const clv_mesh *mesh,
                                    const int64_t *shape);

/* Building: *layout is untouched where it fails. */

/** Cuts dimension d further, as the most minor: by one sub-axis. @return clv_layout_set_dim's */
CLV_API clv_status clv_layout_shard_dim(clv_layout *layout, const clv_mesh *mesh, int d, clv_subaxis sub,
                                        clv_error *err);
/** Makes the tensor partial over one more sub-axis.
 *  @return CLV_EINVAL for a reduction that is neither sum nor max, or another one than the layout has; CLV_EAXIS and
 *          CLV_ELIMIT as clv_layout_set_dim */
CLV_API clv_status clv_layout_add_partial(clv_layout *layout, const clv_mesh *mesh, clv_reduction reduction,
                                          clv_subaxis sub, clv_error *err);
/** Sets dimension d's axes (n of them, major to minor) and alignment, replacing what was there.
 *  @return CLV_EINVAL for a dimension that there is not, or an alignment below 1; CLV_EAXIS for a sub-axis that the
 *  mesh
 *          lacks, or that is used twice; CLV_ELIMIT for more of them than CLV_MAX_SUBAXES */
CLV_API clv_status clv_layout_set_dim(clv_layout *layout, const clv_mesh *mesh, int d, const clv_subaxis *subs, int n,
                                      int64_t alignment, clv_error *err);
/** The same layout without its partial axes. */
CLV_API clv_layout clv_layout_without_partial(const clv_layout *layout);
/** Brings `n` sub-axes to normal form in place (drops size 1, merges neighbours); returns the new count. */
CLV_API int clv_subaxes_normalize(clv_subaxis *subs, int n);

/* Reading. d = layout->rank addresses the partial axes. */
/** The sub-axes that cut dimension d: how many, and *out the first, which lives with the layout. */
CLV_API int clv_layout_axes(const clv_subaxis **out, const clv_layout *layout, int d);
/** The number of blocks that dimension d is cut into (1 when whole). */
CLV_API int64_t clv_layout_block_count(const clv_layout *layout, int d);
/** The block of dimension d that a rank holds, in [0, blocks). */
CLV_API int64_t clv_layout_block_index(const clv_layout *layout, const clv_mesh *mesh, int d, int64_t rank);
/** Whether a sub-axis overlaps any sub-axis that the layout uses (dimension cuts, or partial). */
CLV_API bool clv_layout_uses_subaxis(const clv_layout *layout, clv_subaxis sub);
/** Whether its values are addends, or candidates for a maximum. */
CLV_API bool clv_layout_is_partial(const clv_layout *layout);
/** Whether two sub-axes share ranks' coordinates, i.e. are not disjoint parts. */
CLV_API bool clv_subaxis_overlap(clv_subaxis a, clv_subaxis b);
/** Whether a sub-axis is made up of `part` and others: its coordinate tells that of the part. */
CLV_API bool clv_subaxis_contains(clv_subaxis sub, clv_subaxis part);

/** Block `block` of `blocks` of a dimension of `size` elements: [*lo, *hi), by the formula above; [0, 0) for a block
 *  out of range. */
CLV_API void clv_block_range(int64_t size, int64_t alignment, int64_t blocks, int64_t block, int64_t *lo, int64_t *hi);

/** What a rank holds of a tensor of this shape. */
CLV_API clv_shard clv_layout_shard(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int64_t rank);
/** Elements of a shard; 0 when it is empty, 1 for a scalar. */
CLV_API int64_t clv_shard_elems(const clv_shard *shard);
/** Writes "[1,0,7]" into out, as much as fits: element `at` of a row-major tensor of that shape; "" of a scalar. */
CLV_API void clv_index_print(char *out, size_t size, int rank, const int64_t *shape, int64_t at);
/** Elements of the largest shard over all ranks (what a buffer must hold), without visiting the ranks. */
CLV_API int64_t clv_layout_max_elems(const clv_layout *layout, const int64_t *shape);
/** The elements common to two shards; empty dimensions have lo == hi. */
CLV_API clv_shard clv_shard_intersect(const clv_shard *a, const clv_shard *b);
/** max over ranks of |to_r \ from_r|: the elements that the neediest rank lacks. Exact on true intervals, without
 *  visiting the ranks: what it takes depends on how the cuts of the two layouts fall. Only where cuts of an axis do not
 *  nest (x:(1)2 against x:(1)3) it may grow with their common multiple. Partial axes are ignored. */
CLV_API int64_t clv_layout_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                                              const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
