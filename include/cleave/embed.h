/** @file embed.h - embeddings of texts and proteins: a model's last hidden states, pooled or per token. */
#ifndef CLEAVE_EMBED_H
#define CLEAVE_EMBED_H

#include "cleave/forward.h"
#include "cleave/sequences.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How the hidden states of a sequence's tokens, special tokens included, are pooled. */
typedef enum clv_pooling {
    CLV_POOL_MEAN, /**< mean over all tokens, in f64 */
    CLV_POOL_CLS,  /**< first token */
    CLV_POOL_LAST, /**< last token */
    CLV_POOL_NONE  /**< no pooling: a row per token */
} clv_pooling;

/** Zero-initialised = defaults. */
typedef struct clv_embed_options {
    size_t size; /**< sizeof the struct, or 0 */
    clv_pooling pooling;
    int64_t batch_tokens; /**< tokens per batch, about; 0: 4096 */
    int allow_nonfinite;  /**< nonzero: returns NaN and infinite states; else they are CLV_ENONFINITE */
} clv_embed_options;

/** Receives the embedding of sequence i: rows [n_rows, width], borrowed; n_rows is 1 when pooled, else the number of
 *  tokens. A failure stops clv_embed. */
typedef clv_status clv_embed_callback(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width,
                                      clv_error *err);

/** Embeds all sequences, sorted by length into batches of few shapes, and calls `take` for each one, in any order, on
 *  the caller's thread. The forwarder must give CLV_FORWARD_HIDDEN, and have the model of the sequences. options may be
 *  NULL.
 *  @return CLV_ENONFINITE naming sequence, token and origin, from then on always (clv_forwarder_find_nonfinite);
 *          errors of `take` and clv_forwarder_run */
CLV_EXPERIMENTAL clv_status clv_embed(clv_forwarder *forwarder, const clv_sequences *sequences,
                                      const clv_embed_options *options, clv_embed_callback *take, void *arg,
                                      clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
