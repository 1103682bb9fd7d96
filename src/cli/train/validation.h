/* validation.h - validation loss of a trainer on held-out data. */
#ifndef CLEAVE_CLI_TRAIN_VALIDATION_H
#define CLEAVE_CLI_TRAIN_VALIDATION_H

#include "cleave/train.h"
#include "cli/train/training_data.h"

/* *loss: the mean, in nats a label, over all labels of the data's `val`, each sequence once; nothing of the trainer
 * changes. b: memory of a batch of `batch` rows. */
clv_status clv_train_validate(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch,
                              const clv_train_batch *b, clv_error *err);

#endif
