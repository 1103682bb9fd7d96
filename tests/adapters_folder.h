/* adapters_folder.h - makes a folder of adapters (LoRA) for a model, by a few training steps. */
#ifndef ADAPTERS_FOLDER_H
#define ADAPTERS_FOLDER_H

#include <stdint.h>

#include "must.h"

#include "cleave/train.h"

/* Trains adapters a little on the base at `path`, which has a vocabulary of so many tokens. */
static inline void write_adapters(const char *out, const char *path, int32_t vocab)
{
    enum { BATCH = 2, SEQ = 8, STEPS = 4 };
    const clv_lora_options lora = {.size = sizeof lora, .rank = 3, .alpha = 6, .targets = "all-linear"};
    const clv_lr_schedule schedule = {.peak = 0.03, .warmup = 1, .steps = STEPS};
    const clv_model_options options = {.size = sizeof options, .lora = &lora};
    const clv_trainer_options of = {.size = sizeof of, .batch = BATCH, .seq = SEQ, .schedule = &schedule};
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_error err = {0};
    clv_model *model;
    clv_trainer *trainer;
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i * 7 % vocab;
        labels[i] = (i * i + 3) % vocab;
    }
    must(clv_model_open(&model, path, &options, &err), &err);
    must(clv_trainer_new(&trainer, model, &of, &err), &err);
    for (int step = 0; step < STEPS; step++)
        must(clv_trainer_step(trainer, ids, labels, NULL, NULL, &err), &err);
    must(clv_trainer_save_adapters(trainer, out, &err), &err);
    clv_trainer_free(trainer);
    clv_model_close(model);
}

#endif
