/* test_train_mlm.c - training of encoders: padding that reaches nothing, steps of which no label counts, and logits
 * that are nowhere whole. (What they learn is compared with torch's in test_train_golden.) */
#include <math.h>
#include <string.h>

#include "cleave/train.h"
#include "golden_path.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum { BATCH = 3, SEQ = 6, STEPS = 4, PAD = 1, MASK = 32 };

static const clv_lr_schedule schedule = {.peak = 0.01, .steps = STEPS};

static clv_model *open_model(const char *name, const char *mesh_text, const char *preset)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    must(clv_model_open(&model, golden_path("%s", name),
                        &(clv_model_options){.mesh = &mesh, .rules = &rules, .check = 1}, &err),
         &err);
    return model;
}

static clv_trainer *new_trainer(const clv_model *model, int64_t seq, int padded)
{
    clv_error err = {0};
    clv_trainer *t;
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = seq, .schedule = &schedule, .padding_mask = padded};
    must(clv_trainer_new(&t, model, &options, &err), &err);
    return t;
}

typedef struct batch {
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    uint8_t mask[BATCH * SEQ];
} batch;

/* Rows of 6, 4 and 2 tokens, of which every third one is to be found; `junk` stands where they have padding. */
static batch batch_with(int32_t junk)
{
    batch b;
    for (int i = 0; i < BATCH * SEQ; i++) {
        int row = i / SEQ, at = i % SEQ;
        b.mask[i] = at < SEQ - 2 * row;
        b.labels[i] = b.mask[i] && at % 3 == 0 ? 4 + (i * 7) % 20 : CLV_IGNORE_INDEX;
        b.ids[i] = !b.mask[i] ? junk : b.labels[i] >= 0 ? MASK : 4 + (i * 7) % 20;
    }
    return b;
}

/* The content of padding changes no bit, and the loss of the same rows is that of the step. */
static void test_padding_reaches_nothing(void **state)
{
    static const char *const models[] = {"esm", "esm_norm", "bert"};
    for (int m = 0; m < 3; m++) {
        clv_error err = {0};
        clv_model *model = open_model(models[m], "data=2,model=2", "megatron");
        clv_trainer *t = new_trainer(model, SEQ, 1), *other = new_trainer(model, SEQ, 1);
        batch b = batch_with(PAD), junk = batch_with(11);
        for (int i = 0; i < STEPS; i++) {
            clv_train_step did = {.size = sizeof did}, its = {.size = sizeof its};
            double asked;
            must(clv_trainer_loss(t, b.ids, b.labels, b.mask, &asked, &err), &err);
            must(clv_trainer_step(t, b.ids, b.labels, b.mask, &did, &err), &err);
            must(clv_trainer_step(other, junk.ids, junk.labels, junk.mask, &its, &err), &err);
            assert_int_equal(did.labels, 5);
            assert_true(fabs(asked - did.loss) <= 1e-5 * did.loss);
            assert_true(did.loss == its.loss && did.grad_norm == its.grad_norm);
            must(clv_trainer_step(t, b.ids, b.labels, NULL, &did, &err), &err); /* tokens, then, as others are */
            must(clv_trainer_step(other, b.ids, b.labels, NULL, &its, &err), &err);
            assert_true(did.loss == its.loss && fabs(asked - did.loss) > 1e-4);
        }
        clv_trainer_free(t);
        clv_trainer_free(other);
        clv_model_close(model);
    }
}

static void test_padding_refused(void **state)
{
    clv_error err = {0};
    clv_model *model = open_model("esm", "model=1", "megatron");
    clv_trainer *t = new_trainer(model, SEQ, 1), *whole = new_trainer(model, SEQ, 0);
    batch b = batch_with(PAD);
    double loss;
    assert_int_equal(clv_trainer_step(whole, b.ids, b.labels, b.mask, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "padding_mask"));
    memset(b.mask + 2 * SEQ, 0, SEQ);
    err = (clv_error){0};
    assert_int_equal(clv_trainer_loss(t, b.ids, b.labels, b.mask, &loss, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "sequence 2 is all padding"));
    clv_trainer_free(t);
    clv_trainer_free(whole);
    clv_model_close(model);
}

/* It has its number, and those around it are what they are without it but for the rate, which is constant. */
static void test_no_label(void **state)
{
    clv_error err = {0};
    clv_model *model = open_model("esm", "model=2", "megatron");
    clv_trainer *t = new_trainer(model, SEQ, 1);
    batch b = batch_with(PAD), none = batch_with(PAD);
    double before, after;
    for (int i = 0; i < BATCH * SEQ; i++)
        none.labels[i] = CLV_IGNORE_INDEX;
    for (int i = 0; i < STEPS; i++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_loss(t, b.ids, b.labels, b.mask, &before, &err), &err);
        must(clv_trainer_step(t, none.ids, none.labels, none.mask, &did, &err), &err);
        must(clv_trainer_loss(t, b.ids, b.labels, b.mask, &after, &err), &err);
        assert_int_equal(did.step, 2 * i);
        assert_true(did.labels == 0 && did.loss == 0 && did.grad_norm == 0 && before == after);
        must(clv_trainer_step(t, b.ids, b.labels, b.mask, &did, &err), &err);
        assert_int_equal(did.step, 2 * i + 1);
    }
    assert_int_equal(clv_trainer_steps_done(t), 2 * STEPS);
    clv_trainer_free(t);
    clv_model_close(model);
}

/* Elements of the whole tensor, and of the largest shard. */
static int64_t elements(const clv_type *type)
{
    int64_t n = 1;
    for (int d = 0; d < type->rank; d++)
        n *= type->shape[d];
    return n;
}

/* Logits, and their gradient, are whole on no rank: each holds its rows of its part of the vocabulary. */
static void expect_split_logits(const char *name, const char *mesh, const char *preset, int64_t rows, int ways)
{
    clv_model *model = open_model(name, mesh, preset);
    clv_trainer *t = new_trainer(model, SEQ, 1);
    clv_model_info info = {.size = sizeof info};
    clv_error err = {0};
    must(clv_model_get_info(model, &info, &err), &err);
    const clv_program *program = clv_trainer_program(t);
    int64_t whole = (int64_t)BATCH * SEQ * info.vocab, most = rows * SEQ * ((info.vocab + ways - 1) / ways);
    int found = 0;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        clv_type local = clv_largest_shard_type(&buffer->type, &buffer->layout);
        if (elements(&buffer->type) != whole)
            continue;
        found++;
        if (elements(&local) > most)
            fail_msg("%s on %s by %s: a buffer of %lld logits a rank; valid: at most %lld", name, mesh, preset,
                     (long long)elements(&local), (long long)most);
    }
    assert_true(found > 1);
    clv_trainer_free(t);
    clv_model_close(model);
}

static void test_logits_are_split(void **state)
{
    static const char *const models[] = {"esm", "esm_norm", "bert", "llama"};
    for (int m = 0; m < 4; m++) {
        expect_split_logits(models[m], "model=2", "megatron", BATCH, 2);
        expect_split_logits(models[m], "model=3", "megatron", BATCH, 3);
        expect_split_logits(models[m], "model=3", "megatron-sp", BATCH, 3);
        expect_split_logits(models[m], "data=2,model=2", "fsdp+megatron-sp", (BATCH + 1) / 2, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_padding_reaches_nothing),
                                       cmocka_unit_test(test_padding_refused), cmocka_unit_test(test_no_label),
                                       cmocka_unit_test(test_logits_are_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
