/* test_train_golden.c - twenty updates follow torch's: losses and norms of gradients of small models that transformers
 * trained on one batch (golden/make_train.py), and of adapters that PEFT did (golden/make_lora.py), on every kind of
 * mesh. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/train.h"
#include "golden/lora.h"
#include "golden/train.h"
#include "io/safetensors.h"
#include "must.h"

enum {
    STEPS = 20,
    PARTS = 4, /* of a step, where it has some */
    MOST_IDS = PARTS * 64,
    TRAININGS = sizeof trainings / sizeof trainings[0],
    ADAPTED = sizeof adapted / sizeof adapted[0]
};

static const struct {
    const char *mesh, *rules;
} splits[] = {
    {"model=1", "megatron"},
    {"model=2", "megatron"},
    {"model=2", "megatron-sp"},
    {"model=3", "megatron"},
    {"model=3", "megatron-sp"},
    {"data=2", "dp"},
    {"data=2", "fsdp"},
    {"data=2", "zero1"},
    {"data=2,model=2", "megatron"},
    {"data=2,model=2", "fsdp+megatron-sp"},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

typedef struct batch {
    int64_t rows, seq;
    bool padded;
    int32_t ids[MOST_IDS], labels[MOST_IDS];
    uint8_t mask[MOST_IDS];
} batch;

static const char *path_of(char path[4096], const char *name, const char *rest)
{
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, 4096, "%s/tests/golden/%s%s", source ? source : ".", name, rest);
    return path;
}

static void read_tensor(void *out, clv_dtype dtype, const clv_safetensors *file, const char *name)
{
    clv_error err = {0};
    const clv_safetensor *tensor;
    must(clv_safetensors_find(&tensor, file, name, &err), &err);
    must(clv_safetensors_read(tensor, NULL, dtype, out, &err), &err);
}

/* Of decoders each token's label is the next; the last of a row has none. What is masked has labels of its own; and
 * padding, if it is not to be known as such, is a token like others. */
static void read_labels(batch *b, const clv_safetensors *file, const char *task)
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
            b->labels[i] = (i + 1) % b->seq == 0 ? CLV_IGNORED_LABEL : b->ids[i + 1];
        else if (!b->padded && !b->mask[i])
            b->ids[i] = FILL;
    }
}

static void read_batch(batch *b, const char *name, const char *task)
{
    char path[4096];
    clv_error err = {0};
    clv_safetensors *file;
    const clv_safetensor *ids;
    must(clv_safetensors_open(&file, path_of(path, name, "_golden/values.safetensors"), &err), &err);
    must(clv_safetensors_find(&ids, file, "ids", &err), &err);
    b->rows = ids->shape[0];
    b->seq = ids->shape[1];
    assert_true(b->rows * b->seq <= MOST_IDS);
    must(clv_safetensors_read(ids, NULL, CLV_I32, b->ids, &err), &err);
    read_labels(b, file, task);
    clv_safetensors_close(file);
}

/* Written so that NaN fails. */
static void assert_follows(double got, double want, const char *what, int step, const char *model,
                           const char *optimizer, int split)
{
    if (!(fabs(got - want) <= 1e-4 * fabs(want)))
        fail_msg("%s by %s on %s by %s, step %d: %s is %.9g, torch's %.9g", model, optimizer, splits[split].mesh,
                 splits[split].rules, step, what, got, want);
}

static double rate_of(clv_optimizer optimizer)
{
    return optimizer == CLV_OPTIMIZER_LION ? 1e-4 : 1e-3;
}

/* Each row four times, so that losses and gradients are the same, and parts of the batch are not alike. */
static void repeat_rows(batch *b)
{
    batch once = *b;
    size_t n = (size_t)b->seq;
    b->rows *= PARTS;
    assert_true(b->rows * b->seq <= MOST_IDS);
    for (int64_t row = 0; row < b->rows; row++) {
        memcpy(b->ids + row * b->seq, once.ids + row / PARTS * b->seq, n * sizeof *b->ids);
        memcpy(b->labels + row * b->seq, once.labels + row / PARTS * b->seq, n * sizeof *b->labels);
        memcpy(b->mask + row * b->seq, once.mask + row / PARTS * b->seq, n * sizeof *b->mask);
    }
}

