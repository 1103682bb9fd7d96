/** @file forward.h - runs a model on batches of any shape: hidden states, logits, or the loss of each label.
 *
 * A forwarder holds a model's weights on the ranks of its mesh. Only one thread at a time may use a forwarder. Free it
 * before you close its model.
 */
#ifndef CLEAVE_FORWARD_H
#define CLEAVE_FORWARD_H

#include "cleave/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a run. */
typedef enum clv_forward_result {
    CLV_FORWARD_HIDDEN, /**< hidden states [B,S,M] after the final norm */
    CLV_FORWARD_LOGITS, /**< logits [B,S,V] */
    CLV_FORWARD_NLL     /**< [B,S] -log p of each label; 0 for CLV_IGNORE_INDEX. Logits are never gathered */
} clv_forward_result;

/** Zero-initialised = defaults. */
typedef struct clv_forwarder_options {
    size_t size;               /**< sizeof the struct, or 0 */
    clv_forward_result result; /**< the result of every run */
} clv_forwarder_options;

/** A model with its weights on the ranks of its mesh. */
typedef struct clv_forwarder clv_forwarder;

/** Creates a forwarder. options may be NULL: hidden states. The model is borrowed. Free with clv_forwarder_free.
 *  @return CLV_EUNSUPPORTED for logits or losses of a model without a head; CLV_EINVAL for an invalid result;
 *          CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_forwarder_new(clv_forwarder **out, const clv_model *model,
                                              const clv_forwarder_options *options, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_forwarder_free(clv_forwarder *forwarder);

/** A batch of sequences, padded to one length. */
typedef struct clv_forward_batch {
    size_t size;           /**< sizeof the struct, or 0 */
    int64_t batch, seq;    /**< B and S, each at least 1 */
    const int32_t *ids;    /**< [B,S] */
    const uint8_t *mask;   /**< [B,S]: 1 = token, 0 = padding */
    const int32_t *labels; /**< [B,S], for CLV_FORWARD_NLL: token ids, or CLV_IGNORE_INDEX */
} clv_forward_batch;

/** Runs a batch. out is f32 of the result's shape. A batch of another shape than the last compiles a new program, so
 *  group batches by shape. The first run reads the weights. If a rank fails, the forwarder cannot be used any more.
 *  @return CLV_EINVAL for an id outside the vocabulary, or more tokens than the model's maximum; CLV_ENOMEM; errors of
 *          reading weights */
CLV_EXPERIMENTAL clv_status clv_forwarder_run(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                              clv_error *err);

/** Runs a batch again and stops at the first instruction with a non-finite result: CLV_ENONFINITE names it; CLV_OK: all
 *  results are finite. Reads the weights again. Later runs of the forwarder make the same check. */
CLV_EXPERIMENTAL clv_status clv_forwarder_find_nonfinite(clv_forwarder *forwarder, const clv_forward_batch *batch,
                                                         float *out, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
