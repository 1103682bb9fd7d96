/* llama.h - a Llama-form model as a graph: for training, for a prompt, for one more token. */
#ifndef CLEAVE_MODELS_LLAMA_H
#define CLEAVE_MODELS_LLAMA_H

#include "cleave/nn.h"
#include "cleave/session.h"
#include "models/llama_config.h"
#include "models/llama_weights.h"

typedef struct clv_llama_build {
    int64_t batch, seq; /* of this graph's ids [B,S] */
    clv_axis_rules rules;
    clv_dtype dtype;  /* of weights and activations */
    int64_t context;  /* > 0: with a KV cache of this many positions; the graph gets an input "offset" */
    bool last_logits; /* only of the last row: [B,1,V] */
} clv_llama_build;

/* Adds the model: input "ids" i32 [B,S] -> logits [B,S,V], split over the vocabulary. Failures are recorded in the graph. */
clv_value clv_llama_forward(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build);

typedef struct clv_llama_train_options {
    clv_adamw_options adamw; /* norms are not decayed */
} clv_llama_train_options;

/* Adds a whole training step: inputs "ids", "labels" i32 [B,S] (-100: ignored), "lr" f32, "step" i32 (1 at first);
 * output "loss" f32 scalar, the mean over labels. */
void clv_llama_train_step(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build,
                          const clv_llama_train_options *options);

/* Adds inference: output "logits" [B,S,V] (or [B,1,V]), whole. */
void clv_llama_inference(clv_graph *graph, const clv_llama_config *config, const clv_llama_build *build);

/* Writes the model's state as a Hugging Face folder (config.json, model.safetensors), made if it is missing. */
clv_status clv_llama_save(const clv_session *session, const clv_llama_config *config, const char *folder,
                          clv_error *err);
/* Fills the model's state, which must exist (a program is loaded), from such a folder; reads each element once. */
clv_status clv_llama_load(clv_session *session, const clv_llama_config *config, const char *folder, clv_error *err);

#endif
