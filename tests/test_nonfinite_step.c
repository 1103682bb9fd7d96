/* test_nonfinite_step.c - a step whose loss or gradients are not finite changes no state, whatever the optimizer,
 * dtype and mesh, clipped or not; it names the op where that begins, and training goes on as if it had not been. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/train.h"
#include "golden_path.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, STEPS = 6, VOCAB = 50, GAINS = 24 };

static const char gain[] = "layers.1.mlp.norm.weight";

typedef struct how {
    const char *mesh, *rules;
    clv_dtype dtype;
    clv_optimizer optimizer;
    double clip;
} how;

static const how hows[] = {{"model=1", "megatron", CLV_F32, CLV_OPTIMIZER_ADAMW, 1},
                           {"model=3", "megatron-sp", CLV_F32, CLV_OPTIMIZER_ADAMW, 0},
                           {"model=2", "megatron", CLV_BF16, CLV_OPTIMIZER_ADAMW, 1},
                           {"data=2", "fsdp", CLV_BF16, CLV_OPTIMIZER_SGD, 0},
                           {"data=3", "zero1", CLV_F32, CLV_OPTIMIZER_LION, 0},
                           {"data=2,model=2", "megatron", CLV_BF16, CLV_OPTIMIZER_LION, 0}};
enum { HOWS = sizeof hows / sizeof hows[0] };

typedef struct trained {
    clv_model *model;
    clv_trainer *trainer;
    clv_session *session;
} trained;

static trained begin(const how *h, clv_on_nan on_nan)
{
    trained t;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_error err = {0};
    const clv_model_info sizes = {.hidden = GAINS,
                                  .layers = 2,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .ffn = 30,
                                  .vocab = VOCAB,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_mesh_parse(&mesh, h->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, h->rules, &mesh, &err), &err);
    const clv_lr_schedule schedule = {.peak = 0.003, .floor = 0.003, .steps = STEPS};
    const clv_update_options update = {.size = sizeof update, .clip = h->clip, .optimizer = h->optimizer};
    const clv_trainer_options options = {.size = sizeof options,
                                         .batch = BATCH,
                                         .seq = SEQ,
                                         .schedule = &schedule,
                                         .seed = 3,
                                         .update = &update,
                                         .on_nan = on_nan};
    must(clv_model_new(&t.model, &sizes, &(clv_model_options){.mesh = &mesh, .rules = &rules, .dtype = h->dtype}, &err),
         &err);
    must(clv_trainer_new(&t.trainer, t.model, &options, &err), &err);
    t.session = clv_trainer_session(t.trainer);
    return t;
}

static void end(const trained *t)
{
    clv_trainer_free(t->trainer);
    clv_model_close(t->model);
}

static clv_status step(const trained *t, int batch, clv_train_step *did, clv_error *err)
{
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    *did = (clv_train_step){.size = sizeof *did};
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = (int32_t)((i * 7 + batch * 13) % VOCAB);
        labels[i] = (int32_t)((i * 7 + batch * 13 + 7) % VOCAB);
    }
    return clv_trainer_step(t->trainer, ids, labels, NULL, did, err);
}

/* One gain becomes `value`, and its f32 copy if there is one; the one that it was. */
static double set_gain(const trained *t, double value)
{
    double gains[GAINS], was = 0; /* gains: of any dtype */
    clv_error err = {0};
    clv_dtype dtype = clv_model_dtype(t->model);
    const struct {
        const char *name;
        clv_dtype dtype;
    } states[] = {{"layers.1.mlp.norm.weight.master", CLV_F32}, {gain, dtype}};
    const int first = dtype == CLV_F32 ? 1 : 0;
    for (int i = first; i < 2; i++) {
        must(clv_session_read(t->session, states[i].name, NULL, gains, &err), &err);
        was = i == first ? clv_dtype_load(states[i].dtype, gains, 17) : was;
        clv_dtype_store(states[i].dtype, gains, 17, value);
        must(clv_session_write(t->session, states[i].name, NULL, gains, &err), &err);
    }
    return was;
}

/* All states, concatenated; the caller frees them. */
static unsigned char *all_state(const trained *t, size_t *size)
{
    unsigned char *all = NULL;
    clv_error err = {0};
    clv_state_info info = {.size = sizeof info};
    *size = 0;
    for (int i = 0; clv_session_state(t->session, i, &info, &err) == CLV_OK && info.name; i++) {
        size_t bytes = clv_dtype_size(info.type.dtype);
        for (int d = 0; d < info.type.rank; d++)
            bytes *= (size_t)info.type.shape[d];
        all = realloc(all, *size + bytes);
        assert_non_null(all);
        must(clv_session_read(t->session, info.name, NULL, all + *size, &err), &err);
        *size += bytes;
    }
    return all;
}

