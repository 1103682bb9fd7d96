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
    MOST_IDS = 64,
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

static clv_trainer *trainer_of(const clv_model *model, const batch *b, clv_optimizer optimizer)
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
                                       .lion = &lion};
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

static void follow(const course *c, int split)
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
    must(clv_mesh_parse(&mesh, splits[split].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, &err), &err);
    must(clv_model_open(&model, path_of(path, c->folder, ""), &(clv_model_options){.mesh = &mesh, .rules = &rules},
                        &err),
         &err);
    clv_trainer *trainer = trainer_of(model, &b, optimizer);
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
        for (int s = 0; s < SPLITS; s++)
            follow(&(course){trainings[t].model, trainings[t].model, trainings[t].optimizer, trainings[t].task,
                             trainings[t].loss, trainings[t].norm},
                   s);
}

static void test_follows_peft(void **state)
{
    (void)state;
    for (int t = 0; t < ADAPTED; t++)
        for (int s = 0; s < SPLITS; s++)
            follow(
                &(course){adapted[t].model, adapted[t].adapters, "adamw", "causal", adapted[t].loss, adapted[t].norm},
                s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_torch), cmocka_unit_test(test_follows_peft)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
