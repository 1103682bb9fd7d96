/* test_f32_gradients.c - gradients of bf16 weights that are f32 from where they are made: nothing is rounded where they
 * are added up, so ranks and parts of a step bring the same ones; what a plan says of them is what a run takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum { BATCH = 8, SEQ = 6, MOST_ELEMS = 4096 };

static clv_error err;

/* A weight of a product, one of an embedding, a gain. */
static const char *const looked_at[] = {"layers.0.mlp.down.weight", "embed.weight", "layers.1.mlp.norm.weight"};
enum { LOOKED_AT = sizeof looked_at / sizeof looked_at[0] };

typedef struct way {
    const char *name, *mesh, *rules;
    bool wide;
    int64_t parts;
    clv_recompute recompute;
    bool overlap;
    clv_reshard_after_forward reshard_after_forward;
    clv_comm_dtype carried; /* of gradients */
    const clv_lora_options *lora;
} way;

static const char *golden(const char *name)
{
    static char path[4096];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source ? source : ".", name);
    return path;
}

typedef struct run {
    clv_model *model;
    clv_trainer *trainer;
    double loss, norm;
} run;

/* By SGD: its momentum is the gradient after one step. */
static void step_once(run *r, const way *w, clv_optimizer optimizer)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 8};
    const clv_update_options update = {
        .size = sizeof update, .optimizer = optimizer, .accumulate = w->parts, .clip = optimizer ? 0 : 1};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
    must(clv_mesh_parse(&mesh, w->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, w->rules, &mesh, &err), &err);
    const clv_model_options how = {.size = sizeof how,
                                   .mesh = &mesh,
                                   .rules = &rules,
                                   .dtype = CLV_BF16,
                                   .compile.recompute = w->recompute,
                                   .compile.overlap = w->overlap,
                                   .compile.reshard_after_forward = w->reshard_after_forward,
                                   .lora = w->lora,
                                   .compile.grad_reduce_dtype = w->carried,
                                   .f32_gradients = w->wide};
    must(clv_model_open(&r->model, golden(w->name), &how, &err), &err);
    must(clv_trainer_new(&r->trainer, r->model, &options, &err), &err);
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = (11 * i + i / 5) % 29;
        labels[i] = i % 5 == 1 ? CLV_IGNORE_INDEX : (5 * i + 2) % 29;
    }
    clv_train_step did = {.size = sizeof did};
    must(clv_trainer_step(r->trainer, ids, labels, NULL, &did, &err), &err);
    r->loss = did.loss;
    r->norm = did.grad_norm;
}

static void end(run *r)
{
    clv_trainer_free(r->trainer);
    clv_model_close(r->model);
}

typedef struct gradients {
    double norm;
    float of[LOOKED_AT][MOST_ELEMS];
} gradients;

static void take_gradients(gradients *out, const way *w)
{
    run r;
    memset(out, 0, sizeof *out);
    step_once(&r, w, CLV_OPTIMIZER_SGD);
    out->norm = r.norm;
    for (int i = 0; i < LOOKED_AT; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.momentum", looked_at[i]);
        must(clv_session_read(clv_trainer_session(r.trainer), name, NULL, out->of[i], &err), &err);
    }
    end(&r);
}

/* How far they are off, of the length of the right ones; of a tensor. */
static double off(const gradients *is, const gradients *right, int i)
{
    double difference = 0, length = 0;
    for (int k = 0; k < MOST_ELEMS; k++) {
        difference += pow((double)is->of[i][k] - (double)right->of[i][k], 2);
        length += pow((double)right->of[i][k], 2);
    }
    assert_true(length > 0);
    return sqrt(difference / length);
}

/* Ranks that split the batch, and parts of a step, add up what one rank does at once: in bf16 each addend and the sum
 * are rounded to 2^-9 of it, in f32 to 2^-24, and rows are in other products. */
