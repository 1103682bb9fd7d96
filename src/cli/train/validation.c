/* validation.c - validation loss of a trainer on held-out data. */
#include "cli/train/validation.h"

#include <string.h>

#include "cleave/graph.h"

/* Rows behind the last sequence are copies of what is there, and count for nothing. */
static clv_status read_batch(const clv_train_data *d, int64_t first, int64_t batch, const clv_train_batch *b,
                             clv_error *err)
{
    size_t seq = (size_t)d->seq;
    int64_t rows = d->val_sequences - first < batch ? d->val_sequences - first : batch;
    CLV_TRY(clv_data_batch(d->val, 0, d->val_sequences, first, rows, b->ids, b->labels, b->mask, err));
    for (int64_t r = rows; r < batch; r++) {
        memcpy(b->ids + r * d->seq, b->ids, seq * sizeof *b->ids);
        if (b->mask)
            memcpy(b->mask + r * d->seq, b->mask, seq);
        for (int64_t s = 0; s < d->seq; s++)
            b->labels[r * d->seq + s] = CLV_IGNORE_INDEX;
    }
    return CLV_OK;
}

static int64_t count_labels(const int32_t *labels, int64_t n)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++)
        counted += labels[i] != CLV_IGNORE_INDEX;
    return counted;
}

clv_status clv_train_validate(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch,
                              const clv_train_batch *b, clv_error *err)
{
    double sum = 0;
    int64_t counted = 0;
    for (int64_t first = 0; first < data->val_sequences; first += batch) {
        double mean = 0;
        CLV_TRY(read_batch(data, first, batch, b, err));
        int64_t here = count_labels(b->labels, batch * data->seq);
        if (here == 0)
            continue;
        CLV_TRY(clv_trainer_loss(trainer, b->ids, b->labels, b->mask, &mean, err));
        sum += mean * (double)here;
        counted += here;
    }
    if (counted == 0)
        return clv_fail(err, CLV_EINVAL, "--val: none of its labels counts");
    *loss = sum / (double)counted;
    return CLV_OK;
}
