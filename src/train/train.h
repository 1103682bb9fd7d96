/* train.h - training a byte-level Llama-form model on text: one program a step, run again and again. */
#ifndef CLEAVE_TRAIN_TRAIN_H
#define CLEAVE_TRAIN_TRAIN_H

#include "io/text_data.h"
#include "models/config.h"
#include "train/schedule.h"

typedef struct clv_train_options {
    clv_model_config model;
    clv_axis_rules rules;
    int64_t batch, seq;
    clv_schedule schedule; /* schedule.steps: how long to train */
    clv_adamw_options adamw;
    uint64_t seed; /* of weights and of the order of data */
    int threads_per_rank;
    bool check; /* as clv_session_options says it */
} clv_train_options;

typedef struct clv_trainer clv_trainer;

typedef struct clv_train_step {
    int64_t step; /* from 0 */
    double loss;  /* mean nats a token, before the update */
    double lr;
    double seconds, comm_seconds; /* of this step; communication includes waiting, mean over ranks */
} clv_train_step;

/* Builds and compiles the step and makes the ranks. data is borrowed. Free with clv_trainer_free. */
clv_status clv_trainer_new(clv_trainer **out, const clv_mesh *mesh, const clv_train_options *options,
                           const clv_text_data *data, clv_error *err);
void clv_trainer_free(clv_trainer *trainer);
/* Trains one step. CLV_EINVAL when the loss is no longer a number. */
clv_status clv_trainer_step(clv_trainer *trainer, clv_train_step *result, clv_error *err);
/* What the steps run: for reports. */
const clv_program *clv_trainer_program(const clv_trainer *trainer);
int64_t clv_trainer_parameters(const clv_trainer *trainer);
/* A Hugging Face folder of the weights as they are, with the tokenizer of bytes. */
clv_status clv_trainer_save(const clv_trainer *trainer, const char *folder, clv_error *err);

#endif
