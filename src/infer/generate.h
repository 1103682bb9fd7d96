/* generate.h - text from a Llama-form model, a token at a time: programs for chunks of the prompt and one for a decode
 * step, all sharing weights and KV cache as a session's state. */
#ifndef CLEAVE_INFER_GENERATE_H
#define CLEAVE_INFER_GENERATE_H

#include "infer/sampling.h"
#include "models/checkpoint.h"

typedef struct clv_generator_options {
    clv_axis_rules rules; /* those for seq are left out: a decode step has one token */
    int64_t context;      /* positions of the KV cache; 0: the model's maximum */
    clv_dtype dtype;
    int threads_per_rank;
} clv_generator_options;

typedef struct clv_generator clv_generator;

/* Loads a model's weights onto the mesh; model and checkpoint are borrowed. Free with clv_generator_free. */
clv_status clv_generator_new(clv_generator **out, const clv_model *model, clv_checkpoint *weights, const clv_mesh *mesh,
                             const clv_generator_options *options, clv_error *err);
void clv_generator_free(clv_generator *generator);

/* Feeds n >= 1 tokens after those fed before and gives the logits [V] of the last, borrowed until the next call.
 * @return CLV_EINVAL for an id outside the vocabulary; CLV_ELIMIT when the context is full */
clv_status clv_generator_feed(clv_generator *generator, const int64_t *ids, int64_t n, const float **logits,
                              clv_error *err);
/* Forgets what was fed: the next token stands at position 0. */
void clv_generator_rewind(clv_generator *generator);
/* Chooses the token after the logits given last. */
clv_status clv_generator_sample(clv_generator *generator, const clv_sampling *sampling, int64_t *token, clv_error *err);

#endif
