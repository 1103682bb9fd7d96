/* test_dropped_collectives.c - every collective matters: each step of a compiled block is dropped in turn, and each is
 * moved behind its first reader; the results must change, or the program must be refused. A test suite that passes
 * programs with a lost collective would pass a partitioner that forgets one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "must.h"
#include "runtime/session/session_internal.h"
#include "unit_test.h"

enum { B = 2, S = 6, M = 24, FFN = 40, HEADS = 6, MOST = 24, ROOM = 8192 };

/* A Llama block, its gradients and an update, as one program: outputs "y", "d0", ... */
static clv_program *compile(const char *mesh_text, const char *preset, int *n_outputs)
{
    clv_error err = {0};
    clv_graph *graph = must_graph(mesh_text);
    clv_program *program;
    clv_axis_rules rules = clv_graph_axis_rules(graph, preset);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){B, S, M}, NULL);
    clv_block_options o = clv_block_defaults(CLV_BLOCK_LLAMA, HEADS, 2, FFN);
    o.attention.init = o.attention.output_init = o.mlp.init = o.mlp.output_init = (clv_init){CLV_INIT_NORMAL, 0.3};
    clv_value y = clv_transformer_block(graph, x, &rules, &o), wrt[MOST], d[MOST];
    int n = clv_graph_parameters(graph, wrt, MOST - 1);
    wrt[n++] = x;
    clv_gradients(graph, y, clv_mul(graph, y, y), wrt, n, d);
    clv_output(graph, "y", y, NULL);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        clv_output(graph, name, d[i], NULL);
    }
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    *n_outputs = n + 1;
    return program;
}

/* What lies in memory before a run must not be what a correct run left there. (These sessions do not check: a dropped
 * step would be found by what it leaves unwritten, and here results must show it.) */
static void poison(clv_session *session)
{
    for (int l = 0; l < session->n_loaded; l++)
        for (int r = 0; r < session->n_ranks; r++)
            memset(session->loaded[l]->ranks[r].region, 0xff, (size_t)session->loaded[l]->program->region_bytes);
}

typedef struct results {
    int n;
    float *tensor[MOST + 1];
} results;

static void run(results *out, const clv_program *program, int n_outputs)
{
    static char names[MOST + 1][16];
    clv_error err = {0};
    clv_session *session;
    clv_output_binding outputs[MOST + 1];
    float x[B * S * M];
    for (int i = 0; i < B * S * M; i++)
        x[i] = sinf(0.7f * (float)i) + 0.1f * (float)(i % 7);
    out->n = n_outputs;
    for (int i = 0; i < n_outputs; i++) {
        snprintf(names[i], sizeof names[i], i ? "d%d" : "y", i - 1);
        out->tensor[i] = calloc(ROOM, sizeof(float));
        outputs[i] = (clv_output_binding){names[i], out->tensor[i]};
    }
    clv_input_binding inputs[] = {{"x", x}};
    must(clv_session_new(&session, clv_program_mesh(program), &(clv_session_options){.seed = 5}, &err), &err);
    must(clv_session_load(session, program, &err), &err);
    poison(session);
    must(clv_session_run(session, program, inputs, 1, outputs, n_outputs, &err), &err);
    clv_session_free(session);
}

static void release(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->tensor[i]);
}

static bool differ(const results *a, const results *b)
{
    for (int i = 0; i < a->n; i++) {
        double largest = 0;
        for (int k = 0; k < ROOM; k++)
            largest = fmax(largest, fabs((double)a->tensor[i][k]));
        for (int k = 0; k < ROOM; k++)
            if (!(fabs((double)a->tensor[i][k] - b->tensor[i][k]) <= 1e-4 * largest))
                return true;
    }
    return false;
}

/* The step leaves what a rank has itself: a sum unsummed, a gather ungathered. */
static void drop(clv_instruction *instruction, clv_reshard_step *lost)
{
    *lost = *instruction->step;
    lost->kind = CLV_STEP_SLICE;
    lost->bytes = 0;
    instruction->step = lost;
    instruction->group = -1;
}

/* The first instruction after i that reads what it makes; -1: only an output does. */
static int first_reader(const clv_program *program, int i)
{
    int made = clv_program_owning_buffer(program, program->instructions[i].out[0]);
    for (int r = i + 1; r < program->n_instructions; r++)
        for (int k = 0; k < program->instructions[r].n_in; k++)
            if (program->instructions[r].in[k] >= 0 &&
                clv_program_owning_buffer(program, program->instructions[r].in[k]) == made)
                return r;
    return -1;
}

/* Moves instruction i to after `reader`. */
static void delay(clv_program *program, int i, int reader)
{
    clv_instruction late = program->instructions[i];
    memmove(&program->instructions[i], &program->instructions[i + 1], (size_t)(reader - i) * sizeof late);
    program->instructions[reader] = late;
}

static void restore(clv_program *program, int i, int reader)
{
    clv_instruction late = program->instructions[reader];
    memmove(&program->instructions[i + 1], &program->instructions[i], (size_t)(reader - i) * sizeof late);
    program->instructions[i] = late;
}

static void every_fault(const char *mesh, const char *preset)
{
    int n_outputs, faults = 0;
    results right, wrong;
    clv_error err = {0};
    clv_program *program = compile(mesh, preset, &n_outputs);
    must(clv_program_verify(program, &err), &err);
    run(&right, program, n_outputs);
    run(&wrong, program, n_outputs);
    assert_false(differ(&right, &wrong));
    release(&wrong);
    for (int i = 0; i < program->n_instructions; i++) {
        clv_instruction *instruction = &program->instructions[i], kept = *instruction;
        clv_reshard_step lost;
        if (instruction->op || !clv_step_moves(instruction->step->kind))
            continue;
        drop(instruction, &lost);
        run(&wrong, program, n_outputs);
        if (!differ(&right, &wrong))
            fail_msg("%s by %s: %s of %s (for %s) dropped, and nothing changed", mesh, preset,
                     clv_step_name(kept.step->kind), kept.tensor, kept.name);
        release(&wrong);
        *instruction = kept;
        faults++;
        int reader = first_reader(program, i);
        if (reader < 0)
            continue;
        delay(program, i, reader);
        err = (clv_error){0};
        if (clv_program_verify(program, &err) == CLV_OK)
            fail_msg("%s by %s: %s for %s came after its reader, and the program was not refused", mesh, preset,
                     clv_step_name(kept.step->kind), kept.name);
        restore(program, i, reader);
    }
    assert_true(faults > 3);
    release(&right);
    clv_program_free(program);
}

static void test_faults(void **state)
{
    every_fault("model=2", "megatron");
    every_fault("model=2", "megatron-sp");
    every_fault("model=3", "megatron-sp");
    every_fault("X=2,Y=2", "gspmd-2d");
    every_fault("data=2,model=2", "fsdp+megatron-sp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