static void test_sums_are_not_rounded(void **state)
{
    static const char *const names[] = {"llama", "gpt2", "bert"};
    static const struct {
        const char *mesh, *rules;
        int64_t parts;
        bool narrow; /* without, they are off */
    } ways[] = {{"data=2", "dp", 1, true},    {"data=4", "dp", 1, true},    {"data=4", "zero1", 1, true},
                {"data=2", "fsdp", 1, false}, {"data=1", "dp", 8, false},   {"data=2", "dp", 4, false},
                {"data=2", "fsdp", 2, false}, {"data=2", "zero1", 4, false}};
    static gradients right, wide, narrow;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        take_gradients(&right, &(way){.name = names[m], .mesh = "data=1", .rules = "dp", .wide = true});
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            way w = {.name = names[m], .mesh = ways[k].mesh, .rules = ways[k].rules, .parts = ways[k].parts};
            take_gradients(&narrow, &w);
            w.wide = true;
            take_gradients(&wide, &w);
            for (int i = 0; i < LOOKED_AT; i++)
                if (!(off(&wide, &right, i) <= 1e-6) || (ways[k].narrow && !(off(&narrow, &right, i) >= 1e-3)))
                    fail_msg("%s on %s by %s, %lld parts: the gradient of %s is off by %g in f32, %g in bf16", names[m],
                             w.mesh, w.rules, (long long)w.parts, looked_at[i], off(&wide, &right, i),
                             off(&narrow, &right, i));
            if (!(fabs(wide.norm - right.norm) <= 1e-6 * right.norm))
                fail_msg("%s on %s by %s: norm %.9g; %.9g", names[m], w.mesh, w.rules, wide.norm, right.norm);
        }
    }
}

/* What ranks that split tensors bring differs by activations of bf16, which are rounded elsewhere, and so do the
 * gradients: by as much as those of bf16 do, and no more. */
static void test_other_meshes(void **state)
{
    static const struct {
        const char *mesh, *rules;
    } ways[] = {{"model=2", "megatron"}, {"model=3", "megatron-sp"}, {"data=2,model=2", "fsdp+megatron-sp"}};
    static gradients right, wide, right_narrow, narrow;
    take_gradients(&right, &(way){.name = "llama", .mesh = "data=1", .rules = "dp", .wide = true});
    take_gradients(&right_narrow, &(way){.name = "llama", .mesh = "data=1", .rules = "dp"});
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        way w = {.name = "llama", .mesh = ways[k].mesh, .rules = ways[k].rules, .parts = 2};
        take_gradients(&narrow, &w);
        w.wide = true;
        take_gradients(&wide, &w);
        for (int i = 0; i < LOOKED_AT; i++) {
            double usual = off(&narrow, &right_narrow, i);
            if (!(usual <= 0.03) || !(off(&wide, &right, i) <= 1.02 * usual))
                fail_msg("%s: the gradient of %s is off by %g, that of bf16 by %g", ways[k].mesh, looked_at[i],
                         off(&wide, &right, i), usual);
        }
    }
}

/* ---- plans ---- */

static clv_program *plan(const way *w)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    must(clv_mesh_parse(&mesh, w->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, w->rules, &mesh, &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = golden(w->name),
                                  .mode = CLV_PLAN_MODE_TRAIN,
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .dtype = CLV_BF16,
                                  .batch = BATCH,
                                  .seq = SEQ,
                                  .accumulate = w->parts,
                                  .compile.recompute = w->recompute,
                                  .compile.overlap = w->overlap,
                                  .compile.reshard_after_forward = w->reshard_after_forward,
                                  .lora = w->lora,
                                  .compile.grad_reduce_dtype = w->carried,
                                  .f32_gradients = w->wide};
    must(clv_plan_compile(&program, &how, &err), &err);
    return program;
}

