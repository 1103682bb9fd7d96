/* test_program_text.c - a program as text, whole: what lies where, what is in whose memory, what moves and why. */
#include <string.h>

#include "cleave/program.h"
#include "unit_test.h"

/* w is updated in place, v is not: its maker reads it twice; h takes the memory of what it is made of; y is reduced. */
static clv_program *compile(void)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_graph *graph;
    clv_program *program;
    assert_int_equal(clv_mesh_parse(&mesh, "x=2", &err), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
    clv_layout columns = clv_graph_layout(graph, 2, "_,x"), rows = clv_graph_layout(graph, 2, "x,_"),
               whole = clv_graph_layout(graph, 2, "_,_");
    const int64_t shape[] = {32, 32};
    clv_value w = clv_state(graph, "w", CLV_F32, 2, shape, &columns, (clv_init){CLV_INIT_ONES, 0});
    clv_value v = clv_state(graph, "v", CLV_F32, 2, shape, &rows, (clv_init){CLV_INIT_ONES, 0});
    clv_value x = clv_input(graph, "x", CLV_F32, 2, shape, &whole);
    clv_graph_push_scope(graph, "mlp");
    clv_value h = clv_unary(graph, CLV_TANH, clv_einsum(graph, "ik,kj->ij", x, w));
    clv_value y = clv_einsum(graph, "ik,kj->ij", h, v);
    clv_graph_pop_scope(graph);
    clv_assign(graph, w, clv_add(graph, w, h));
    clv_assign(graph, v, clv_mul(graph, v, v));
    clv_output(graph, "y", y, &whole);
    clv_output(graph, "h", h, &columns);
    if (clv_compile(&program, graph, NULL, &err) != CLV_OK)
        fail_msg("%s", err.message);
    clv_graph_free(graph);
    return program;
}

static void test_text(void **state)
{
    static const char *const want = "program on x=2, region 12.0 KiB (12288)\n"
                                    "  %0 f32[32,32] {_,x} = state w\n"
                                    "  %1 f32[32,32] {x,_} = state v\n"
                                    "  %2 f32[32,32] {_,_} = input x\n"
                                    "  %3 f32[32,32] {_,x} = mlp.dot_general(%2, %0)  @8192\n"
                                    "  %4 f32[32,32] {_,x} = mlp.map(%3)  = %3\n"
                                    "  %5 f32[32,32] {_,_ + sum{x}} = mlp.dot_general(%4, %1)  @0\n"
                                    "  %6 f32[32,32] {_,x} = combine(%0, %4)  = %0\n"
                                    "  %7 f32[32,32] {x,_} = combine(%1, %1)  @10240\n"
                                    "  %8 f32[32,32] {_,_} = all_reduce{x} 4.0 KiB (4096) (%5)  @4096  <- y: output y "
                                    "is stated as whole on every rank\n"
                                    "  %1 f32[32,32] {x,_} = slice{} 0 B (%7)  @0  <- v: v, which is "
                                    "assigned this value, is stated as split by dimension 0 over x\n"
                                    "  output y = %8\n"
                                    "  output h = %4\n";
    char text[4096], part[32];
    clv_program *program = compile();
    size_t n = clv_program_print(text, sizeof text, program);
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    assert_int_equal(clv_program_print(NULL, 0, program), n);
    assert_int_equal(clv_program_print(part, sizeof part, program), n);
    assert_true(strlen(part) == sizeof part - 1 && strncmp(text, part, sizeof part - 1) == 0);
    clv_program_free(program);
}

/* Layouts of values without readers are not propagated. */
static void test_dead_ops_change_nothing(void **state)
{
    char text[2][4096];
    for (int dead = 0; dead < 2; dead++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_graph *graph;
        clv_program *program;
        assert_int_equal(clv_mesh_parse(&mesh, "x=2", &err), CLV_OK);
        assert_int_equal(clv_graph_new(&graph, &mesh, &err), CLV_OK);
        clv_layout cut = clv_graph_layout(graph, 2, "x,_"), whole = clv_graph_layout(graph, 2, "_,_");
        clv_value x = clv_input(graph, "x", CLV_F32, 2, (int64_t[]){32, 32}, &whole);
        clv_value y = clv_unary(graph, CLV_EXP, x);
        if (dead)
            clv_unary(graph, CLV_TANH, clv_constrain(graph, y, &cut));
        clv_output(graph, "y", y, NULL);
        assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_OK);
        clv_program_print(text[dead], sizeof text[dead], program);
        clv_program_free(program);
        clv_graph_free(graph);
    }
    assert_string_equal(text[0], text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_dead_ops_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
