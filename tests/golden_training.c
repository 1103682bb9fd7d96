#include "golden_training.h"

#include <string.h>

#include "golden_path.h"
#include "io/checkpoint/safetensors.h"
#include "must.h"

static void read_tensor(void *out, clv_dtype dtype, const clv_safetensors *file, const char *name)
{
    clv_error err = {0};
    const clv_safetensor *tensor;
    must(clv_safetensors_find(&tensor, file, name, &err), &err);
    must(clv_safetensors_read(tensor, NULL, dtype, out, &err), &err);
}

static void read_labels(golden_batch *b, const clv_safetensors *file, const char *task)
{
    enum { FILL = 7 };
    bool is_causal = strcmp(task, "causal") == 0;
    if (!is_causal)
        read_tensor(b->labels, CLV_I32, file, "labels");
    if (!is_causal && clv_safetensors_find(&(const clv_safetensor *){NULL}, file, "mask", NULL) == CLV_OK)
        read_tensor(b->mask, CLV_U8, file, "mask");
    else
        memset(b->mask, 1, sizeof b->mask);
    b->padded = strcmp(task, "padded") == 0;
    for (int64_t i = 0; i < b->rows * b->seq; i++) {
        if (is_causal)
            b->labels[i] = (i + 1) % b->seq == 0 ? CLV_IGNORE_INDEX : b->ids[i + 1];
        else if (!b->padded && !b->mask[i])
            b->ids[i] = FILL;
    }
}

void golden_batch_read(golden_batch *b, const char *model, const char *task)
{
    clv_error err = {0};
    clv_safetensors *file;
    const clv_safetensor *ids;
    must(clv_safetensors_open(&file, golden_path("%s_golden/values.safetensors", model), &err), &err);
    must(clv_safetensors_find(&ids, file, "ids", &err), &err);
    b->rows = ids->shape[0];
    b->seq = ids->shape[1];
    assert_true(b->rows * b->seq <= GOLDEN_IDS);
    must(clv_safetensors_read(ids, NULL, CLV_I32, b->ids, &err), &err);
    read_labels(b, file, task);
    clv_safetensors_close(file);
}

void golden_batch_repeat(golden_batch *b)
{
    golden_batch once = *b;
    size_t n = (size_t)b->seq;
    b->rows *= GOLDEN_PARTS;
    assert_true(b->rows * b->seq <= GOLDEN_IDS);
    for (int64_t row = 0; row < b->rows; row++) {
        memcpy(b->ids + row * b->seq, once.ids + row / GOLDEN_PARTS * b->seq, n * sizeof *b->ids);
        memcpy(b->labels + row * b->seq, once.labels + row / GOLDEN_PARTS * b->seq, n * sizeof *b->labels);
        memcpy(b->mask + row * b->seq, once.mask + row / GOLDEN_PARTS * b->seq, n * sizeof *b->mask);
    }
}

double golden_rate(clv_optimizer optimizer)
{
    return optimizer == CLV_OPTIMIZER_LION ? 1e-4 : 1e-3;
}

clv_status golden_trainer(clv_trainer **out, const clv_model *model, const golden_batch *b, clv_optimizer optimizer,
                          int64_t parts, double bias_rate, clv_error *err)
{
    const clv_sgd_options sgd = {.size = sizeof sgd, .weight_decay = 0.1};
    const clv_lion_options lion = {.size = sizeof lion, .weight_decay = 0.1};
    const clv_adamw_options adamw = {
        .size = sizeof adamw, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    const clv_lr_schedule schedule = {
        .peak = golden_rate(optimizer), .steps = GOLDEN_STEPS, .shape = CLV_LR_SCHEDULE_CONSTANT};
    const clv_update_options update = {.size = sizeof update,
                                       .adamw = &adamw,
                                       .clip = 1,
                                       .decay_all = 1,
                                       .optimizer = optimizer,
                                       .sgd = &sgd,
                                       .lion = &lion,
                                       .accumulate = parts,
                                       .router_bias_update_rate = bias_rate};
    const clv_trainer_options options = {.size = sizeof options,
                                         .batch = b->rows,
                                         .seq = b->seq,
                                         .schedule = &schedule,
                                         .update = &update,
                                         .padding_mask = b->padded};
    return clv_trainer_new(out, model, &options, err);
}
