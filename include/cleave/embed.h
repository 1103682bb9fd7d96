/** @file embed.h - vectors of texts and proteins: a model's last hidden states, pooled or not. */
#ifndef CLEAVE_EMBED_H
#define CLEAVE_EMBED_H

#include "cleave/forward.h"
#include "cleave/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Of the hidden states of a sequence's tokens, those that the tokenizer adds among them. */
typedef enum clv_pooling {
    CLV_POOL_MEAN, /**< over all tokens, in f64 */
    CLV_POOL_CLS,  /**< the first */
    CLV_POOL_LAST, /**< the last */
    CLV_POOL_NONE  /**< all of them */
} clv_pooling;

/** Zero-initialised = defaults. */
typedef struct clv_embed_options {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    clv_pooling pooling;
    int64_t batch_tokens; /**< tokens that run side by side, about; 0: 4096 */
    int allow_nonfinite;  /**< nonzero: states that are NaN or infinite are given, too; else they are CLV_ENONFINITE */
} clv_embed_options;

/** Takes the vectors of sequence i: rows [n_rows, width], borrowed; n_rows is 1 where pooled, else its tokens. A
 *  failure ends all. */
typedef clv_status clv_embed_callback(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width,
                                      clv_error *err);

/** Runs all sequences, sorted by length in batches of few shapes, and gives each one's vectors to `take`, in any order,
 *  on the caller's thread. forwarder: made for CLV_FORWARD_HIDDEN, of the model that the sequences are of. options may
 *  be NULL.
 *  @return CLV_ENONFINITE naming sequence and token, and where it begins; what `take` returns; clv_forwarder_run's */
CLV_API clv_status clv_embed(clv_forwarder *forwarder, const clv_sequences *sequences, const clv_embed_options *options,
                             clv_embed_callback *take, void *arg, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
