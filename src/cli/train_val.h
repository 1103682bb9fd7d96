/* train_val.h - how well a model does on data that it is not trained on. */
#ifndef CLEAVE_CLI_TRAIN_VAL_H
#define CLEAVE_CLI_TRAIN_VAL_H

#include "cleave/train.h"
#include "cli/train_data.h"

/* *loss: the mean, in nats a label, over all labels of the data's `val`, each sequence once; nothing of the trainer
 * changes. ids and labels: memory of a batch of `batch` rows. */
clv_status clv_train_val(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch, int32_t *ids,
                         int32_t *labels, clv_error *err);

#endif
