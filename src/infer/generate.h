/* generate.h - tokens from a decoder, for several sequences side by side: programs for chunks of prompts and one for a decode
 * step, all sharing weights and KV cache as a session's state.
 *
 * Sequences may have different lengths. A chunk has as many tokens for each of them; one that has fewer to feed feeds its last
 * ones again, which writes the same keys and values to the same places.
 */
#ifndef CLEAVE_INFER_GENERATE_H
#define CLEAVE_INFER_GENERATE_H

#include "infer/sampling.h"
#include "models/checkpoint.h"

typedef struct clv_generator_options {
    clv_axis_rules rules; /* those for seq are left out: a decode step has one token */
    int64_t batch;        /* sequences; 0: 1 */
    int64_t context;      /* positions of the KV cache, for each; 0: the model's maximum */
    clv_dtype dtype;
    int threads_per_rank;
    bool check; /* as clv_session_options says it */
} clv_generator_options;

typedef struct clv_generator clv_generator;

/* Loads a model's weights onto the mesh; model and checkpoint are borrowed. Free with clv_generator_free. */
clv_status clv_generator_new(clv_generator **out, const clv_model_config *model, clv_checkpoint *weights,
                             const clv_mesh *mesh, const clv_generator_options *options, clv_error *err);
void clv_generator_free(clv_generator *generator);

/* Appends n >= 0 tokens to a sequence, for the next run.
 * @return CLV_EINVAL for an id outside the vocabulary; CLV_ELIMIT when the context is full */
clv_status clv_generator_feed(clv_generator *generator, int64_t sequence, const int64_t *ids, int64_t n,
                              clv_error *err);
/* Computes what was fed; every sequence has at least one token. */
clv_status clv_generator_run(clv_generator *generator, clv_error *err);
/* Computes all that was fed once more, to find the first instruction whose result is not finite: CLV_ENONFINITE names it. Reads
 * the weights again. */
clv_status clv_generator_find_nonfinite(clv_generator *generator, clv_error *err);
/* [V] of a sequence's last token, borrowed until the next run. */
const float *clv_generator_logits(const clv_generator *generator, int64_t sequence);
/* Chooses the token after it. */
clv_status clv_generator_sample(clv_generator *generator, int64_t sequence, const clv_sampling *sampling,
                                int64_t *token, clv_error *err);
/* Positions that a sequence has left. */
int64_t clv_generator_room(const clv_generator *generator, int64_t sequence);
int64_t clv_generator_batch(const clv_generator *generator);
/* Empties all sequences. */
void clv_generator_rewind(clv_generator *generator);

/* Of the runs since the last call: clv_session_take_stats. */
clv_session_stats clv_generator_take_stats(clv_generator *generator);

#endif
