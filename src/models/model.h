/* model.h - struct clv_model, and its functions for train and infer: compile, sessions, token checks. */
#pragma once

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/weights/model_weights.h"

struct clv_model {
    char *path; /* of the folder or config.json; "": no folder */
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
    clv_model_weights *adapter_weights; /* NULL: new adapters */
    clv_model_weights *weights;         /* NULL: config only, or a new model */
    clv_warnings warnings;
    clv_quant quant;
    struct clv_model_cache { /* filled by use of the model; guarded by its lock */
        pthread_mutex_t lock;
        clv_tokenizer *tokenizer; /* NULL: not opened yet */
        void *generation;         /* of infer/generation/generation_config.c; NULL: not read yet */
        void (*free_generation)(void *generation);
        struct clv_kept_scales *scales; /* of quantized_weights.c */
    } * cache;
};

/* Keeps the first `layers` layers and `vocab` tokens (0: all) of a model that was opened without weights. */
void clv_model_truncate(clv_model *model, int64_t layers, int64_t vocab);

/* Predicts the time of its head in layers, for rules with an axis of stages whose layers are not stated. */
void clv_model_balance_stages(clv_model *model);

/* What a training step needs: bytes of a rank of each stage, and seconds. */
typedef struct clv_stage_needs {
    double bytes[CLV_MAX_STAGES], seconds;
} clv_stage_needs;
/* Compiles the step by such rules and schedule, and writes what it needs. */
typedef clv_status clv_try_stages(clv_stage_needs *out, void *arg, const clv_axis_rules *rules,
                                  clv_plan_schedule schedule, clv_error *err);

/* Calls attempt(arg) with the model's rules and schedule. Where the rules leave the layers of stages open, and a stage
 * needs more than its memory, it is called again with others: of splits that fit the one whose longest stage is the
 * shortest, or the first one if none is found; and with CLV_SCHEDULE_AUTO so for each schedule, of which the fastest
 * that fits is taken. The last call is with the rules that are left in *out. */
clv_status clv_model_fit_stages(clv_axis_rules *out, const clv_model *model, clv_try_stages *attempt, void *arg,
                                clv_error *err);
/* What a compiled step needs. */
clv_status clv_stage_needs_read(clv_stage_needs *out, const clv_program *program, const clv_machine *machine,
                                clv_error *err);

/* The mask token: config.json's, else the tokenizer's [MASK]. @return CLV_EUNSUPPORTED without one */
clv_status clv_model_mask_token(int64_t *out, const clv_model *model, clv_error *err);

#define CLV_GENERATION_FILE "generation_config.json"

/* Checks that all ids are in the model's vocabulary. @return CLV_EINVAL naming the text, `where`, and the first invalid
 * token; tokenizer NULL: only its id */
clv_status clv_model_check_tokens(const clv_model *model, const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n,
                                  const char *where, clv_error *err);

/* Sets *how, if it is CLV_QUANT_NONE, to the quantization that the folder stores. @return CLV_EINVAL if they differ */
clv_status clv_quant_resolve(clv_quant *how, const char *path, clv_quant stored, clv_error *err);

/* A call of clv_model_state_source for a state of a parameter. */
typedef struct clv_state_read_request {
    clv_model *model;
    clv_parameter parameter;
    const char *name; /* of the state */
    const clv_type *type;
    const clv_shard *box;
    void *out;
} clv_state_read_request;

/* Adds a forward pass with the inputs "ids" and "labels", and "mask" and "token_types" if they are asked for, whose
 * output "loss" is the mean cross-entropy. */
void clv_model_loss(clv_graph *graph, const clv_model *model, const clv_model_graph_options *how);

/* clv_compile with the model's options. */
clv_status clv_model_compile(clv_program **out, const clv_model *model, const clv_graph *graph, clv_error *err);

/* The model's options of a session, with clv_model_state_source. */
clv_session_options clv_model_session_options(const clv_model *model);
clv_status clv_model_open_session(clv_session **out, const clv_model *model, bool find_nonfinite, clv_error *err);
/* Fails with CLV_ENONFINITE: "<name> is nan; it begins at <origin>". origin: the error of a run with find_nonfinite. */
clv_status clv_model_fail_nonfinite(const char *name, double value, const clv_error *origin, clv_error *err);
