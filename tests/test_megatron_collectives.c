/* test_megatron_collectives.c - the collectives of Megatron's layers, stages and experts, read off the program: kinds,
 * counts and bytes. f, f*, g and g* are written nowhere; they must come out of layouts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/nn.h"
#include "cleave/plan.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum { B = 4, S = 16, M = 48, HEADS = 6, F = 96, MAX_PARAMETERS = 32 };

typedef struct tally {
    int all_gather, reduce_scatter, all_reduce, other;
    double activation_bytes, vector_bytes; /* tensors of rank 3 and more; less */
    int vectors;                           /* collectives on tensors of rank 2 and less */
} tally;

static tally count(const clv_program *program)
{
    tally t = {0};
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (strcmp(c.kind, "slice") == 0 || strcmp(c.kind, "mask") == 0)
            continue;
        if (c.type.rank < 3) {
            t.vectors++;
            t.vector_bytes += c.bytes;
            continue;
        }
        t.activation_bytes += c.bytes;
        if (strcmp(c.kind, "all_gather") == 0)
            t.all_gather++;
        else if (strcmp(c.kind, "reduce_scatter") == 0)
            t.reduce_scatter++;
        else if (strcmp(c.kind, "all_reduce") == 0)
            t.all_reduce++;
        else
            t.other++;
    }
    return t;
}

static clv_graph *new_graph(const char *mesh_text)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph = NULL;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    return graph;
}

static clv_program *compile(clv_graph *graph)
{
    clv_error err = {0};
    clv_program *program = NULL;
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_program_verify(program, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* Gradients for all parameters and x, made outputs so that they are computed; each in its own layout. */
static void add_gradients(clv_graph *graph, clv_value x, clv_value y)
{
    clv_value wrt[MAX_PARAMETERS + 1], d[MAX_PARAMETERS + 1];
    int n = clv_graph_parameters(graph, wrt, MAX_PARAMETERS);
    wrt[n] = x;
    clv_gradients(graph, y, y, wrt, n + 1, d); /* of y^2 / 2 */
    for (int i = 0; i <= n; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%d", i);
        clv_output(graph, name, d[i], NULL);
    }
}

static tally block_of(int64_t tokens, const char *mesh, bool sp, clv_block_form form, bool backward)
{
    clv_graph *graph = new_graph(mesh);
    clv_axis_rules rules = clv_graph_axis_rules(graph, sp ? "megatron-sp" : "megatron");
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){B, tokens, M}, &layout);
    clv_block_options options = clv_block_defaults(form, HEADS, HEADS, F);
    clv_value y = clv_transformer_block(graph, x, &rules, &options);
    if (backward)
        add_gradients(graph, x, y);
    clv_output(graph, "y", y, &layout);
    clv_program *program = compile(graph);
    tally t = count(program);
    clv_program_free(program);
    return t;
}

static tally block(const char *mesh, bool sp, clv_block_form form, bool backward)
{
    return block_of(S, mesh, sp, form, backward);
}

static double reduce_bytes(int ranks)
{
    return 2.0 * B * S * M * 4 * (ranks - 1) / ranks;
}

static void assert_bytes(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * want))
        fail_msg("%g bytes, expected %g", got, want);
}

/* f and f*: two all_reduces forward (after attention and MLP), two backward (before them), of the residual. */
static void test_tensor_parallel(void **state)
{
    for (int form = CLV_BLOCK_LLAMA; form <= CLV_BLOCK_GPT; form++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            char mesh[32];
            snprintf(mesh, sizeof mesh, "model=%d", ranks);
            for (int backward = 0; backward < 2; backward++) {
                tally t = block(mesh, false, (clv_block_form)form, backward);
                assert_int_equal(t.all_reduce, backward ? 4 : 2);
                assert_int_equal(t.all_gather + t.reduce_scatter + t.other + t.vectors, 0);
                assert_bytes(t.activation_bytes, (backward ? 4 : 2) * reduce_bytes(ranks));
            }
        }
}

