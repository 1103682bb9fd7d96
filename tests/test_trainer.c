/* test_trainer.c - training from C: a new model and one from a folder, on any mesh; and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/data.h"
#include "cleave/train.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { BATCH = 2, SEQ = 8, STEPS = 6 };

static const clv_model_info sizes = {.hidden = 24,
                                     .layers = 1,
                                     .heads = 3,
                                     .ffn = 32,
                                     .vocab = 256,
                                     .max_positions = 16,
                                     .bos = -1,
                                     .pad = -1,
                                     .mask = -1};
static const clv_lr_schedule schedule = {.peak = 0.01, .floor = 0.001, .warmup = 1, .steps = STEPS};
static const clv_trainer_options training = {.batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 3};

static int set_up(void **state)
{
    char path[64];
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *f = fopen(path, "w");
    return f && fputs("the cat sat on the mat, the mat on the cat", f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static clv_data *open_text(void)
{
    char path[64];
    const char *paths[] = {path};
    clv_error err = {0};
    clv_data *data;
    snprintf(path, sizeof path, "%s/text", folder);
    must(clv_data_open(&data, paths, 1, &(clv_data_options){.seq = SEQ, .seed = 3}, &err), &err);
    return data;
}

/* Trains n steps from step `first` of the data; the losses. */
static void train(clv_trainer *t, int first, int n, double *losses)
{
    clv_error err = {0};
    clv_data *data = open_text();
    for (int i = 0; i < n; i++) {
        int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
        clv_train_step step = {.size = sizeof step};
        must(clv_data_batch(data, first + i, BATCH, 0, BATCH, ids, labels, NULL, &err), &err);
        must(clv_trainer_step(t, ids, labels, NULL, &step, &err), &err);
        assert_int_equal(step.step, i);
        assert_true(step.lr > 0 && step.seconds > 0);
        losses[i] = step.loss;
    }
    clv_data_close(data);
}

static clv_trainer *new_trainer(const clv_model *model)
{
    clv_error err = {0};
    clv_trainer *t;
    must(clv_trainer_new(&t, model, &training, &err), &err);
    return t;
}

/* The same losses on one rank and on a mesh, falling; and a model that is saved goes on from its weights. */
static void test_training(void **state)
{
    clv_error err = {0};
    clv_mesh mesh;
    double alone[STEPS], split[STEPS], again[1];
    clv_model *one, *four, *saved;
    char path[64];
    must(clv_mesh_parse(&mesh, "data=2,model=2", &err), &err);
    must(clv_model_new(&one, &sizes, NULL, &err), &err);
    must(clv_model_new(&four, &sizes, &(clv_model_options){.mesh = &mesh, .check = 1}, &err), &err);
    clv_trainer *t = new_trainer(one), *s = new_trainer(four);
    train(t, 0, STEPS, alone);
    train(s, 0, STEPS, split);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs(alone[i] - split[i]) < 1e-4);
    assert_true(alone[STEPS - 1] < alone[0] - 0.5);
    assert_non_null(clv_trainer_program(t));
    clv_state_info info = {.size = sizeof info};
    must(clv_session_state(clv_trainer_session(t), 0, &info, &err), &err);
    assert_non_null(info.name);
    snprintf(path, sizeof path, "%s/saved", folder);
    must(clv_trainer_save(t, path, &err), &err);
    must(clv_model_open(&saved, path, NULL, &err), &err);
    clv_trainer *goes_on = new_trainer(saved);
    train(goes_on, STEPS - 1, 1, again);
    assert_true(again[0] < alone[0] - 0.5);
    clv_trainer_free(goes_on);
    clv_trainer_free(t);
    clv_trainer_free(s);
    clv_model_close(saved);
    clv_model_close(one);
    clv_model_close(four);
}

static void refuse_sizes(const clv_model_info *bad, const char *text)
{
    clv_error err = {0};
    clv_model *m;
    assert_int_equal(clv_model_new(&m, bad, NULL, &err), CLV_EINVAL);
    if (!strstr(err.message, text))
        fail_msg("'%s' has no '%s'", err.message, text);
}

static void test_no_tokenizer(void **state)
{
    clv_error err = {0};
    clv_model *m;
    const clv_tokenizer *t;
    clv_model_info small = sizes;
    small.vocab = 16;
    small.bos = small.pad = small.mask = -1;
    small.n_eos = 0;
    must(clv_model_new(&m, &small, NULL, &err), &err);
    assert_int_equal(clv_model_tokenizer(&t, m, &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "a model that no folder holds has no tokenizer.json"));
    clv_model_close(m);
}