/* The trainer's step, byte for byte. */
static void test_plans(void **state)
{
    const clv_lora_options lora = {.size = sizeof lora, .rank = 2};
    const way ways[] = {
        {.name = "llama", .mesh = "data=2", .rules = "dp"},
        {.name = "gpt2", .mesh = "data=2", .rules = "fsdp", .reshard_after_forward = CLV_RESHARD_ALL},
        {.name = "llama", .mesh = "data=2", .rules = "fsdp", .parts = 4, .recompute = CLV_RECOMPUTE_FULL},
        {.name = "gpt2", .mesh = "data=2", .rules = "zero1", .overlap = true},
        {.name = "gpt2", .mesh = "model=2", .rules = "megatron-sp", .recompute = CLV_RECOMPUTE_SELECTIVE},
        {.name = "llama", .mesh = "data=2,model=2", .rules = "fsdp+megatron-sp", .overlap = true},
        {.name = "llama", .mesh = "data=2", .rules = "dp", .carried = CLV_COMM_BF16},
        {.name = "llama", .mesh = "data=2", .rules = "dp", .lora = &lora}};
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        run r;
        way w = ways[k];
        clv_memory memory = {.size = sizeof memory};
        w.wide = true;
        step_once(&r, &w, CLV_OPTIMIZER_ADAMW);
        clv_program *planned = plan(&w);
        must(clv_program_memory(planned, &memory, &err), &err);
        assert_int_equal(clv_session_rank_bytes(clv_trainer_session(r.trainer)), memory.total);
        assert_int_equal(clv_program_digest(planned), clv_program_digest(clv_trainer_program(r.trainer)));
        clv_program_free(planned);
        end(&r);
    }
}

/* Of the steps that sum what is not a single number, by the dtype that they carry. */
static void sum_bytes(double *f32, double *bf16, const clv_program *program)
{
    *f32 = *bf16 = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        bool sums = strcmp(c.kind, "all_reduce") == 0 || strcmp(c.kind, "reduce_scatter") == 0;
        if (sums && c.type.rank > 0)
            *(c.type.dtype == CLV_F32 ? f32 : bf16) += c.bytes;
    }
}

/* Each gradient is reduced once, in twice the bytes, and not one rounded; those of adapters, too. */
static void test_bytes(void **state)
{
    const clv_lora_options lora = {.size = sizeof lora, .rank = 2};
    double f32, bf16, other, narrow;
    for (int adapted = 0; adapted < 2; adapted++)
        for (int64_t parts = 1; parts <= 2; parts++) {
            way w = {.name = "llama", .mesh = "data=2", .rules = "dp", .parts = parts, .lora = adapted ? &lora : NULL};
            clv_program *without = plan(&w);
            w.wide = true;
            clv_program *with = plan(&w);
            sum_bytes(&f32, &bf16, with);
            sum_bytes(&other, &narrow, without);
            assert_true(bf16 == 0 && f32 > 0);
            if (parts == 1 && !adapted) /* of few rows adapters' gradients are made otherwise */
                assert_true(other == 0 && f32 == 2 * narrow);
            clv_program_free(without);
            clv_program_free(with);
        }
}

/* A block's, too: its outputs are f32. */
static void test_of_a_block(void **state)
{
    for (int wide = 0; wide < 2; wide++) {
        clv_program *program;
        clv_program_tensor t = {.size = sizeof t};
        const clv_plan_options how = {.size = sizeof how,
                                      .block = CLV_PLAN_BLOCK_GPT,
                                      .mode = CLV_PLAN_MODE_GRAD,
                                      .bias = true,
                                      .dtype = CLV_BF16,
                                      .f32_gradients = wide};
        int seen = 0;
        must(clv_plan_compile(&program, &how, &err), &err);
        for (int i = 0;; i++) {
            must(clv_program_tensor_at(program, i, &t, &err), &err);
            if (!t.name)
                break;
            bool of_parameter = strncmp(t.name, "d.", 2) == 0 && strcmp(t.name, "d.x") != 0;
            assert_int_equal(t.type.dtype, of_parameter && wide ? CLV_F32 : CLV_BF16);
            seen += of_parameter;
        }
        assert_true(seen > 8);
        clv_program_free(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_are_not_rounded), cmocka_unit_test(test_other_meshes),
                                       cmocka_unit_test(test_plans), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_of_a_block)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
