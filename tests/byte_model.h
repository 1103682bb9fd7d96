/* byte_model.h - a small model of bytes: makes its folder, with random weights and a tokenizer. */
#ifndef CLEAVE_TESTS_BYTE_MODEL_H
#define CLEAVE_TESTS_BYTE_MODEL_H

#include "cleave/train.h"
#include "must.h"

static const clv_lr_schedule byte_model_schedule = {.peak = 1e-3, .steps = 2};
static const clv_trainer_options byte_model_step = {.batch = 1, .seq = 4, .schedule = &byte_model_schedule};

/* Opens it, too. */
static inline clv_model *byte_model(const char *path)
{
    const clv_model_info sizes = {
        .hidden = 8, .layers = 1, .heads = 2, .ffn = 8, .vocab = 256, .bos = -1, .pad = -1, .mask = -1};
    clv_error err = {0};
    clv_model *model;
    clv_trainer *trainer;
    must(clv_model_new(&model, &sizes, NULL, &err), &err);
    must(clv_trainer_new(&trainer, model, &byte_model_step, &err), &err);
    must(clv_trainer_save(trainer, path, &err), &err);
    must(clv_tokenizer_write_bytes(path, &err), &err);
    clv_trainer_free(trainer);
    clv_model_close(model);
    must(clv_model_open(&model, path, NULL, &err), &err);
    return model;
}

#endif
