/** @file spmd.h - one's own function on every rank, with collectives by hand (JAX's shard_map).
 *
 * Beside programs, whose collectives the compiler finds (program.h), a session runs functions of the caller's: each
 * rank gets its shards of the inputs and a communicator; what it leaves as outputs is joined to whole tensors. Ranks,
 * transport, deadlines and bits are those of programs: sums run over members in order, bf16 and f16 in f32, rounded
 * once.
 *
 * c = a b, the inner dimension cut over y: each rank multiplies what it has, then the addends are summed.
 * @code
 * static clv_status body(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out, clv_error *err)
 * {
 *     clv_local_tensor c;
 *     CLV_TRY(clv_spmd_zeros(&c, spmd, CLV_F32, 2, (int64_t[]){4, 4}, "_,_ + sum{y}", err));
 *     multiply(c.data, &in[0], &in[1]);   // the caller's: local shapes are shard.hi[d] - shard.lo[d]
 *     return clv_spmd_all_reduce(&out[0], spmd, &c, CLV_REDUCTION_SUM, "y", err);
 * }
 * ...
 * clv_spmd_input in[] = {{{CLV_F32, 2, {4, 16}}, "_,y", a}, {{CLV_F32, 2, {16, 4}}, "y,_", b}};
 * clv_spmd_output out = {{CLV_F32, 2, {4, 4}}, "_,_", c};
 * CLV_TRY(clv_spmd_run(session, body, NULL, in, 2, &out, 1, NULL, err));
 * @endcode
 *
 * **Collectives** go over axes of the mesh, by name: "y", "x,y" (in the order of the mesh, however they are written), a
 * part "y:(2)2", or "" for none. All ranks that differ only on them form a group, and all members make the same calls
 * in the same order: kind, tensor, layout and axes. Else each gets CLV_EPEER naming two ranks and what either called,
 * or CLV_ETIMEOUT naming those that did not come; never wrong data. Any layout, any dtype, blocks of any size, empty
 * ones too.
 *
 * **Failure.** A rank whose function fails ends the run: the others return from their collectives with CLV_EPEER, and
 * clv_spmd_run with the first failure, err->rank saying whose. The session is then poisoned, as after a failed program.
 * What ends runs (cancel.h) ends a function at its next collective.
 *
 * **A function that does not return.** While all ranks compute, they may as long as they like. Once one has returned,
 * or the end was asked for by cancel.h, each of the others is to return or to call a collective within twice
 * clv_session_options.timeout_ms, again and again; else clv_spmd_run returns CLV_ETIMEOUT naming those that did not.
 * Such a rank's thread may still be in the function: then arg, inputs and outputs outlive the session, and
 * clv_session_free, which waits for it once more as long as timeout_ms, leaves thread and memory to the process.
 *
 * A function does not use its session but by its communicator: clv_spmd_run, clv_session_read and the like are
 * CLV_EINVAL inside it, at once.
 *
 * **What a session keeps.** Each collective of another kind, type, layout or axes is planned once, and the plan kept
 * until the session is freed: some KiB. A function that meets ever new shapes makes it grow.
 *
 * **What cannot be seen.** A local is taken at its word: its type, layout and shard must fit each other and what the
 * other members say, but nothing tells what `data` points to. Where that is less memory than the shard has elements, or
 * other elements than the layout says, the collective reads and writes past its end, or its result is wrong.
 *
 * A communicator, and locals, belong to one rank's thread, and to the call of the function that they were given to.
 */
#ifndef CLEAVE_SPMD_H
#define CLEAVE_SPMD_H

#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A rank's communicator. */
typedef struct clv_spmd clv_spmd;

/** A rank's part of a tensor. Memory that the library made lives until the function returns, or clv_spmd_free. */
typedef struct clv_local_tensor {
    clv_type type;     /**< of the whole tensor */
    clv_layout layout; /**< where its parts are; over partial axes, ranks hold addends */
    clv_shard
        shard; /**< what this rank holds of it: by the layout, or what clv_spmd_permute or clv_spmd_broadcast brought */
    void *data;          /**< the shard's elements, row-major, without gaps */
    const int *from;     /**< the library's own: whose shard each rank holds; NULL: its own */
    int64_t reserved[4]; /**< zeros */
} clv_local_tensor;

/** What each rank runs. in[i]: its shard of input i, a copy of its own. out[i]: zeros of its shard of output i, to be
 *  filled, or to be replaced by a local of the same type and shard. */
typedef clv_status clv_spmd_function(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                                     clv_error *err);

/** A whole tensor that ranks get shards of (an in_spec). */
typedef struct clv_spmd_input {
    clv_type type;
    const char *layout; /**< layout.h's text form; partial: coordinate 0 of those axes gets the values, others what
                             changes nothing */
    const void *data;   /**< row-major */
} clv_spmd_input;

/** A whole tensor that ranks' shards make (an out_spec). */
typedef struct clv_spmd_output {
    clv_type type;
    const char *layout; /**< partial: reduced by an all_reduce behind the function. Of replicas that of the first rank
                             is taken: see that they are equal */
    void *data;         /**< row-major */
} clv_spmd_output;

