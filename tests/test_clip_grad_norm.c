/* test_clip_grad_norm.c - what a training step does with its gradients: the norm of all of them on every mesh,
 * clipping, and what it costs in communication. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/train.h"
#include "models/model.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, VOCAB = 37, MOST_STATE = 1 << 14 };

static const clv_model_info sizes = {.hidden = 24,
                                     .layers = 2,
                                     .heads = 6,
                                     .kv_heads = 2,
                                     .ffn = 40,
                                     .vocab = VOCAB,
                                     .max_positions = 16,
                                     .bos = -1,
                                     .pad = -1,
                                     .mask = -1};
static const clv_lr_schedule schedule = {.peak = 0.01, .floor = 0.001, .warmup = 1, .steps = 8};

/* Where the model is split, and over how many sets of axes its gradients are cut: all that a norm may reduce. */
typedef struct split {
    const char *mesh, *rules;
    int sets;
} split;

static const split splits[] = {
    {"model=1", "megatron", 0},
    {"model=2", "megatron", 1},
    {"model=3", "megatron", 1},
    {"model=4", "megatron-sp", 2},
    {"data=2", "dp", 0},
    {"data=2", "zero1", 1},
    {"data=3", "fsdp", 1},
    {"data=2,model=2", "fsdp+megatron-sp", 1},
    {"data=2,model=2", "megatron", 1},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static clv_model *model_on(const split *at)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    must(clv_mesh_parse(&mesh, at->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, at->rules, &mesh, &err), &err);
    must(clv_model_new(&model, &sizes, &(clv_model_options){.mesh = &mesh, .rules = &rules, .check = 1}, &err), &err);
    return model;
}

static clv_trainer *trainer_of(const clv_model *model, const clv_update_options *update)
{
    clv_error err = {0};
    clv_trainer *trainer;
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 5, .update = update};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    return trainer;
}

static clv_status step(clv_trainer *trainer, clv_train_step *did, clv_error *err)
{
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i * 7 % VOCAB;
        labels[i] = (i * i + 3) % VOCAB;
    }
    *did = (clv_train_step){.size = sizeof *did};
    return clv_trainer_step(trainer, ids, labels, NULL, did, err);
}

/* The norm of all states with this suffix. */
static double norm_of_states(clv_trainer *trainer, const char *suffix)
{
    clv_error err = {0};
    clv_state_info info = {.size = sizeof info};
    static float values[MOST_STATE];
    double sum = 0;
    for (int i = 0; clv_session_state(clv_trainer_session(trainer), i, &info, &err) == CLV_OK && info.name; i++) {
        size_t length = strlen(info.name);
        if (length < strlen(suffix) || strcmp(info.name + length - strlen(suffix), suffix) != 0)
            continue;
        assert_true(clv_type_elems(&info.type) <= MOST_STATE);
        must(clv_session_read(clv_trainer_session(trainer), info.name, NULL, values, &err), &err);
        for (int64_t k = 0; k < clv_type_elems(&info.type); k++)
            sum += (double)values[k] * (double)values[k];
    }
    return sqrt(sum);
}

static void assert_near(double got, double want, const split *at, const char *what)
{
    if (!(fabs(got - want) <= 1e-5 * want))
        fail_msg("%s by %s: %s is %.9g, expected %.9g", at->mesh, at->rules, what, got, want);
}

/* After the first step the first moment is a tenth of the gradient that was taken. */
static void test_norm(void **state)
{
    static const double clips[] = {0, 0.25, 1e3};
    double first = 0;
    for (int s = 0; s < SPLITS; s++)
        for (int c = 0; c < 3; c++) {
            clv_error err = {0};
            clv_train_step did;
            const clv_update_options update = {.size = sizeof update, .clip = clips[c]};
            clv_model *model = model_on(&splits[s]);
            clv_trainer *trainer = trainer_of(model, &update);
            must(step(trainer, &did, &err), &err);
            first = s == 0 && c == 0 ? did.grad_norm : first;
            assert_true(first > 0.5);
            assert_near(did.grad_norm, first, &splits[s], "the norm");
            assert_near(10 * norm_of_states(trainer, ".m"), c == 1 ? clips[c] : first, &splits[s], "what was taken");
            clv_trainer_free(trainer);
            clv_model_close(model);
        }
}

typedef struct traffic {
    int numbers; /* collectives of one number */
    int others;
    double bytes; /* of the others */
} traffic;

static traffic traffic_of(const clv_program *program)
{
    traffic t = {0};
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (c.bytes == 0)
            continue;
        bool number = c.type.rank == 0;
        t.numbers += number;
        t.others += !number;
        t.bytes += number ? 0 : c.bytes;
    }
    return t;
}

/* A norm adds one number for each set of axes that gradients are cut over, and nothing else. */
static void test_communication(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        clv_error err = {0};
        clv_graph *graph;
        clv_program *plain;
        const clv_update_options update = {.size = sizeof update, .clip = 1};
        clv_model *model = model_on(&splits[s]);
        clv_trainer *trainer = trainer_of(model, &update);
        must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
        clv_build_train_step(graph, &model->config,
                             &(clv_model_build_options){.batch = BATCH, .seq = SEQ, .rules = model->rules},
                             &(clv_update_options){.adamw = &(clv_adamw_options){.weight_decay = 0.01}}, false);
        must(clv_compile(&plain, graph, NULL, &err), &err);
        traffic without = traffic_of(plain), with = traffic_of(clv_trainer_program(trainer));
        if (with.others != without.others || with.bytes > without.bytes ||
            with.numbers - without.numbers != splits[s].sets)
            fail_msg("%s by %s: %d numbers and %d tensors of %g bytes; %d and %d of %g without a norm", splits[s].mesh,
                     splits[s].rules, with.numbers, with.others, with.bytes, without.numbers, without.others,
                     without.bytes);
        clv_graph_free(graph);
        clv_program_free(plain);
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
}