static void assert_says(const char *text, const char *what)
{
    if (!text || !strstr(text, what))
        fail_msg("\"%s\" does not say \"%s\"", text ? text : "NULL", what);
}

/* The step with NaN in layer 1 leaves what was there; what it says begins where the gain is read. */
static void meet(const trained *t, clv_on_nan on_nan)
{
    size_t size, size_after;
    clv_train_step did;
    clv_error err = {.rank = -1};
    double was = set_gain(t, NAN);
    unsigned char *before = all_state(t, &size);
    int64_t steps = clv_trainer_steps_done(t->trainer);
    clv_status status = step(t, 1, &did, &err);
    unsigned char *after = all_state(t, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    (void)set_gain(t, was);
    assert_says(clv_trainer_nonfinite(t->trainer), "is not a number at step 1; it begins at rank 0, layers.1.mlp");
    assert_says(clv_trainer_nonfinite(t->trainer), "layers.1.mlp.norm.weight' is nan at [17]");
    if (on_nan == CLV_ON_NAN_SKIP) {
        must(status, &err);
        assert_true(did.skipped && did.step == steps && !isfinite(did.loss));
        assert_int_equal(clv_trainer_steps_done(t->trainer), steps + 1);
        assert_int_equal(clv_trainer_steps_skipped(t->trainer), 1);
        return;
    }
    assert_int_equal(status, CLV_EINVAL);
    assert_int_equal(err.rank, 0);
    assert_says(err.op, "layers.1.mlp");
    assert_says(err.message, "try a lower learning rate");
    assert_int_equal(clv_trainer_steps_done(t->trainer), steps);
    assert_int_equal(clv_trainer_steps_skipped(t->trainer), 0);
}

/* Losses of batches 2, 3, ... are those of a trainer that never saw batch 1. */
static void goes_on(const how *h, clv_on_nan on_nan)
{
    clv_error err = {0};
    clv_train_step did, want;
    trained t = begin(h, on_nan), other = begin(h, on_nan);
    must(step(&t, 0, &did, &err), &err);
    must(step(&other, 0, &want, &err), &err);
    meet(&t, on_nan);
    for (int batch = 2; batch < STEPS; batch++) {
        must(step(&t, batch, &did, &err), &err);
        must(step(&other, batch, &want, &err), &err);
        assert_null(clv_trainer_nonfinite(t.trainer));
        assert_int_equal(did.skipped, 0);
        if (memcmp(&did.loss, &want.loss, sizeof did.loss) != 0)
            fail_msg("%s by %s: batch %d has loss %.9g after a step that failed, else %.9g", h->mesh, h->rules, batch,
                     did.loss, want.loss);
    }
    end(&t);
    end(&other);
}

static void test_nothing_changes(void **state)
{
    for (int i = 0; i < HOWS; i++) {
        goes_on(&hows[i], CLV_ON_NAN_SKIP);
        goes_on(&hows[i], CLV_ON_NAN_STOP);
    }
}

/* A loss that overflows where no gradient does: the bias of logits is far from where the labels are. No state changes.
 */
static void test_loss_alone(void **state)
{
    enum { ROWS = 2, LENGTH = 4 };
    trained t;
    size_t size, size_after;
    clv_error err = {0};
    clv_state_info info = {.size = sizeof info};
    clv_train_step did = {.size = sizeof did};
    int32_t ids[ROWS * LENGTH], labels[ROWS * LENGTH];
    const clv_lr_schedule schedule = {.peak = 0.003, .steps = STEPS};
    const clv_update_options update = {.size = sizeof update};
    const clv_trainer_options options = {.size = sizeof options,
                                         .batch = ROWS,
                                         .seq = LENGTH,
                                         .schedule = &schedule,
                                         .update = &update,
                                         .on_nan = CLV_ON_NAN_SKIP};
    must(clv_model_open(&t.model, golden_path("bert"), NULL, &err), &err);
    must(clv_trainer_new(&t.trainer, t.model, &options, &err), &err);
    t.session = clv_trainer_session(t.trainer);
    for (int i = 0; !info.name || strcmp(info.name, "lm_head.bias") != 0; i++)
        must(clv_session_state(t.session, i, &info, &err), &err);
    float *bias = calloc((size_t)info.type.shape[0], sizeof *bias);
    assert_true(bias && info.type.shape[0] > 10);
    bias[7] = -3e38F;
    bias[9] = 3e38F;
    must(clv_session_write(t.session, "lm_head.bias", NULL, bias, &err), &err);
    for (int i = 0; i < ROWS * LENGTH; i++) {
        ids[i] = i + 5;
        labels[i] = 7;
    }
    unsigned char *before = all_state(&t, &size);
    must(clv_trainer_step(t.trainer, ids, labels, NULL, &did, &err), &err);
    assert_true(isinf(did.loss) && isfinite(did.grad_norm) && did.skipped);
    assert_says(clv_trainer_nonfinite(t.trainer), "the loss is not a number at step 0");
    unsigned char *after = all_state(&t, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(bias);
    free(before);
    free(after);
    end(&t);
}

/* Of several ranks, the one with the earliest instruction is reported: a token that only the second rank has. */
static void test_first_of_ranks(void **state)
{
    enum { ITS_TOKEN = VOCAB - 1 };
    const how by_rows = {"data=2", "dp", CLV_F32, CLV_OPTIMIZER_ADAMW, 1};
    float embedding[VOCAB * GAINS];
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_error err = {0};
    clv_train_step did = {.size = sizeof did};
    trained t = begin(&by_rows, CLV_ON_NAN_SKIP);
    must(clv_session_read(t.session, "embed.weight", NULL, embedding, &err), &err);
    embedding[ITS_TOKEN * GAINS] = NAN;
    must(clv_session_write(t.session, "embed.weight", NULL, embedding, &err), &err);
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i < BATCH * SEQ / 2 ? i : ITS_TOKEN;
        labels[i] = i;
    }
    must(clv_trainer_step(t.trainer, ids, labels, NULL, &did, &err), &err);
    assert_true(did.skipped);
    assert_says(clv_trainer_nonfinite(t.trainer), "it begins at rank 1, embed");
    end(&t);
}

/* A checkpoint counts them, as the optimizer's steps are fewer by those. */
static void test_count_is_saved(void **state)
{
    clv_error err = {0};
    clv_train_step did, want;
    clv_resumed resumed = {.size = sizeof resumed};
    trained t = begin(&hows[0], CLV_ON_NAN_SKIP), other = begin(&hows[0], CLV_ON_NAN_SKIP);
    must(step(&t, 0, &did, &err), &err);
    meet(&t, CLV_ON_NAN_SKIP);
    must(clv_trainer_checkpoint(t.trainer, in_folder("saved"), NULL, &err), &err);
    must(clv_trainer_resume(other.trainer, in_folder("saved"), &resumed, &err), &err);
    assert_int_equal(clv_trainer_steps_skipped(other.trainer), 1);
    for (int batch = 2; batch < 5; batch++) {
        must(step(&t, batch, &did, &err), &err);
        must(step(&other, batch, &want, &err), &err);
        assert_true(did.loss == want.loss);
    }
    end(&t);
    end(&other);
}

static void test_options(void **state)
{
    clv_on_nan on_nan;
    clv_trainer *trainer;
    clv_error err = {0};
    must(clv_on_nan_parse(&on_nan, "skip", &err), &err);
    assert_int_equal(on_nan, CLV_ON_NAN_SKIP);
    must(clv_on_nan_parse(&on_nan, "stop", &err), &err);
    assert_int_equal(on_nan, CLV_ON_NAN_STOP);
    assert_int_equal(clv_on_nan_parse(&on_nan, "ignore", &err), CLV_EINVAL);
    assert_int_equal(clv_trainer_steps_skipped(NULL), -1);
    assert_null(clv_trainer_nonfinite(NULL));
    trained t = begin(&hows[0], CLV_ON_NAN_STOP);
    const clv_lr_schedule schedule = {.peak = 0.003, .steps = 1};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = 1, .seq = 4, .schedule = &schedule, .on_nan = 2};
    assert_int_equal(clv_trainer_new(&trainer, t.model, &options, NULL), CLV_EINVAL);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_changes), cmocka_unit_test(test_loss_alone),
                                       cmocka_unit_test(test_first_of_ranks), cmocka_unit_test(test_count_is_saved),
                                       cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