/* g and g*: two all_gathers and two reduce_scatters forward, the same backward; the bytes of tensor parallelism. */
static void test_sequence_parallel(void **state)
{
    for (int form = CLV_BLOCK_LLAMA; form <= CLV_BLOCK_GPT; form++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            char mesh[32];
            snprintf(mesh, sizeof mesh, "model=%d", ranks);
            for (int backward = 0; backward < 2; backward++) {
                tally t = block(mesh, true, (clv_block_form)form, backward);
                assert_int_equal(t.all_gather, backward ? 4 : 2);
                assert_int_equal(t.reduce_scatter, backward ? 4 : 2);
                assert_int_equal(t.all_reduce + t.other, 0);
                assert_bytes(t.activation_bytes, (backward ? 4 : 2) * reduce_bytes(ranks));
                /* Norm gains (and biases, and the biases of row-parallel layers) see each rank's rows alone: their
                 * gradients are summed over the group. */
                assert_int_equal(t.vectors, !backward ? 0 : form == CLV_BLOCK_LLAMA ? 2 : 6);
                assert_bytes(t.vector_bytes + 1, t.vectors * 2.0 * M * 4 * (ranks - 1) / ranks + 1);
            }
        }
}

/* Where ranks do not divide the sequence, two reduce_scatters over parts of the axis would move a little less, and take
 * longer: there is one all the same. */
static void test_uneven_sequence(void **state)
{
    for (int64_t tokens = S + 1; tokens < S + 4; tokens++) {
        tally t = block_of(tokens, "model=4", true, CLV_BLOCK_GPT, true);
        assert_int_equal(t.all_gather, 4);
        assert_int_equal(t.reduce_scatter, 4);
        assert_int_equal(t.all_reduce + t.other, 0);
        assert_int_equal(t.vectors, 6);
    }
}

static void test_one_rank(void **state)
{
    tally t = block("model=1", true, CLV_BLOCK_GPT, true);
    assert_int_equal(t.all_gather + t.reduce_scatter + t.all_reduce + t.other + t.vectors, 0);
}

/* Data parallelism: one reduction a parameter and nothing else. */
static void test_data_parallel(void **state)
{
    clv_graph *graph = new_graph("data=2");
    clv_axis_rules rules = clv_graph_axis_rules(graph, "dp");
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){B, S, M}, &layout);
    clv_block_options options = clv_block_defaults(CLV_BLOCK_GPT, HEADS, HEADS, F);
    clv_value y = clv_transformer_block(graph, x, &rules, &options);
    int parameters = clv_graph_parameters(graph, NULL, 0);
    add_gradients(graph, x, y);
    clv_program *program = compile(graph);
    int collectives = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (strcmp(c.kind, "slice") == 0)
            continue;
        assert_string_equal(c.kind, "all_reduce");
        collectives++;
    }
    assert_int_equal(collectives, parameters);
    clv_program_free(program);
}

/* A weight kept in parts over data (FSDP): gathered for the product, its gradient scattered back. */
static void test_sharded_weight(void **state)
{
    clv_graph *graph = new_graph("data=2");
    clv_layout rows = clv_graph_layout(graph, 2, "data,_");
    clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){512, 64}, &rows);
    clv_value w = clv_state(graph, "w", CLV_F32, 2, (int64_t[]){64, 64}, &rows, (clv_init){CLV_INIT_ONES, 0}), d;
    clv_value y = clv_unary(graph, CLV_TANH, clv_einsum(graph, "ik,kj->ij", x, w));
    clv_type type = clv_graph_type(graph, y);
    clv_gradients(graph, y, clv_fill(graph, CLV_F32, 2, type.shape, 1), &w, 1, &d);
    clv_output(graph, "d", d, NULL);
    clv_program *program = compile(graph);
    int gathers = 0, scatters = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        gathers += strcmp(c.kind, "all_gather") == 0;
        scatters += strcmp(c.kind, "reduce_scatter") == 0;
        assert_bytes(c.bytes, 64 * 64 * 4 / 2);
    }
    assert_int_equal(gathers, 1);
    assert_int_equal(scatters, 1);
    clv_program_free(program);
}

