/* test_train_mixed_precision.c - training in 16 bits: f32 copies that begin, are saved and are gone on from at full
 * precision, in whichever dtype; models that are saved in the dtype of the run; the same on every mesh. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "io/checkpoint/safetensors.h"
#include "must.h"
#include "trained_model.h"
#include "temp_folder.h"
#include "program/program.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, STEPS = 6, VOCAB = 50, GAINS = 24, ELEMS = VOCAB * GAINS };

/* A parameter of each kind, all elements of which are looked at. */
static const char *const looked_at[] = {"embed.weight", "final_norm.weight"};
enum { LOOKED_AT = sizeof looked_at / sizeof looked_at[0] };

typedef struct split {
    const char *mesh, *rules;
} split;

static const split splits[] = {
    {"model=1", "megatron"}, {"model=2", "megatron"}, {"model=3", "megatron-sp"},    {"data=2", "dp"},
    {"data=2", "fsdp"},      {"data=3", "zero1"},     {"data=2,model=2", "megatron"}};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static clv_model *new_model(const clv_model_options *options)
{
    clv_model *model;
    clv_error err = {0};
    const clv_model_info sizes = {.hidden = GAINS,
                                  .layers = 1,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .ffn = 30,
                                  .vocab = VOCAB,
                                  .max_positions = 16,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_model_new(&model, &sizes, options, &err), &err);
    return model;
}

/* path NULL: of sizes. */
static trained begin(const split *on, const char *path, clv_dtype dtype, clv_optimizer optimizer)
{
    trained t = {.tokens = BATCH * SEQ};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_error err = {0};
    must(clv_mesh_parse(&mesh, on->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, on->rules, &mesh, &err), &err);
    const clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .dtype = dtype};
    const clv_lr_schedule schedule = {.peak = 0.003, .floor = 0.003, .steps = STEPS};
    const clv_update_options update = {.size = sizeof update, .clip = 1, .optimizer = optimizer};
    const clv_trainer_options how = {
        .size = sizeof how, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .seed = 3, .update = &update};
    if (path)
        must(clv_model_open(&t.model, path, &options, &err), &err);
    else
        t.model = new_model(&options);
    must(clv_trainer_new(&t.trainer, t.model, &how, &err), &err);
    return t;
}

static int64_t elems_of(const char *parameter)
{
    return strcmp(parameter, looked_at[0]) == 0 ? ELEMS : GAINS;
}

/* What is updated, in f32: the parameter, or of one of 16 bits its copy. */
static void read_exact(float *out, const trained *t, const char *parameter)
{
    char name[64];
    clv_error err = {0};
    snprintf(name, sizeof name, "%s%s", parameter, clv_model_dtype(t->model) == CLV_F32 ? "" : ".master");
    must(clv_session_read(clv_trainer_session(t->trainer), name, NULL, out, &err), &err);
}

/* The parameter is its copy, rounded. */
static void assert_rounded(const trained *t, const char *parameter)
{
    static float exact[ELEMS];
    static uint16_t rounded[ELEMS], is[ELEMS];
    clv_error err = {0};
    read_exact(exact, t, parameter);
    clv_dtype_convert(CLV_BF16, rounded, CLV_F32, exact, elems_of(parameter));
    must(clv_session_read(clv_trainer_session(t->trainer), parameter, NULL, is, &err), &err);
    assert_memory_equal(is, rounded, (size_t)elems_of(parameter) * sizeof *is);
}

static void assert_same_weights(const trained *a, const trained *b)
{
    static float x[ELEMS], y[ELEMS];
    for (int i = 0; i < LOOKED_AT; i++) {
        read_exact(x, a, looked_at[i]);
        read_exact(y, b, looked_at[i]);
        assert_memory_equal(x, y, (size_t)elems_of(looked_at[i]) * sizeof *x);
    }
}

/* ---- where copies begin ---- */

