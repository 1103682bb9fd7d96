/* test_passes.c - the passes of clv_compile, each by itself: assign, lower, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/nn.h"
#include "must.h"
#include "partition/partitioner.h"

/* A partitioner of a graph, as clv_compile makes it. */
typedef struct bench {
    clv_compile_options options;
    clv_cost_model cost;
    clv_partitioner p;
} bench;

static void set_up(bench *b, const clv_graph *graph)
{
    clv_error err = {0};
    clv_program *program = calloc(1, sizeof *program);
    must(clv_graph_status(graph, &err), &err);
    program->arena = clv_arena_new();
    program->mesh = graph->mesh;
    *b = (bench){.options = {.size = sizeof b->options}};
    clv_cost_model_make(&b->cost, &graph->mesh, NULL);
    b->p = (clv_partitioner){
        .graph = graph, .program = program, .scratch = clv_arena_new(), .options = &b->options, .cost = &b->cost};
    must(clv_partition_begin(&b->p, &err), &err);
}

static void tear_down(bench *b)
{
    clv_arena_free(b->p.scratch);
    clv_program_free(b->p.program);
}

/* ---- assign ---- */

/* Megatron's feed-forward part: a product by columns, one by rows, and the sum of its addends. */
static void assigns_a_known_block(void **state)
{
    static const char expected[] = "p0 {_,_}: x\n"
                                   "p1 {_,model}: up\n"
                                   "p2 {model,_}: down\n"
                                   "p3 {_,model} = dot_general(p0, p1): model->factor 1\n"
                                   "p4 {_,model} = map(p3): model->factor 1\n"
                                   "p5 {_,_ + sum{model}} = dot_general(p4, p2): model->factor 2\n"
                                   "p6 {_,model} = map(p1): model->factor 1\n"
                                   "p7 {_,_} = all_reduce(p5 over model) for y\n"
                                   "output y: p7\n"
                                   "state up: p6\n";
    char text[4096];
    clv_error err = {0};
    bench b;
    clv_graph *graph = must_graph("model=4");
    (void)state;
    clv_layout whole = clv_layout_replicated(2), columns = clv_graph_layout(graph, 2, "_,model"),
               rows = clv_graph_layout(graph, 2, "model,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){64, 256}, &whole);
    clv_value up = clv_state(graph, "up", CLV_F32, 2, (int64_t[]){256, 1024}, &columns, (clv_init){CLV_INIT_NORMAL, 1});
    clv_value down =
        clv_state(graph, "down", CLV_F32, 2, (int64_t[]){1024, 256}, &rows, (clv_init){CLV_INIT_NORMAL, 1});
    clv_value h = clv_map(graph, CLV_TANH, clv_einsum(graph, "bm,mh->bh", x, up));
    clv_output(graph, "y", clv_einsum(graph, "bh,hm->bm", h, down), &whole);
    clv_assign(graph, up, clv_scale(graph, up, 0.5));
    set_up(&b, graph);
    must(clv_partition_assign(&b.p, &err), &err);
    assert_true(clv_assignment_print(text, sizeof text, &b.p.table) < sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(b.p.program->n_buffers + b.p.program->n_instructions, 0); /* the table is all that it makes */
    tear_down(&b);
    clv_graph_free(graph);
}

/* ---- lower ---- */

static int add_place(bench *b, clv_value value, const clv_layout *layout, bool named)
{
    clv_error err = {0};
    clv_place place = {.value = value.id, .layout = layout, .named = named, .same_as = -1};
    int out;
    must(clv_assignment_add_place(&out, &b->p.table, &place, &err), &err);
    must(clv_partition_place(&b->p, value.id, out, &err), &err);
    return out;
}

/* A table made by hand, of a way that the first pass would not go: y = tanh(x), gathered before it is computed, twice.
 */
static void lowers_a_table_made_by_hand(void **state)
{
    clv_error err = {0};
    bench b;
    clv_graph *graph = must_graph("a=2");
    (void)state;
    clv_layout cut = clv_graph_layout(graph, 1, "a"), whole = clv_layout_replicated(1);
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){64}, &cut), y = clv_map(graph, CLV_TANH, x);
    clv_output(graph, "y", y, &whole);
    set_up(&b, graph);
    clv_assignment *table = &b.p.table;
    clv_strategy strategy = {.in = {whole}, .out = {whole}};
    clv_reshard_step gather = {.kind = CLV_STEP_ALL_GATHER,
                               .from = cut,
                               .to = whole,
                               .n_axes = 1,
                               .axes = {clv_mesh_whole(&graph->mesh, 0)},
                               .bytes = 128};
    int given = add_place(&b, x, &cut, true), first = add_place(&b, x, &whole, false),
        again = add_place(&b, x, &whole, false), made = add_place(&b, y, &whole, false);
    clv_assigned step = {
        .step = &gather,
        .value = x.id,
        .from = given,
        .why = {.kind = CLV_NEEDED_BY_OP, .op = graph->ops[0].name, .reader = &graph->ops[0], .strategy = &strategy}};
    step.to = first;
    must(clv_assignment_add_row(table, &step, &err), &err);
    step.to = again;
    must(clv_assignment_add_row(table, &step, &err), &err);
    clv_assigned op = {.op = &graph->ops[0], .strategy = &strategy, .in = {again}, .out = {made}};
    must(clv_assignment_add_row(table, &op, &err), &err);
    table->output[0] = made;
    must(clv_partition_lower(&b.p, &err), &err);
    clv_program *program = b.p.program;
    assert_int_equal(program->n_buffers, 4);
    assert_int_equal(program->n_instructions, 3);
    assert_int_equal(program->n_steps, 2);
    assert_int_equal(program->n_groups, 1);
    assert_int_equal(program->instructions[2].in[0], again);
    assert_ptr_not_equal(program->instructions[2].op, &graph->ops[0]); /* it outlives the graph */
    assert_string_equal(program->instructions[0].reason, "operand");
    assert_true(program->instructions[0].implicit);
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_check(program, &err), &err);
    tear_down(&b);
    clv_graph_free(graph);
}

