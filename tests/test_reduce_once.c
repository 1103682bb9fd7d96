/* test_reduce_once.c - a partial value is reduced once, and its first whole copy serves all its readers: a second
 * reduction may add in another order, and then nothing equals the maximum that was found in the first. */
#include <math.h>

#include "cleave/session.h"
#include "graph/graph.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

enum { ROWS = 12, WIDTH = 64, COLUMNS = 8 };

/* d loss / dx and d loss / dw of loss = sum over rows of max over columns of y = x @ w, x cut as stated: its width over
 * all axes, so that y is partial over all of them. `stated` lays y out before the maximum; NULL: nothing is said. */
static clv_program *compile(const char *mesh_text, const char *x_layout, const char *w_layout, const char *stated,
                            clv_reshard_after_forward reshard_after_forward)
{
    clv_error err = {0};
    clv_graph *graph = must_graph(mesh_text);
    clv_program *program;
    clv_layout of_x = clv_graph_layout(graph, 2, x_layout), of_w = clv_graph_layout(graph, 2, w_layout);
    clv_value in[2] = {clv_input(graph, "x", CLV_F32, 2, (int64_t[]){ROWS, WIDTH}, &of_x),
                       clv_input(graph, "w", CLV_F32, 2, (int64_t[]){WIDTH, COLUMNS}, &of_w)},
              d[2];
    clv_value y = clv_einsum(graph, "ik,kj->ij", in[0], in[1]);
    if (stated) {
        clv_layout of_y = clv_graph_layout(graph, 2, stated);
        y = clv_constrain(graph, y, &of_y);
    }
    clv_value most = clv_reduce(graph, CLV_MAX, y, (int[]){1}, 1, false);
    clv_gradients(graph, clv_reduce(graph, CLV_SUM, most, (int[]){0}, 1, false), CLV_NONE, in, 2, d);
    clv_layout whole = clv_layout_replicated(2);
    clv_output(graph, "dx", d[0], &whole);
    clv_output(graph, "dw", d[1], &whole);
    must(clv_compile(&program, graph, &(clv_compile_options){.reshard_after_forward = reshard_after_forward}, &err),
         &err);
    clv_graph_free(graph);
    return program;
}

typedef struct gradients {
    float dx[ROWS * WIDTH], dw[WIDTH * COLUMNS];
} gradients;

static void run(gradients *out, const char *mesh_text, clv_program *program)
{
    static float x[ROWS * WIDTH], w[WIDTH * COLUMNS];
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_random_normal(x, clv_key_seed(1), 0, ROWS * WIDTH);
    clv_random_normal(w, clv_key_seed(2), 0, WIDTH * COLUMNS);
    clv_input_binding inputs[] = {{"x", x}, {"w", w}};
    clv_output_binding outputs[] = {{"dx", out->dx}, {"dw", out->dw}};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_session_new(&session, &mesh, &(clv_session_options){.check = 1}, &err), &err);
    must(clv_session_run(session, program, inputs, 2, outputs, 2, &err), &err);
    clv_session_free(session);
}

static void assert_near(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(b[i]))))
            fail_msg("element %d is %g, on one rank %g", i, (double)a[i], (double)b[i]);
}

/* Reductions of the product, which alone has its shape; its cotangent is whole. */
static int reductions_of_product(const clv_program *program)
{
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) {
        const clv_instruction *step = &program->instructions[program->steps[s]];
        const clv_type *type = &program->buffers[step->in[0]].type;
        n += type->rank == 2 && type->shape[0] == ROWS && type->shape[1] == COLUMNS &&
             (step->step->kind == CLV_STEP_ALL_REDUCE || step->step->kind == CLV_STEP_REDUCE_SCATTER);
    }
    return n;
}

static void test_gradient_of_maximum(void **state)
{
    static const struct {
        const char *mesh, *x, *w, *y;
        int reductions; /* of y, at most: none where an operand is gathered instead */
    } cases[] = {
        {"x=2,y=4", "_,(x,y)", "(x,y),_", NULL, 1},
        {"x=2,y=4", "_,(y,x)", "(y,x),_", NULL, 1},
        {"x=2,y=4", "_,(x,y)", "(x,y),_", "_,_", 2},
        {"x=2,y=4", "_,(x,y)", "(x,y),_", "x,_", 2},
        {"x=2,y=4", "_,(x,y)", "(x,y),_", "_,y", 2},
        {"x=3,y=2", "_,(x,y)", "(x,y),_", "_,x", 2},
        {"x=5", "_,x", "x,_", NULL, 1},
    };
    static gradients one, many;
    clv_program *program = compile("x=1,y=1", "_,_", "_,_", NULL, CLV_RESHARD_WEIGHTS);
    run(&one, "x=1,y=1", program);
    clv_program_free(program);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (clv_reshard_after_forward how = CLV_RESHARD_WEIGHTS; how <= CLV_RESHARD_NONE; how++) {
            program = compile(cases[i].mesh, cases[i].x, cases[i].w, cases[i].y, how);
            assert_in_range(reductions_of_product(program), 0, cases[i].reductions);
            run(&many, cases[i].mesh, program);
            assert_near(many.dx, one.dx, ROWS * WIDTH);
            assert_near(many.dw, one.dw, WIDTH * COLUMNS);
            clv_program_free(program);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_of_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
