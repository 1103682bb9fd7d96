/* trained_model.h - a model and its trainer, with batches that depend on the step number alone. */
#pragma once

#include "cleave/train.h"
#include "must.h"

enum { TRAINED_VOCAB = 50, TRAINED_TOKENS = 32 /* of a batch, at most */ };

typedef struct trained {
    clv_model *model;
    clv_trainer *trainer;
    int tokens; /* of a batch */
} trained;

/* Frees both. */
static inline void end(const trained *t)
{
    clv_trainer_free(t->trainer);
    clv_model_close(t->model);
}

/* Steps from where it is up to `to`. */
static inline void train(const trained *t, int to, double *losses)
{
    clv_error err = {0};
    assert_in_range(t->tokens, 1, TRAINED_TOKENS);
    for (int64_t step = clv_trainer_steps_done(t->trainer); step < to; step++) {
        int32_t ids[TRAINED_TOKENS], labels[TRAINED_TOKENS];
        clv_train_step did = {.size = sizeof did};
        for (int i = 0; i < t->tokens; i++) {
            ids[i] = (int32_t)((i * 7 + step * 13) % TRAINED_VOCAB);
            labels[i] = (int32_t)((i * 7 + step * 13 + 7) % TRAINED_VOCAB);
        }
        must(clv_trainer_step(t->trainer, ids, labels, NULL, &did, &err), &err);
        assert_int_equal(did.step, step);
        losses[step] = did.loss;
    }
}
