/* test_train_golden_bf16.c - twenty updates in bf16 follow torch's in bf16: over all of them losses are no further from
 * those, in the mean square, than torch's own are from its losses in f32 (golden/make_train.py), on every kind of mesh.
 */
#include <string.h>

#include "golden/train.h"
#include "golden/train_bf16.h"
#include "golden_path.h"
#include "golden_training.h"
#include "must.h"
#include "unit_test.h"

enum { TRAININGS = sizeof trainings_bf16 / sizeof trainings_bf16[0] };

static const struct {
    const char *mesh, *rules;
} splits[] = {
    {"model=1", "megatron"}, {"model=2", "megatron"}, {"model=2", "megatron-sp"},     {"model=3", "megatron"},
    {"data=2", "dp"},        {"data=2", "fsdp"},      {"data=2,model=2", "megatron"},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static void train(double losses[GOLDEN_STEPS], int training, int split)
{
    golden_batch b;
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_trainer *trainer;
    clv_optimizer optimizer;
    const char *name = trainings_bf16[training].model;
    must(clv_optimizer_parse(&optimizer, trainings_bf16[training].optimizer, &err), &err);
    golden_batch_read(&b, name, "causal");
    must(clv_mesh_parse(&mesh, splits[split].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, &err), &err);
    const clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .dtype = CLV_BF16};
    must(clv_model_open(&model, golden_path("%s", name), &options, &err), &err);
    must(golden_trainer(&trainer, model, &b, optimizer, 1, 0, &err), &err);
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_step(trainer, b.ids, b.labels, NULL, &did, &err), &err);
        losses[i] = did.loss;
    }
    clv_trainer_free(trainer);
    clv_model_close(model);
}

static const double *torch_in_f32(int training)
{
    for (size_t i = 0; i < sizeof trainings / sizeof trainings[0]; i++)
        if (strcmp(trainings[i].model, trainings_bf16[training].model) == 0 &&
            strcmp(trainings[i].optimizer, trainings_bf16[training].optimizer) == 0)
            return trainings[i].loss;
    fail_msg("train.h has no %s by %s", trainings_bf16[training].model, trainings_bf16[training].optimizer);
    return NULL;
}

/* Sums of squares, of trainings of a model. */
typedef struct distances {
    double off, most; /* ours from torch's in bf16; those from torch's in f32 */
} distances;

static void add_squares(distances *d, const double *ours, int training)
{
    const double *torchs = trainings_bf16[training].loss, *exact = torch_in_f32(training);
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        d->off += (ours[i] - torchs[i]) * (ours[i] - torchs[i]);
        d->most += (torchs[i] - exact[i]) * (torchs[i] - exact[i]);
    }
}

/* Written so that NaN fails. */
static void assert_within(const distances *d, double times, const char *of, int split)
{
    if (!(d->off <= times * d->most))
        fail_msg("%s on %s by %s: losses in bf16 are off torch's by a mean square of %.4g, those off f32 by %.4g", of,
                 splits[split].mesh, splits[split].rules, d->off, d->most);
}

/* All steps of all trainings together. Of a model alone, whose roundings are fewer, those of two runs that have nothing
 * in common add: torch by its "sdpa" is off its "eager" by as much. */
static void test_follows_torch(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        distances all = {0};
        for (int t = 0; t < TRAININGS;) {
            const char *model = trainings_bf16[t].model;
            distances its = {0};
            for (; t < TRAININGS && strcmp(trainings_bf16[t].model, model) == 0; t++) {
                double losses[GOLDEN_STEPS];
                train(losses, t, s);
                add_squares(&its, losses, t);
            }
            assert_within(&its, 2, model, s);
            all.off += its.off;
            all.most += its.most;
        }
        assert_within(&all, 1, "all models", s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