static clv_trainer *trainer_of(const clv_model *model, const batch *b, clv_optimizer optimizer, int64_t parts)
{
    clv_error err = {0};
    clv_trainer *trainer;
    const clv_sgd_options sgd = {.size = sizeof sgd, .weight_decay = 0.1};
    const clv_lion_options lion = {.size = sizeof lion, .weight_decay = 0.1};
    const clv_adamw_options adamw = {
        .size = sizeof adamw, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    const clv_schedule schedule = {.peak = rate_of(optimizer), .steps = STEPS};
    const clv_update_options update = {.size = sizeof update,
                                       .adamw = &adamw,
                                       .clip = 1,
                                       .decay_all = 1,
                                       .optimizer = optimizer,
                                       .sgd = &sgd,
                                       .lion = &lion,
                                       .accumulate = parts};
    const clv_trainer_options options = {.size = sizeof options,
                                         .batch = b->rows,
                                         .seq = b->seq,
                                         .schedule = &schedule,
                                         .schedule_shape = CLV_SCHEDULE_CONSTANT,
                                         .update = &update,
                                         .padded = b->padded};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    return trainer;
}

/* A training by torch: of the model of a folder on the golden batch of a model. */
typedef struct course {
    const char *model, *folder, *optimizer, *task;
    const double *loss, *norm;
} course;

static course course_of(int training)
{
    return (course){trainings[training].model, trainings[training].model, trainings[training].optimizer,
                    trainings[training].task,  trainings[training].loss,  trainings[training].norm};
}

static course course_of_adapters(int t)
{
    return (course){adapted[t].model, adapted[t].adapters, "adamw", "causal", adapted[t].loss, adapted[t].norm};
}

static void follow(const course *c, int split, clv_recompute recompute, int64_t parts)
{
    char path[4096];
    batch b;
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_optimizer optimizer;
    must(clv_optimizer_parse(&optimizer, c->optimizer, &err), &err);
    read_batch(&b, c->model, c->task);
    if (parts > 1)
        repeat_rows(&b);
    must(clv_mesh_parse(&mesh, splits[split].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, &err), &err);
    const clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .recompute = recompute};
    must(clv_model_open(&model, path_of(path, c->folder, ""), &options, &err), &err);
    clv_trainer *trainer = trainer_of(model, &b, optimizer, parts);
    for (int i = 0; i < STEPS; i++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_step_padded(trainer, b.ids, b.labels, b.padded ? b.mask : NULL, &did, &err), &err);
        assert_follows(did.loss, c->loss[i], "the loss", i, c->folder, c->optimizer, split);
        assert_follows(did.grad_norm, c->norm[i], "the norm", i, c->folder, c->optimizer, split);
        assert_true((float)did.lr == (float)rate_of(optimizer));
    }
    clv_trainer_free(trainer);
    clv_model_close(model);
}

static void test_follows_torch(void **state)
{
    (void)state;
    for (int t = 0; t < TRAININGS; t++)
        for (int s = 0; s < SPLITS; s++) {
            const course c = course_of(t);
            follow(&c, s, CLV_RECOMPUTE_NONE, 1);
        }
}

static void test_follows_peft(void **state)
{
    (void)state;
    for (int t = 0; t < ADAPTED; t++)
        for (int s = 0; s < SPLITS; s++)
            for (int parts = 1; parts <= PARTS; parts *= PARTS) {
                const course c = course_of_adapters(t);
                follow(&c, s, parts > 1 ? CLV_RECOMPUTE_FULL : CLV_RECOMPUTE_NONE, parts);
            }
}

static void follow_by_adamw(clv_recompute first, int64_t parts)
{
    for (int t = 0; t < TRAININGS; t++) {
        const course c = course_of(t);
        for (int s = 0; s < SPLITS && strcmp(c.optimizer, "adamw") == 0; s++)
            for (int mode = (int)first; mode <= CLV_RECOMPUTE_FULL; mode++)
                follow(&c, s, (clv_recompute)mode, parts);
    }
}

/* With a step in parts, and with what the backward pass makes again. */
static void test_parts_follow_torch(void **state)
{
    (void)state;
    follow_by_adamw(CLV_RECOMPUTE_NONE, PARTS);
}

static void test_made_again_follows_torch(void **state)
{
    (void)state;
    follow_by_adamw(CLV_RECOMPUTE_SELECTIVE, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_torch), cmocka_unit_test(test_follows_peft),
                                       cmocka_unit_test(test_parts_follow_torch),
                                       cmocka_unit_test(test_made_again_follows_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
