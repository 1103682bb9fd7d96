/** @file spmd.h - manual SPMD (JAX's shard_map): runs the caller's function on every rank, with explicit collectives.
 *
 * In a program the compiler inserts the collectives (program.h). Here the caller's function calls them itself: each
 * rank gets its shards of the inputs and a communicator, and the shards it returns are joined to whole outputs. Both
 * use the same rank threads, transports, deadlines and arithmetic: sums add the members in order; bf16 and f16 are
 * summed in f32 and rounded once.
 *
 * c = a b with the inner dimension sharded over y: each rank multiplies its shards, then the partial sums are reduced.
 * @code
 * static clv_status body(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
 * {
 *     clv_local_tensor c;
 *     CLV_TRY(clv_spmd_zeros(&c, spmd, CLV_F32, 2, (int64_t[]){4, 4}, "_,_ + sum{y}", err));
 *     multiply(c.data, &in[0], &in[1]);   // the caller's code; local shapes are shard.hi[d] - shard.lo[d]
 *     return clv_spmd_all_reduce(&out[0], spmd, &c, CLV_REDUCTION_SUM, "y", err);
 * }
 * ...
 * clv_spmd_input in[] = {{{CLV_F32, 2, {4, 16}}, "_,y", a}, {{CLV_F32, 2, {16, 4}}, "y,_", b}};
 * clv_spmd_output out = {{CLV_F32, 2, {4, 4}}, "_,_", c};
 * CLV_TRY(clv_spmd_run(session, body, NULL, in, 2, &out, 1, NULL, err));
 * @endcode
 *
 * **Collectives** name the mesh axes that they go over: "y"; "x,y" (any order, the mesh's counts); a sub-axis "y:(2)2";
 * or "" for none. The ranks that differ only on these axes form a group. All members of a group must make the same
 * collective calls in the same order, with the same kind, tensor type, layout and axes. If they do not, every member
 * gets CLV_EPEER, naming two ranks and their calls, or CLV_ETIMEOUT, naming the ranks that did not call; never wrong
 * data. Any layout, dtype and shard size is supported, empty shards included.
 *
 * **Failure.** When the function fails on one rank, the collectives of the others return CLV_EPEER, and clv_spmd_run
 * returns the first failure with err->rank naming its rank. The session is then poisoned, as after a failed run. A
 * cancellation (cancel.h) ends a function at its next collective.
 *
 * **Functions that do not return.** While all ranks compute, there is no limit. Once one rank has returned, or the run
 * is cancelled, every other rank must return or call a collective at least every 2 * clv_session_options.timeout_ms;
 * otherwise clv_spmd_run returns CLV_ETIMEOUT naming the ranks that did not. Such a rank's thread may still be in the
 * function, so arg, inputs and outputs must stay valid until clv_session_free has returned; it waits for the thread for
 * another timeout_ms, and then leaves the thread running and its memory allocated.
 *
 * **Calls inside a function.** A function uses its session only through its communicator: clv_spmd_run,
 * clv_session_read and the like return CLV_EINVAL.
 *
 * **Memory.** Each distinct collective (kind, type, layout, axes) is planned once; its plan takes some KiB until the
 * session is freed. A function that uses ever new shapes makes the session grow.
 *
 * **Trust.** The library checks that a local tensor's type, layout and shard agree with each other and with the other
 * members. It cannot check `data`: it must point to all elements of the shard, or collectives read and write past its
 * end.
 *
 * A communicator and its local tensors belong to one rank's thread and to one call of the function.
 */
#ifndef CLEAVE_SPMD_H
#define CLEAVE_SPMD_H

#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A rank's communicator. */
typedef struct clv_spmd clv_spmd;

/** A rank's shard of a tensor. Memory allocated by the library lives until the function returns, or clv_spmd_free. */
typedef struct clv_local_tensor {
    clv_type type;           /**< of the whole tensor */
    clv_layout layout;       /**< layout of the whole tensor; over partial axes, ranks hold partial sums */
    clv_shard shard;         /**< this rank's box: by the layout, or as clv_spmd_permute or clv_spmd_broadcast moved it
                                */
    void *data;              /**< the shard's elements, row-major and contiguous */
    const int *source_ranks; /**< internal: the rank whose shard each rank holds; NULL: its own */
    int64_t reserved[4];     /**< zeros */
} clv_local_tensor;

/** The function that each rank runs. in[i] is a copy of its shard of input i. out[i] is a zeroed shard of output i:
 *  fill it, or replace it by a local tensor of the same type and shard. */
typedef clv_status clv_spmd_function(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                     clv_error *err);

/** A whole input, of which each rank gets its shard (JAX's in_specs). */
typedef struct clv_spmd_input {
    clv_type type;
    const char *layout; /**< text form of layout.h; over partial axes, coordinate 0 gets the values and the others the
                             reduction's identity */
    const void *data;   /**< row-major */
} clv_spmd_input;

/** A whole output, joined from the ranks' shards (JAX's out_specs). */
typedef struct clv_spmd_output {
    clv_type type;
    const char *layout; /**< text form of layout.h; a partial output is all-reduced after the function. Of replicas the
                             first rank's is taken: the function must make them equal */
    void *data;         /**< row-major */
} clv_spmd_output;