static void test_model_refused(void **state)
{
    clv_model *m;
    clv_model_info bad = sizes;
    assert_int_equal(clv_model_new(NULL, &sizes, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_new(&m, NULL, NULL, NULL), CLV_EINVAL);
    bad.family = "bert";
    assert_int_equal(clv_model_new(&m, &bad, NULL, NULL), CLV_EUNSUPPORTED);
    bad = sizes;
    bad.kv_heads = 2;
    assert_int_equal(clv_model_new(&m, &bad, NULL, NULL), CLV_EINVAL);
    bad = sizes;
    bad.n_eos = 9;
    assert_int_equal(clv_model_new(&m, &bad, NULL, NULL), CLV_EINVAL);
    bad = sizes;
    bad.hidden = 0;
    refuse_sizes(&bad, "not 0 (hidden)");
    bad = sizes;
    bad.hidden = 25;
    refuse_sizes(&bad, "hidden 25 is no multiple of heads 3; valid: 24 or 27, or a head_dim of its own");
    bad.hidden = 2;
    refuse_sizes(&bad, "hidden 2 is no multiple of heads 3; valid: 3 or 6");
    bad = sizes;
    bad.vocab = -7;
    refuse_sizes(&bad, "not -7 (vocab)");
    bad = sizes;
    bad.bos = sizes.vocab;
    refuse_sizes(&bad, "bos is token");
    bad = sizes;
    bad.pad = -2;
    refuse_sizes(&bad, "pad is token -2; valid: -1 (none), and 0 to");
    bad = sizes;
    bad.mask = 1 << 20;
    refuse_sizes(&bad, "mask is token 1048576");
    bad = sizes;
    bad.n_eos = 2;
    bad.eos[1] = -3;
    refuse_sizes(&bad, "eos is token -3");
    assert_int_equal(clv_model_new(&m, &(clv_model_info){0}, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_model_new(&m, &(clv_model_info){.size = 9}, NULL, NULL), CLV_EINVAL);
}

/* A model's machine prices what is compiled of it, and is copied. */
static void test_machine(void **state)
{
    static const char slow[] =
        "{\"name\": \"slow\", \"ranks_per_host\": 1, \"hosts\": 0, \"memory_bytes\": 1e12, \"flops_per_s\": {\"f32\": "
        "1e14}, \"memory_bytes_per_s\": 2e12, \"efficiency\": 0.5, \"instruction_s\": 1e-6, \"host\": {\"alpha_s\": "
        "5e-6, \"bytes_per_s\": 3e11}, \"network\": {\"alpha_s\": 0.02, \"bytes_per_s\": 2e6}, \"ops\": "
        "{\"all_reduce\": {\"f32\": [[1, 1e6]]}}}";
    clv_model_info larger = sizes;
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    int steps[2];
    larger.hidden = 64, larger.heads = 4, larger.ffn = 256;
    must(clv_mesh_parse(&mesh, "X=4,Y=1", &err), &err);
    must(clv_axis_rules_preset(&rules, "gspmd-2d", &mesh, &err), &err);
    for (int priced = 0; priced < 2; priced++) {
        clv_machine *machine = NULL;
        clv_model *model;
        clv_trainer *trainer;
        if (priced)
            must(clv_machine_parse(&machine, slow, strlen(slow), "slow", &err), &err);
        clv_model_options options = {
            .size = sizeof options, .mesh = &mesh, .rules = &rules, .compile.machine = machine};
        must(clv_model_new(&model, &larger, &options, &err), &err);
        clv_machine_free(machine);
        clv_trainer_options how = training;
        how.seq = 4;
        must(clv_trainer_new(&trainer, model, &how, &err), &err);
        steps[priced] = clv_program_collective_count(clv_trainer_program(trainer));
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
    assert_true(steps[1] < steps[0]);
}

static void test_refused(void **state)
{
    clv_error err = {0};
    clv_model *model;
    clv_trainer *t;
    int32_t ids[BATCH * SEQ] = {0}, labels[BATCH * SEQ] = {0};
    must(clv_model_new(&model, &sizes, NULL, &err), &err);
    clv_trainer_options o = training;
    assert_int_equal(clv_trainer_new(NULL, model, &o, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_new(&t, NULL, &o, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_new(&t, model, NULL, NULL), CLV_EINVAL);
    o.schedule = NULL;
    assert_int_equal(clv_trainer_new(&t, model, &o, NULL), CLV_EINVAL);
    o = training;
    o.batch = 0;
    assert_int_equal(clv_trainer_new(&t, model, &o, NULL), CLV_EINVAL);
    t = new_trainer(model);
    assert_int_equal(clv_trainer_step(NULL, ids, labels, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_step(t, NULL, labels, NULL, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_step(t, ids, NULL, NULL, NULL, NULL), CLV_EINVAL);
    ids[BATCH * SEQ - 1] = 256;
    assert_int_equal(clv_trainer_step(t, ids, labels, NULL, NULL, NULL), CLV_EINVAL);
    ids[BATCH * SEQ - 1] = 0;
    labels[SEQ + 1] = 256;
    assert_int_equal(clv_trainer_step(t, ids, labels, NULL, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "label 1 of sequence 1 is 256; valid: 0 to 255, or -100"));
    for (int i = 0; i < BATCH * SEQ; i++)
        labels[i] = -100;
    err = (clv_error){0};
    assert_int_equal(clv_trainer_step(t, ids, labels, (uint8_t[BATCH * SEQ]){1}, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "the trainer option padding_mask"));
    memset(labels, 0, sizeof labels);
    err = (clv_error){0};
    must(clv_trainer_step(t, ids, labels, NULL, NULL, &err), &err);
    assert_int_equal(clv_trainer_save(t, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_trainer_save(NULL, folder, NULL), CLV_EINVAL);
    assert_null(clv_trainer_program(NULL));
    assert_null(clv_trainer_session(NULL));
    assert_int_equal(clv_lr_schedule_check(NULL, NULL), CLV_EINVAL);
    assert_true(clv_lr_schedule_rate(NULL, 0) == 0);
    clv_trainer_free(t);
    clv_trainer_free(NULL);
    clv_model_close(model);
}

/* The loss before a step is what the step says it was, on every mesh; and asking changes no bit of those after it. */
static void test_loss_asked(void **state)
{
    clv_error err = {0};
    double plain[STEPS], asked = 0;
    for (int tp = 1; tp < 3; tp++) {
        clv_mesh mesh;
        clv_model *model;
        must(clv_mesh_parse(&mesh, tp == 1 ? "model=1" : "data=2,model=2", &err), &err);
        must(clv_model_new(&model, &sizes, &(clv_model_options){.mesh = &mesh, .check = 1}, &err), &err);
        clv_trainer *t = new_trainer(model);
        train(t, 0, STEPS, plain);
        clv_trainer_free(t);
        t = new_trainer(model);
        clv_data *data = open_text();
        for (int i = 0; i < STEPS; i++) {
            int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
            clv_train_step step = {.size = sizeof step};
            must(clv_data_batch(data, i, BATCH, 0, BATCH, ids, labels, NULL, &err), &err);
            for (int k = 0; k < 2; k++)
                must(clv_trainer_loss(t, ids, labels, NULL, &asked, &err), &err);
            must(clv_trainer_step(t, ids, labels, NULL, &step, &err), &err);
            assert_true(step.loss == plain[i]);
            if (!(fabs(asked - step.loss) <= 1e-5 * fabs(step.loss)))
                fail_msg("step %d: %.9g was asked, %.9g it was", i, asked, step.loss);
        }
        int32_t none[BATCH * SEQ], ids[BATCH * SEQ] = {0};
        for (int i = 0; i < BATCH * SEQ; i++)
            none[i] = -100;
        assert_int_equal(clv_trainer_loss(t, ids, none, NULL, &asked, NULL), CLV_EINVAL);
        assert_int_equal(clv_trainer_loss(t, none, ids, NULL, &asked, NULL), CLV_EINVAL);
        assert_int_equal(clv_trainer_loss(NULL, ids, ids, NULL, &asked, NULL), CLV_EINVAL);
        assert_int_equal(clv_trainer_loss(t, ids, ids, NULL, NULL, NULL), CLV_EINVAL);
        clv_data_close(data);
        clv_trainer_free(t);
        clv_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training), cmocka_unit_test(test_model_refused), cmocka_unit_test(test_no_tokenizer),
        cmocka_unit_test(test_machine),  cmocka_unit_test(test_refused),       cmocka_unit_test(test_loss_asked),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