/** Zero-initialised = defaults. */
typedef struct clv_spmd_options {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    int n_groups;
    const char *const *groups; /**< axes that collectives go over, beside all subsets of the mesh's axes (of the first 6
                                    that have more than one rank): needed for parts of axes, and for more axes */
} clv_spmd_options;

/** Runs a function on every rank of the session's mesh; options may be NULL.
 *  @return CLV_EINVAL, CLV_ESYNTAX, CLV_EAXIS, CLV_ESHAPE for what does not fit, naming input or output; what the
 *          function returned, or CLV_EINVAL when that was no status; CLV_EPEER, CLV_ETIMEOUT; CLV_ENOMEM */
CLV_API clv_status clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg,
                                const clv_spmd_input *inputs, int n_inputs, const clv_spmd_output *outputs,
                                int n_outputs, const clv_spmd_options *options, clv_error *err);

/** The collectives among more than one rank that rank 0 made in the session's last clv_spmd_run, in order: kind, axes,
 *  bytes, layouts and type as clv_program_collective has them; texts that say why are NULL. A
 *  broadcast is a "permute". */
CLV_API int clv_spmd_collective_count(const clv_session *session);
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for one that there is not */
CLV_API clv_status clv_spmd_collective(const clv_session *session, int i, clv_collective *out, clv_error *err);

/* ---- inside the function ---- */

/** The rank that this call runs on. */
CLV_API int clv_spmd_rank(const clv_spmd *spmd);
/** Its session's mesh, borrowed. */
CLV_API const clv_mesh *clv_spmd_mesh(const clv_spmd *spmd);
/** The size of the rank's group over axes, and its index there (first axis major); either may be NULL.
 *  @return clv_layout_parse's, of axes that there are not or that cannot be read; CLV_ENOMEM */
CLV_API clv_status clv_spmd_group(int *size, int *index, clv_spmd *spmd, const char *axes, clv_error *err);

/** A local of zeros, in a layout (text form). Its memory is the library's.
 *  @return clv_layout_parse's, clv_shape_check's and clv_layout_check's; CLV_ENOMEM */
CLV_API clv_status clv_spmd_zeros(clv_local_tensor *out, clv_spmd *spmd, clv_dtype dtype, int rank,
                                  const int64_t *shape, const char *layout, clv_error *err);
/** This rank's shard of a state of the session, where it lies: what is written there stays.
 *  @return CLV_ENOTFOUND; CLV_EUNSUPPORTED where the session's device has memory of its own */
CLV_API clv_status clv_spmd_state(clv_local_tensor *out, clv_spmd *spmd, const char *name, clv_error *err);
/** Gives the memory of a local back before the function returns; local may be NULL, data becomes NULL. */
CLV_API void clv_spmd_free(clv_spmd *spmd, clv_local_tensor *local);

/* Each collective makes *out, in memory of its own; out may be in, whose memory stays until the function returns. What
 * all of them return is said of clv_spmd_all_reduce. */

/** The sum (maximum, minimum, product) of what the members hold, on all of them. The axes do not cut `in`; where it is
 *  partial over them it is by this reduction, else each member's value counts.
 *  @return CLV_EINVAL for a tensor, dimension or reduction that does not fit the axes; clv_layout_parse's of them;
 *          CLV_EPEER and CLV_ETIMEOUT as said above; CLV_ECANCELLED; CLV_ENOMEM */
CLV_API clv_status clv_spmd_all_reduce(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                       clv_reduction reduction, const char *axes, clv_error *err);
/** The same, of which each member gets a block of dimension `dim`, which the axes cut then.
 *  @return clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_reduce_scatter(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                           clv_reduction reduction, int dim, const char *axes, clv_error *err);
/** All members' blocks, on each: the dimensions that the axes cut are cut by them no more.
 *  @return clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_all_gather(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                       const char *axes, clv_error *err);
/** Blocks of other dimensions for blocks of `dim`, which the axes cut then. @return clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_all_to_all(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int dim,
                                       const char *axes, clv_error *err);
/** Member `to` gets the shard that member `from` holds. */
typedef struct clv_spmd_pair {
    int from, to;
} clv_spmd_pair;
/** Nobody gets two; who gets none has zeros of its own shard.
 *  @return CLV_EINVAL for pairs that are not of the group, or give a member two; clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_permute(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in,
                                    const clv_spmd_pair *pairs, int n_pairs, const char *axes, clv_error *err);
/** A ring: member i gets what member i - by holds, around. @return clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_shift(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int64_t by,
                                  const char *axes, clv_error *err);
/** Every member gets what member `root` holds.
 *  @return CLV_EINVAL for a root that is not of the group; clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_broadcast(clv_local_tensor *out, clv_spmd *spmd, const clv_local_tensor *in, int root,
                                      const char *axes, clv_error *err);
/** Comes back when all members have called it. @return clv_spmd_all_reduce's */
CLV_API clv_status clv_spmd_barrier(clv_spmd *spmd, const char *axes, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