/* An axis that no layout names cuts the work of a product that is worth a gather, where it may. */
static void test_idle_axis(void **state)
{
    for (int idle = 0; idle < 2; idle++) {
        clv_error err = {0};
        clv_graph *graph = new_graph("x=4");
        clv_layout whole = clv_graph_layout(graph, 2, "_,_");
        clv_value a = clv_input(graph, "a", CLV_F32, 2, (int64_t[]){2048, 2048}, &whole);
        clv_output(graph, "b", clv_einsum(graph, "ik,kj->ij", a, a), &whole);
        clv_program *program;
        must(clv_compile(&program, graph, &(clv_compile_options){.use_idle_axes = idle}, &err), &err);
        clv_graph_free(graph);
        int gathers = 0;
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective c = {.size = sizeof c};
            clv_program_collective(program, i, &c, NULL);
            gathers += strcmp(c.kind, "all_gather") == 0;
        }
        assert_int_equal(gathers, idle);
        clv_program_free(program);
    }
}

/* gather_output and input_is_parallel, each way. */
static void test_linear_settings(void **state)
{
    for (int setting = 0; setting < 4; setting++) {
        clv_graph *graph = new_graph("model=2");
        clv_axis_rules rules = clv_graph_axis_rules(graph, "megatron");
        clv_layout whole = clv_graph_layout(graph, 3, "_,_,_");
        clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){B, S, M}, &whole);
        clv_linear_options up = {.name = "up", .bias = true, .gather_output = setting & 1};
        clv_linear_options down = {.name = "down", .bias = true, .input_is_parallel = setting & 2};
        clv_value y = clv_column_parallel_linear(graph, x, F, &rules, &up);
        clv_output(graph, "y", clv_row_parallel_linear(graph, y, M, &rules, &down), NULL);
        clv_program *program = compile(graph);
        tally t = count(program);
        assert_int_equal(t.all_reduce, 1);
        assert_int_equal(t.all_gather, setting & 1 ? 1 : 0);
        assert_int_equal(t.reduce_scatter + t.other + t.vectors, 0);
        clv_program_free(program);
    }
}

/* A tensor asked for in each of many layouts, `times` over; none is part of another. */
static int collectives_of_many(int times)
{
    static const char *const layouts[] = {"y,x,z",     "z,y,x",     "x,z,y",     "y,z,x",     "z,x,y",
                                          "(x,y),z,_", "_,(x,y),z", "z,_,(x,y)", "(y,z),x,_", "_,(z,x),y"};
    enum { MANY = sizeof layouts / sizeof layouts[0] };
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    must(clv_mesh_parse(&mesh, "x=2,y=2,z=2", &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    clv_layout stated = clv_graph_layout(graph, 3, "x,y,z");
    clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){8, 8, 8}, &stated);
    for (int i = 0; i < MANY * times; i++) {
        char name[16];
        clv_layout layout = clv_graph_layout(graph, 3, layouts[i % MANY]);
        snprintf(name, sizeof name, "o%d", i);
        clv_output(graph, name, clv_constrain(graph, x, &layout), &layout);
    }
    must(clv_compile(&program, graph, NULL, &err), &err);
    int n = clv_program_collective_count(program);
    clv_program_free(program);
    clv_graph_free(graph);
    return n;
}

/* What was brought to a layout stays at hand in it, however many there are. */
static void test_all_layouts_stay_at_hand(void **state)
{
    assert_int_equal(collectives_of_many(3), collectives_of_many(1));
}

/* ---- models ---- */

enum { BATCH = 8, SEQ = 256, HIDDEN = 4096, LAYERS = 32, BF16 = 2 }; /* of both models */