/* As weights do that nothing rounded: those of the initializer, and those of a folder of f32. */
static void test_copies_begin_exact(void **state)
{
    double losses[STEPS];
    trained f32 = begin(&splits[0], NULL, CLV_F32, CLV_OPTIMIZER_ADAMW);
    trained bf16 = begin(&splits[1], NULL, CLV_BF16, CLV_OPTIMIZER_ADAMW);
    assert_same_weights(&f32, &bf16);
    assert_rounded(&bf16, looked_at[0]);
    end(&bf16);
    train(&f32, 2, losses);
    must(clv_trainer_save(f32.trainer, in_folder("f32"), NULL), NULL);
    for (int s = 0; s < SPLITS; s++) {
        bf16 = begin(&splits[s], in_folder("f32"), CLV_BF16, CLV_OPTIMIZER_SGD);
        assert_same_weights(&f32, &bf16);
        assert_rounded(&bf16, looked_at[0]);
        end(&bf16);
    }
    end(&f32);
}

/* ---- what is saved ---- */

/* In the dtype of the run, and config.json says so; a run of f32 takes those values as they are. */
static void test_saved_in_its_dtype(void **state)
{
    static float exact[ELEMS];
    static uint16_t stored[ELEMS], rounded[ELEMS];
    double losses[STEPS];
    clv_error err = {0};
    clv_safetensors *file;
    const clv_safetensor *tensor;
    trained bf16 = begin(&splits[1], NULL, CLV_BF16, CLV_OPTIMIZER_ADAMW);
    train(&bf16, 2, losses);
    must(clv_trainer_save(bf16.trainer, in_folder("bf16"), &err), &err);
    must(clv_safetensors_open(&file, in_folder("bf16/model.safetensors"), &err), &err);
    for (int64_t i = 0; i < clv_safetensors_count(file); i++)
        assert_int_equal(clv_safetensors_at(file, i)->dtype, CLV_BF16);
    must(clv_safetensors_find(&tensor, file, "model.embed_tokens.weight", &err), &err);
    must(clv_safetensors_read(tensor, NULL, CLV_BF16, stored, &err), &err);
    clv_safetensors_close(file);
    read_exact(exact, &bf16, looked_at[0]);
    clv_dtype_convert(CLV_BF16, rounded, CLV_F32, exact, ELEMS);
    assert_memory_equal(stored, rounded, sizeof stored);
    end(&bf16);
    char command[256];
    snprintf(command, sizeof command, "grep -q '\"dtype\": \"bfloat16\"' %s/bf16/config.json", folder);
    assert_int_equal(system(command), 0);
    trained f32 = begin(&splits[0], in_folder("bf16"), CLV_F32, CLV_OPTIMIZER_ADAMW);
    clv_dtype_convert(CLV_F32, exact, CLV_BF16, stored, ELEMS);
    static float is[ELEMS];
    read_exact(is, &f32, looked_at[0]);
    assert_memory_equal(is, exact, sizeof is);
    end(&f32);
}

/* ---- going on ---- */

/* On another mesh, and in the same dtype or the other: weights at full precision are those that were saved. */
static void goes_on(clv_dtype from, clv_dtype to, clv_optimizer optimizer, int s)
{
    double losses[STEPS], again[STEPS];
    clv_error err = {0};
    clv_resumed did = {.size = sizeof did};
    const char *at = in_folder("from-%d-%d-%d-%d", from, to, optimizer, s);
    trained was = begin(&splits[s], NULL, from, optimizer);
    train(&was, STEPS / 2, losses);
    must(clv_trainer_checkpoint(was.trainer, at, NULL, &err), &err);
    trained is = begin(&splits[(s + 1) % SPLITS], NULL, to, optimizer);
    must(clv_trainer_resume(is.trainer, at, &did, &err), &err);
    assert_int_equal(did.steps, STEPS / 2);
    assert_same_weights(&was, &is);
    if (to == CLV_BF16)
        assert_rounded(&is, looked_at[0]);
    train(&was, STEPS, losses);
    train(&is, STEPS, again);
    for (int i = STEPS / 2; i < STEPS; i++)
        if (!(fabs(again[i] - losses[i]) <= 2e-3 * losses[i]))
            fail_msg("%s, gone on with in %s on %s by %s: step %d has loss %.9g and not %.9g", clv_dtype_name(from),
                     clv_dtype_name(to), splits[(s + 1) % SPLITS].mesh, clv_optimizer_name(optimizer), i, again[i],
                     losses[i]);
    end(&was);
    end(&is);
}

static void test_goes_on_in_either(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16};
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            for (int o = 0; o < 3; o++)
                for (int s = o; s < SPLITS; s += 3)
                    goes_on(dtypes[from], dtypes[to], (clv_optimizer)o, s);
}

