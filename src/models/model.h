/* model.h - struct clv_model and what train and infer need of it: compile, session options, token checks. */
#ifndef CLEAVE_MODELS_MODEL_H
#define CLEAVE_MODELS_MODEL_H

#include <pthread.h>

#include "models/weights/quantized_weights.h"

struct clv_model {
    char *path; /* the folder, or a config.json */
    clv_model_config config;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_dtype dtype;
    clv_compile_options compile;
    int threads_per_rank;
    int64_t timeout_ms;
    bool check, f32_gradients;
    const clv_cancel *cancel;           /* NULL: none */
    clv_machine *machine;               /* compile.machine, owned */
    clv_job *job;                       /* NULL: one process has all ranks */
    clv_flight *flight;                 /* NULL: none */
    struct clv_adapters *adapters;      /* NULL: none */
    clv_model_weights *adapter_weights; /* NULL: they begin anew */
    clv_model_weights *weights;         /* NULL: of config.json alone */
    clv_warnings warnings;
    clv_quant quant;
    clv_quant_reader *quant_reader; /* NULL: weights are floats */
    struct clv_model_text {         /* what becomes known later; guarded by its lock */
        pthread_mutex_t lock;
        clv_tokenizer *tokenizer; /* NULL: not asked for yet, as the next */
        void *generation;         /* infer/generation/generation_config.h's, which is above models, */
        void (*free_generation)(void *generation);
    } * text;
};

/* Its mask token: config.json's, else [MASK] of its tokenizer. @return CLV_EUNSUPPORTED without one */
clv_status clv_model_mask_token(int64_t *out, const clv_model *model, clv_error *err);

/* In a model's folder, what its texts are made by. */
#define CLV_GENERATION_FILE "generation_config.json"

/* That the model has a row for each id of a text. @return CLV_EINVAL naming the text, `where`, and the first token that
 * has none; tokenizer NULL: by its id alone */
clv_status clv_model_check_tokens(const clv_model *model, const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n,
                                  const char *where, clv_error *err);

/* `how` weights are quantised that a folder has as `stored`: so again, where nothing else is asked for.
 * @return CLV_EINVAL where the two differ */
clv_status clv_quant_resolve(clv_quant *how, const char *path, clv_quant stored, clv_error *err);

/* clv_update_options as its first version had it. */
enum { CLV_UPDATE_OPTIONS_V1_SIZE = offsetof(clv_update_options, accumulate) };

/* clv_compile of a graph of it, priced by its machine. */
clv_status clv_model_compile(clv_program **out, const clv_model *model, const clv_graph *graph, clv_error *err);

/* Options of a session that runs it: its threads, and where its state begins. */
clv_session_options clv_model_session_options(const clv_model *model);
clv_status clv_model_open_session(clv_session **out, const clv_model *model, bool find_nonfinite, clv_error *err);
/* Fails with CLV_ENONFINITE: "<name> is nan; it begins at <origin>". origin: the error of a run with find_nonfinite. */
clv_status clv_model_fail_nonfinite(const char *name, double value, const clv_error *origin, clv_error *err);

#endif