static clv_program *plan(const char *config, const char *mesh_text, const char *preset, int runs, int64_t accumulate)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_machine *machine;
    clv_program *program = NULL;
    char path[1024];
    snprintf(path, sizeof path, "%s/data/configs/%s.json", getenv("CLV_SOURCE_DIR"), config);
    must(clv_machine_open(&machine, "h100-nvlink-ib", NULL, &err), &err);
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    if (runs > 1)
        must(clv_axis_rules_set_stages(&rules, &mesh, runs, NULL, 0, &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = path,
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .batch = BATCH,
                                  .seq = SEQ,
                                  .dtype = CLV_BF16,
                                  .accumulate = accumulate,
                                  .compile = {.machine = machine}};
    must(clv_plan_compile(&program, &how, &err), &err);
    clv_machine_free(machine);
    return program;
}

/* Collectives of a kind on activations in a pass, and the bytes of each, which are equal. */
static int count_kind(const clv_program *program, const char *kind, bool backward, double *bytes)
{
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        clv_program_collective(program, i, &c, NULL);
        if (strcmp(c.kind, kind) != 0 || c.type.rank < 2 || c.backward != backward)
            continue;
        assert_true(n == 0 || c.bytes == *bytes);
        *bytes = c.bytes;
        n++;
    }
    return n;
}

/* Of each microbatch a message between every two runs of layers that follow each other, forward and back: the residual
 * stream, b s h elements, with sequence parallelism a rank's part of it. */
static void test_stages(void **state)
{
    enum { MICRO = 4 };
    static const struct {
        const char *mesh, *preset;
        int runs, rows, parts; /* virtual stages; ranks that split the batch, and the sequence */
    } cases[] = {{"pipe=4", NULL, 1, 1, 1},
                 {"pipe=4", NULL, 2, 1, 1},
                 {"pipe=4,model=2", "megatron", 1, 1, 1},
                 {"pipe=4,data=2,model=2", "megatron-sp", 1, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_program *program = plan("llama-3-8b", cases[i].mesh, cases[i].preset, cases[i].runs, MICRO);
        for (int backward = 0; backward < 2; backward++) {
            double bytes = 0;
            assert_int_equal(count_kind(program, "send", backward, &bytes), MICRO * (4 * cases[i].runs - 1));
            assert_bytes(bytes, (double)(BATCH / MICRO / cases[i].rows) * SEQ / cases[i].parts * HIDDEN * BF16);
        }
        clv_program_free(program);
    }
}

/* Each layer sends rows to their experts and gets results back, forward and backward. Megatron sends a row once for
 * each of its k experts, of which (e-1)/e are elsewhere: k (e-1)/e rows of h elements. A row goes once to each rank
 * here, so that it is less where a rank has several experts. */
static void test_experts(void **state)
{
    enum { TOP = 2 };
    for (int ranks = 4; ranks <= 8; ranks += 4) {
        char mesh[32];
        snprintf(mesh, sizeof mesh, "expert=%d", ranks);
        clv_program *program = plan("mixtral-8x7b", mesh, "dp", 1, 1);
        const double megatron = (double)BATCH / ranks * SEQ * TOP * HIDDEN * BF16 * (ranks - 1) / ranks;
        /* of 8 experts 8 / ranks are there: the share of rows that choose one of them, of those that Megatron sends */
        const double here = 8.0 / ranks, chosen = 1 - (8 - here) * (7 - here) / (8 * 7), part = chosen * ranks / TOP;
        for (int backward = 0; backward < 2; backward++)
            for (int way = 0; way < 2; way++) {
                double bytes = 0;
                assert_int_equal(count_kind(program, way ? "combine_rows" : "dispatch_rows", backward, &bytes), LAYERS);
                assert_bytes(bytes, megatron * part);
                assert_true(ranks == 8 ? fabs(part - 1) < 1e-9 : part < 0.95);
            }
        clv_program_free(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layouts_stay_at_hand),
        cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_sequence_parallel),
        cmocka_unit_test(test_uneven_sequence),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_sharded_weight),
        cmocka_unit_test(test_linear_settings),
        cmocka_unit_test(test_idle_axis),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