/* ---- meshes ---- */

/* A mesh rounds other partial sums: what that comes to is less than what rounding at all does. */
static void test_meshes_agree(void **state)
{
    double one[STEPS], f32[STEPS], here[STEPS];
    trained t = begin(&splits[0], NULL, CLV_F32, CLV_OPTIMIZER_ADAMW);
    train(&t, STEPS, f32);
    end(&t);
    for (int s = 0; s < SPLITS; s++) {
        t = begin(&splits[s], NULL, CLV_BF16, CLV_OPTIMIZER_ADAMW);
        train(&t, STEPS, s == 0 ? one : here);
        for (int i = 0; s > 0 && i < STEPS; i++)
            if (!(fabs(here[i] - one[i]) <= 2e-3 * one[i]))
                fail_msg("%s by %s, step %d: loss %.9g, on one rank %.9g", splits[s].mesh, splits[s].rules, i, here[i],
                         one[i]);
        end(&t);
    }
    assert_true(one[STEPS - 1] != f32[STEPS - 1]); /* it was of 16 bits */
}

/* ---- what is planned ---- */

/* clv_plan_compile's step is the trainer's: its memory, byte for byte, and what it moves. */
static void plans_alike(const split *on, clv_dtype dtype)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *plan;
    clv_error err = {0};
    clv_memory memory = {.size = sizeof memory};
    trained t = begin(on, NULL, dtype, CLV_OPTIMIZER_ADAMW);
    must(clv_mesh_parse(&mesh, on->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, on->rules, &mesh, &err), &err);
    must(clv_trainer_save(t.trainer, in_folder("planned"), &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = in_folder("planned"),
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .batch = BATCH,
                                  .seq = SEQ,
                                  .dtype = dtype};
    must(clv_plan_compile(&plan, &how, &err), &err);
    must(clv_program_memory(plan, &memory, &err), &err);
    assert_int_equal(memory.total, clv_session_rank_bytes(clv_trainer_session(t.trainer)));
    assert_int_equal(clv_program_digest(plan), clv_program_digest(clv_trainer_program(t.trainer)));
    clv_program_free(plan);
    end(&t);
}

static void test_plans(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        plans_alike(&splits[s], CLV_F32);
        plans_alike(&splits[s], CLV_BF16);
    }
}

/* ---- what gradients are summed in ---- */

static clv_program *planned(const split *on, clv_comm_dtype gradients)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *plan;
    clv_error err = {0};
    must(clv_mesh_parse(&mesh, on->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, on->rules, &mesh, &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = in_folder("planned"),
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .batch = BATCH,
                                  .seq = SEQ,
                                  .compile.grad_reduce_dtype = gradients};
    must(clv_plan_compile(&plan, &how, &err), &err);
    return plan;
}

static void count_bytes(double *bf16, double *all, const clv_program *program)
{
    clv_error err = {0};
    *bf16 = *all = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective step = {.size = sizeof step};
        must(clv_program_collective(program, i, &step, &err), &err);
        *bf16 += step.type.dtype == CLV_BF16 ? step.bytes : 0;
        *all += step.bytes;
    }
}

/* Sums of gradients alone go in bf16, in half the bytes; with tensor parallelism there are none of weights. */
static void test_gradients_are_carried(void **state)
{
    double none, whole, bf16, all;
    for (int s = 0; s < SPLITS; s++) {
        clv_program *exact = planned(&splits[s], CLV_COMM_F32), *rounded = planned(&splits[s], CLV_COMM_BF16);
        count_bytes(&none, &whole, exact);
        count_bytes(&bf16, &all, rounded);
        assert_true(none == 0 && bf16 + all == whole);
        if (strncmp(splits[s].mesh, "model", 5) == 0 ? bf16 > 0 : !(bf16 > 0.1 * all))
            fail_msg("%s by %s: %g of %g bytes are bf16", splits[s].mesh, splits[s].rules, bf16, all);
        clv_program_free(exact);
        clv_program_free(rounded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_begin_exact),
                                       cmocka_unit_test(test_saved_in_its_dtype),
                                       cmocka_unit_test(test_goes_on_in_either),
                                       cmocka_unit_test(test_meshes_agree),
                                       cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_gradients_are_carried)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
