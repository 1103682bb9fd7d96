/* forwarder.h - a model run on batches of any shape: hidden states, logits, or how unlikely given tokens are. */
#ifndef CLEAVE_INFER_FORWARDER_H
#define CLEAVE_INFER_FORWARDER_H

#include "models/checkpoint.h"

typedef enum clv_forward_result {
    CLV_FORWARD_HIDDEN, /* [B,S,M] after the final norm */
    CLV_FORWARD_LOGITS, /* [B,S,V] */
    CLV_FORWARD_NLL     /* [B,S] -log p of each label; 0 where the label is CLV_FORWARD_IGNORED. Logits stay split */
} clv_forward_result;

enum { CLV_FORWARD_IGNORED = -100 };

typedef struct clv_forwarder_options {
    clv_axis_rules rules;
    clv_dtype dtype; /* of weights and activations; results are f32 */
    int threads_per_rank;
    clv_forward_result result;
    bool check; /* as clv_session_options says it */
} clv_forwarder_options;

typedef struct clv_forwarder clv_forwarder;

/* Model and checkpoint are borrowed. Free with clv_forwarder_free.
 * @return CLV_EUNSUPPORTED when logits are asked of a model without a head */
clv_status clv_forwarder_new(clv_forwarder **out, const clv_model_config *model, clv_checkpoint *weights,
                             const clv_mesh *mesh, const clv_forwarder_options *options, clv_error *err);
void clv_forwarder_free(clv_forwarder *forwarder);

typedef struct clv_forward_batch {
    int64_t batch, seq;
    const int32_t *ids;    /* [B,S] */
    const uint8_t *mask;   /* [B,S] 1 = a token */
    const int32_t *labels; /* [B,S] with NLL */
} clv_forward_batch;

/* A program is made when the shape changes: calls of one shape belong together. */
clv_status clv_forwarder_run(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out, clv_error *err);

typedef struct clv_forward_place {
    int64_t row, token; /* row < 0: none */
    double value;
} clv_forward_place;

/* The first result that is NaN or infinite where results count: at tokens, with NLL at those whose loss was asked for. */
clv_forward_place clv_forwarder_first_nonfinite(const clv_forwarder *forwarder, const clv_forward_batch *batch,
                                                const float *out);
/* Runs a batch once more, to find the first instruction whose result is not finite: CLV_ENONFINITE names it, CLV_OK says that
 * there is none. Reads the weights again; so do all runs after it look. */
clv_status clv_forwarder_find_nonfinite(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                        clv_error *err);

#endif