/** Zero-initialised = defaults. */
typedef struct clv_spmd_options {
    size_t size; /**< sizeof the struct, or 0 */
    int n_groups;
    const char *const *groups; /**< additional axes for collectives. All subsets of the first 6 mesh axes with more than
                                    one rank are available anyway; needed for sub-axes and further axes */
} clv_spmd_options;

/** Runs a function on every rank of the session's mesh; options may be NULL.
 *  @return CLV_EINVAL, CLV_ESYNTAX, CLV_EAXIS or CLV_ESHAPE naming an invalid input or output; the function's failure,
 *          or CLV_EINVAL when it returned no clv_status; CLV_EPEER, CLV_ETIMEOUT; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg,
                                         const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                                         int n_outputs, const clv_spmd_options *options, clv_error *err);

/** Number of collectives over more than one rank in the session's last clv_spmd_run, as its first local rank called
 *  them. */
CLV_EXPERIMENTAL int clv_spmd_collective_count(const clv_session *session);
/** Collective i, in call order, as clv_program_collective describes it, with NULL explanations. A broadcast is a
 *  "permute". Fills *out, whose `size` the caller has set. @return CLV_EINVAL for an i out of range */
CLV_EXPERIMENTAL clv_status clv_spmd_collective(const clv_session *session, int i, clv_collective *out, clv_error *err);

/* ---- inside the function ---- */

/** The calling rank. */
CLV_EXPERIMENTAL int clv_spmd_rank(const clv_spmd *spmd);
/** The session's mesh, borrowed. */
CLV_EXPERIMENTAL const clv_mesh *clv_spmd_mesh(const clv_spmd *spmd);
/** Size of the rank's group over axes, and the rank's index in it (first axis major); either may be NULL.
 *  @return clv_layout_parse's failures for invalid axes; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_spmd_group(int *size, int *index, clv_spmd *spmd, const char *axes, clv_error *err);

/** Makes a local tensor of zeros with the given layout (text form). The library owns its memory.
 *  @return clv_layout_parse's, clv_shape_check's and clv_layout_check's; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_spmd_zeros(clv_local_tensor *out, clv_spmd *spmd, clv_dtype dtype, int rank,
                                           const int64_t *shape, const char *layout, clv_error *err);
/** Gets this rank's shard of a session state in place: writes to it change the state.
 *  @return CLV_ENOTFOUND; CLV_EUNSUPPORTED on a device with memory of its own */
CLV_EXPERIMENTAL clv_status clv_spmd_state(clv_local_tensor *out, clv_spmd *spmd, const char *name, clv_error *err);
/** Frees a local tensor's memory before the function returns, and sets data to NULL; NULL is a no-op. */
CLV_EXPERIMENTAL void clv_spmd_free(clv_spmd *spmd, clv_local_tensor *local);

/* Each collective allocates *out. out may be in, whose memory then lives until the function returns. All of them return
 * the failures listed at clv_spmd_all_reduce. */

/** Reduces the members' shards element by element (sum, maximum, minimum or product); every member gets the result.
 *  `in` must not be sharded over the axes. If it is partial over them, the reduction must be the layout's; if it is
 *  not, each member contributes its replica.
 *  @return CLV_EINVAL for a layout, dimension or reduction that does not match the axes; clv_layout_parse's failures
 *          for invalid axes; CLV_EPEER and CLV_ETIMEOUT as above; CLV_ECANCELLED; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_spmd_all_reduce(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                                clv_reduction reduction, const char *axes, clv_error *err);
/** clv_spmd_all_reduce of which each member gets one block: the result is sharded over the axes along dimension `dim`.
 *  @return clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_reduce_scatter(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                                    clv_reduction reduction, int dim, const char *axes, clv_error *err);
/** Every member gets the blocks of all members: the result is no longer sharded over the axes.
 *  @return clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_all_gather(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                                const char *axes, clv_error *err);
/** Moves the sharding over the axes from other dimensions to dimension `dim`. @return clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_all_to_all(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                                int dim, const char *axes, clv_error *err);
/** A transfer of a permute: member `to` gets the shard of member `from`. */
typedef struct clv_spmd_pair {
    int from, to;
} clv_spmd_pair;
/** Sends shards between members. A member that is in no pair's `to` gets zeros.
 *  @return CLV_EINVAL for members that are not in the group, or a member that receives twice; clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_permute(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                             const clv_spmd_pair *pairs, int n_pairs, const char *axes, clv_error *err);
/** Ring shift: member i gets the shard of member i - by, modulo the group's size. @return clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_shift(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                           int64_t by, const char *axes, clv_error *err);
/** Every member gets the shard of member `root`.
 *  @return CLV_EINVAL for a root that is not in the group; clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_broadcast(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                               int root, const char *axes, clv_error *err);
/** Returns when all members have called it. @return clv_spmd_all_reduce's */
CLV_EXPERIMENTAL clv_status clv_spmd_barrier(clv_spmd *spmd, const char *axes, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