/* One element that is no number: the step says so, and where gradients are clipped all else stays as it was. */
static void test_not_finite(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        clv_error err = {0};
        clv_train_step did;
        float gain[24], before, after;
        const clv_update_options update = {.size = sizeof update, .clip = 1};
        clv_model *model = model_on(&splits[s]);
        clv_trainer *trainer = trainer_of(model, &update);
        clv_session *session = clv_trainer_session(trainer);
        must(step(trainer, &did, &err), &err);
        must(clv_session_read(session, "final_norm.weight", NULL, gain, &err), &err);
        before = (float)norm_of_states(trainer, ".v");
        gain[5] = INFINITY;
        must(clv_session_write(session, "final_norm.weight", NULL, gain, &err), &err);
        assert_int_equal(step(trainer, &did, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "not a number at step 1"));
        after = (float)norm_of_states(trainer, ".v");
        assert_memory_equal(&before, &after, sizeof before);
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
}

/* Two steps more of one trainer, and of a later one that goes on from the folder. */
static void go_on(clv_trainer *trainer, clv_trainer *later, const char *folder, const split *at)
{
    clv_error err = {0};
    clv_train_step whole, again;
    clv_resumed resumed = {.size = sizeof resumed};
    must(clv_trainer_resume(later, folder, &resumed, &err), &err);
    assert_int_equal(resumed.steps, 3);
    for (int i = 0; i < 2; i++) {
        must(step(trainer, &whole, &err), &err);
        must(step(later, &again, &err), &err);
    }
    assert_near(again.loss, whole.loss, at, "the loss of one that went on");
    assert_near(again.grad_norm, whole.grad_norm, at, "the norm of one that went on");
}

/* State of every optimizer goes on from a checkpoint, on another mesh too, and not as another's. */
static void test_resumed(void **state)
{
    for (int i = 0; i < 3 * SPLITS; i++) {
        if (!sweep_takes_thinned(7))
            continue;
        clv_error err = {0};
        clv_train_step did;
        char folder[] = "/tmp/cleave-updates-XXXXXX", remove[64];
        const split *at = &splits[i % SPLITS];
        clv_update_options update = {.size = sizeof update, .clip = 1, .optimizer = i / SPLITS};
        clv_model *model = model_on(at), *other = model_on(&splits[(i + i / SPLITS) % SPLITS]);
        clv_trainer *trainer = trainer_of(model, &update), *later = trainer_of(other, &update);
        assert_non_null(mkdtemp(folder));
        for (int k = 0; k < 3; k++)
            must(step(trainer, &did, &err), &err);
        must(clv_trainer_checkpoint(trainer, folder, NULL, &err), &err);
        go_on(trainer, later, folder, at);
        clv_trainer_free(later);
        update.optimizer = (update.optimizer + 1) % 3;
        later = trainer_of(other, &update);
        assert_int_equal(clv_trainer_resume(later, folder, NULL, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "trained by"));
        clv_trainer_free(later);
        clv_trainer_free(trainer);
        clv_model_close(model);
        clv_model_close(other);
        snprintf(remove, sizeof remove, "rm -r %s", folder);
        assert_int_equal(system(remove), 0);
    }
}

static void test_refused(void **state)
{
    static const clv_adamw_options betas[] = {
        {.size = sizeof(clv_adamw_options), .beta1 = 1},
        {.size = sizeof(clv_adamw_options), .beta1 = -0.1},
        {.size = sizeof(clv_adamw_options), .beta2 = 1.5},
        {.size = sizeof(clv_adamw_options), .exact = 1}, /* eps 0 */
        {.size = sizeof(clv_adamw_options), .weight_decay = -1},
    };
    const double clips[] = {-1, NAN, INFINITY};
    clv_trainer *none;
    clv_model *model = model_on(&splits[0]);
    clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 5};
    clv_update_options update = {.size = sizeof update};
    options.update = &update;
    for (size_t i = 0; i < sizeof betas / sizeof betas[0]; i++) {
        update.adamw = &betas[i];
        assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    }
    update.adamw = NULL;
    for (size_t i = 0; i < sizeof clips / sizeof clips[0]; i++) {
        update.clip = clips[i];
        assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    }
    update = (clv_update_options){.size = 3};
    assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    clv_graph *graph = must_graph("model=1");
    assert_int_equal(clv_global_norm(graph, NULL, 1).id, CLV_NONE.id);
    clv_graph_free(graph);
    graph = must_graph("model=1");
    clv_global_norm(graph, (clv_value[]){{99}}, 1);
    assert_int_equal(clv_graph_status(graph, NULL), CLV_EINVAL);
    clv_graph_free(graph);
    update = (clv_update_options){.size = sizeof update, .optimizer = 3};
    assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    update.optimizer = CLV_OPTIMIZER_SGD;
    update.sgd = &(clv_sgd_options){.size = sizeof(clv_sgd_options), .momentum = 1};
    assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    update.optimizer = CLV_OPTIMIZER_LION;
    update.lion = &(clv_lion_options){.size = sizeof(clv_lion_options), .beta2 = -0.5};
    assert_int_equal(clv_trainer_new(&none, model, &options, NULL), CLV_EINVAL);
    clv_model_train_step(NULL, model, NULL, NULL);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),    cmocka_unit_test(test_communication), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_resumed), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
