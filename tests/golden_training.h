/* golden_training.h - what torch's trainings of golden/make_train.py were made with: their batches, and trainers that
 * update as they did. */
#pragma once

#include <stdbool.h>

#include "cleave/train.h"

enum { GOLDEN_STEPS = 20, GOLDEN_PARTS = 4 /* of a step, where it has some */, GOLDEN_IDS = GOLDEN_PARTS * 64 };

typedef struct golden_batch {
    int64_t rows, seq;
    bool padded;
    int32_t ids[GOLDEN_IDS], labels[GOLDEN_IDS];
    uint8_t mask[GOLDEN_IDS];
} golden_batch;

/* Task "causal": each token's label is the next, and the last of a row has none. Else what is masked has labels of its
 * own; and padding, if it is not to be known as such ("padded"), is a token like others. */
void golden_batch_read(golden_batch *batch, const char *model, const char *task);
/* Each row as often as there are parts, so that losses and gradients are the same, and parts of it are not alike. */
void golden_batch_repeat(golden_batch *batch);

double golden_rate(clv_optimizer optimizer);
clv_status golden_trainer(clv_trainer **out, const clv_model *model, const golden_batch *batch, clv_optimizer optimizer,
                          int64_t parts, double bias_rate, clv_error *err);
