/* train_val.h - how well a model does on data that it is not trained on. */
#ifndef CLEAVE_CLI_TRAIN_VAL_H
#define CLEAVE_CLI_TRAIN_VAL_H

#include "cleave/train.h"
#include "cli/train_data.h"

/* *loss: the mean, in nats a label, over all labels of the data's `val`, each sequence once; nothing of the trainer
 * changes. b: memory of a batch of `batch` rows. */
clv_status clv_train_val(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch,
                         const clv_train_batch *b, clv_error *err);

#endif