/* ---- memory ---- */

/* An input and three copies in a row of 64 KiB each, made by hand: at any time two are live, so they take turns. */
static void lays_out_a_program_made_by_hand(void **state)
{
    enum { N = 4, BYTES = 65536 };
    clv_error err = {0};
    clv_program *program = calloc(1, sizeof *program);
    clv_layout whole = clv_layout_replicated(1);
    clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = whole, .to = whole};
    (void)state;
    program->arena = clv_arena_new();
    assert_int_equal(clv_mesh_parse(&program->mesh, "a=1", &err), CLV_OK);
    program->buffers = clv_arena_alloc(program->arena, N, sizeof *program->buffers);
    program->instructions = clv_arena_alloc(program->arena, N, sizeof *program->instructions);
    for (int b = 0; b < N; b++)
        program->buffers[program->n_buffers++] = (clv_buffer){.kind = b > 0 ? CLV_BUFFER_TEMP : CLV_BUFFER_INPUT,
                                                              .type = {CLV_F32, 1, {BYTES / 4}},
                                                              .layout = whole,
                                                              .name = b > 0 ? NULL : "x",
                                                              .shares = -1};
    for (int i = 0; i + 1 < N; i++)
        program->instructions[program->n_instructions++] = (clv_instruction){
            .step = &copy, .group = -1, .n_in = 1, .n_out = 1, .in = {i}, .out = {i + 1}, .name = "y", .tensor = "x"};
    must(clv_program_plan_memory(program, &err), &err);
    must(clv_program_check(program, &err), &err);
    assert_int_equal(clv_program_region_bytes(program), 2 * BYTES);
    for (int b = 0; b + 2 < N; b++) {
        assert_int_not_equal(program->buffers[b].offset, program->buffers[b + 1].offset);
        assert_int_equal(program->buffers[b].offset, program->buffers[b + 2].offset);
    }
    clv_program_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(assigns_a_known_block),
                                       cmocka_unit_test(lowers_a_table_made_by_hand),
                                       cmocka_unit_test(lays_out_a_program_made_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
