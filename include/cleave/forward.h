/** @file forward.h - a model run on batches of any shape: hidden states, logits, or how unlikely given tokens are.
 *
 * A forwarder holds the weights on the model's mesh. One thread at a time may use it; it must be freed before its model
 * is closed.
 */
#ifndef CLEAVE_FORWARD_H
#define CLEAVE_FORWARD_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a run gives. */
typedef enum clv_forward_result {
    CLV_FORWARD_HIDDEN, /**< [B,S,M] after the final norm */
    CLV_FORWARD_LOGITS, /**< [B,S,V] */
    CLV_FORWARD_NLL     /**< [B,S] -log p of each label; 0 where the label is CLV_IGNORE_INDEX. Logits stay split */
} clv_forward_result;

/** Zero-initialised = defaults. */
typedef struct clv_forwarder_options {
    size_t size;               /**< sizeof the struct; 0: as its first version had it */
    clv_forward_result result; /**< what runs give */
} clv_forwarder_options;

/** A model with its weights on the ranks of its mesh. */
typedef struct clv_forwarder clv_forwarder;

/** options may be NULL: hidden states. The model is borrowed. Free with clv_forwarder_free.
 *  @return CLV_EUNSUPPORTED when logits are asked of a model without a head; CLV_EINVAL for a result that there is not;
 *          CLV_ENOMEM */
CLV_API clv_status clv_forwarder_new(clv_forwarder **out, const clv_model *model, const clv_forwarder_options *options,
                                     clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_forwarder_free(clv_forwarder *forwarder);

/** Sequences side by side, padded to one length. */
typedef struct clv_forward_batch {
    size_t size;           /**< sizeof the struct; 0: as its first version had it */
    int64_t batch, seq;    /**< B, S, each at least 1 */
    const int32_t *ids;    /**< [B,S] */
    const uint8_t *mask;   /**< [B,S] 1 = a token, 0 = padding */
    const int32_t *labels; /**< [B,S] with CLV_FORWARD_NLL: of the vocabulary, or CLV_IGNORE_INDEX */
} clv_forward_batch;

/** Runs a batch; out, f32, has as many elements as the result. A program is made when the shape changes: calls of one
 *  shape belong together. The first run reads the weights. After a failure of the ranks the forwarder is of no further
 *  use.
 *  @return CLV_EINVAL for an id outside the vocabulary, or more tokens than the model takes; CLV_ENOMEM; what reading
 *          the weights returns */
CLV_API clv_status clv_forwarder_run(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                     clv_error *err);

/** A place in a batch. A plain value, which stays as it is. */
typedef struct clv_forward_position {
    int64_t row, token; /**< row < 0: none */
    double value;
} clv_forward_position;

/** The first result that is NaN or infinite where results count: at tokens, with CLV_FORWARD_NLL at those whose loss
 *  was asked for. */
CLV_API clv_forward_position clv_forwarder_first_nonfinite(const clv_forwarder *forwarder,
                                                           const clv_forward_batch *batch, const float *out);
/** Runs a batch once more, to find the first instruction whose result is not finite: CLV_ENONFINITE names it, CLV_OK
 *  says that there is none. Reads the weights again; so do all runs after it look. */
CLV_API clv_status clv_forwarder_find_nonfinite(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                                clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
