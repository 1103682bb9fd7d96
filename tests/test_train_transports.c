/* test_train_transports.c - training steps, whole and in microbatches, in f32 and bf16 by every optimizer: losses go
 * down on each kind of mesh, and every other transport makes the same bits (tests/CMakeLists.txt runs this once more by
 * each). */
#include <stdio.h>

#include "cleave/train.h"
#include "must.h"
#include "slow_link_machine.h"
#include "sweep.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, STEPS = 4, VOCAB = 50 };

static const struct {
    const char *mesh, *rules;
    bool rings; /* attention passes blocks of keys and values around a ring, while it computes others */
} splits[] = {{"model=3", "megatron", false},    {"data=2", "fsdp", false},
              {"data=3", "zero1", false},        {"data=2,model=2", "megatron-sp", false},
              {"pipe=2,data=2", "zero1", false}, {"pipe=2,model=2", "megatron-sp", false},
              {"context=4", "fsdp", false},      {"context=2,model=2", "zero1+megatron-sp", false},
              {"context=4", "zero1", true}};
enum { SPLITS = sizeof splits / sizeof splits[0] };

static clv_model *model_on(int split, clv_dtype dtype)
{
    clv_model *model;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_error err = {0};
    const clv_model_info sizes = {.hidden = 24,
                                  .layers = 2,
                                  .heads = splits[split].rings ? 1 : 6,
                                  .kv_heads = splits[split].rings ? 1 : 3,
                                  .ffn = 30,
                                  .vocab = VOCAB,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_mesh_parse(&mesh, splits[split].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, &err), &err);
    must(clv_model_new(&model, &sizes, &(clv_model_options){.mesh = &mesh, .rules = &rules, .dtype = dtype}, &err),
         &err);
    return model;
}

static clv_program *step_of(const clv_model *model, clv_optimizer optimizer, int64_t parts, bool rings)
{
    clv_graph *graph;
    clv_program *program;
    clv_error err = {0};
    const clv_update_options update = {.size = sizeof update, .clip = 1, .optimizer = optimizer, .accumulate = parts};
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    const double dropout = optimizer == CLV_OPTIMIZER_ADAMW ? 0.1 : 0;
    clv_model_train_step(graph, model,
                         &(clv_model_graph_options){.size = sizeof(clv_model_graph_options),
                                                    .batch = rings ? 2 : BATCH, /* too few for all ranks */
                                                    .seq = SEQ,
                                                    .dropout = dropout,
                                                    .attention_dropout = dropout},
                         &update);
    clv_machine *machine = rings ? must_slow_ops() : NULL;
    must(clv_compile(&program, graph, &(clv_compile_options){.overlap = rings, .machine = machine}, &err), &err);
    clv_machine_free(machine);
    bool passes_on = false;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        passes_on = passes_on || strstr(c.cause, "go around a ring") != NULL;
    }
    assert_true(passes_on || !rings);
    clv_graph_free(graph);
    return program;
}

static void train(int split, clv_dtype dtype, clv_optimizer optimizer, int64_t parts)
{
    float lr = 0.01F, norm, loss[STEPS];
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_session *session;
    clv_error err = {0};
    clv_model *model = model_on(split, dtype);
    clv_program *program = step_of(model, optimizer, parts, splits[split].rings);
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i * 7 % VOCAB;
        labels[i] = (i + 1) * 7 % VOCAB;
    }
    must(clv_session_new(&session, clv_model_mesh(model), &(clv_session_options){.check = 1}, &err), &err);
    for (int32_t step = 1; step <= STEPS; step++)
        must(clv_session_run(session, program,
                             (clv_input_binding[]){{"ids", ids}, {"labels", labels}, {"lr", &lr}, {"step", &step}}, 4,
                             (clv_output_binding[]){{"loss", &loss[step - 1]}, {"grad_norm", &norm}}, 2, &err),
             &err);
    assert_true(loss[STEPS - 1] < loss[0]);
    clv_session_free(session);
    clv_program_free(program);
    clv_model_close(model);
}

static void test_steps(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16};
    for (int s = 0; s < SPLITS; s++)
        for (int d = 0; d < 2; d++)
            for (int o = CLV_OPTIMIZER_ADAMW; o <= CLV_OPTIMIZER_LION; o++)
                for (int64_t parts = 1; parts <= 2; parts++)
                    if (sweep_takes_thinned(11))
                        train(s, dtypes[d], (clv_optimizer)o, parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
