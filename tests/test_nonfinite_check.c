/* test_nonfinite_check.c - sessions that look for the first instruction whose result is not finite (find_nonfinite). */
#include <math.h>
#include <string.h>

#include "cleave/session.h"
#include "graph/graph.h"
#include "must.h"
#include "unit_test.h"

enum { ROWS = 8, COLS = 5 };

static clv_value matrix(clv_graph *graph, const char *name, clv_dtype dtype, const char *layout_text)
{
    clv_layout layout = clv_graph_layout(graph, 2, layout_text);
    return clv_input(graph, name, dtype, 2, (int64_t[]){ROWS, COLS}, &layout);
}

static clv_value kept(clv_graph *graph, const char *name, clv_dtype dtype, const char *layout_text)
{
    clv_layout layout = clv_graph_layout(graph, 2, layout_text);
    return clv_state(graph, name, dtype, 2, (int64_t[]){ROWS, COLS}, &layout, (clv_init){CLV_INIT_ONES, 0});
}

/* Compiles and runs the graph with the matrix bound to input "x", or written to state "w"; frees the graph. */
static clv_status run(clv_graph *graph, bool find, const void *x, const void *w, clv_error *err)
{
    clv_program *program;
    clv_session *session;
    *err = (clv_error){0};
    must(clv_compile(&program, graph, NULL, err), err);
    must(clv_session_new(&session, clv_graph_mesh(graph), &(clv_session_options){.find_nonfinite = find, .check = 1},
                         err),
         err);
    must(clv_session_load(session, program, err), err);
    if (w)
        must(clv_session_write(session, "w", NULL, w, err), err);
    clv_input_binding in = {"x", x};
    clv_status status = clv_session_run(session, program, &in, x != NULL, NULL, 0, err);
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
    return status;
}

static void expect(clv_graph *graph, const void *x, const void *w, int rank, const char *message)
{
    clv_error err;
    clv_status status = run(graph, true, x, w, &err);
    if (status != CLV_ENONFINITE || err.rank != rank || strcmp(err.message, message) != 0)
        fail_msg("got %s of rank %d, '%s'; expected rank %d, '%s'", clv_status_name(status), err.rank, err.message,
                 rank, message);
}

static void fill(float *x, float value)
{
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = value;
}

/* log(x) + 1 of a layer, its rows over the ranks. */
static clv_graph *logarithm(void)
{
    clv_graph *graph = must_graph("x=4");
    clv_value x = matrix(graph, "x", CLV_F32, "x,_");
    clv_graph_push_scope(graph, "layers.%d", 3);
    clv_value y = clv_unary(graph, CLV_LOG, x);
    clv_graph_pop_scope(graph);
    clv_output(graph, "y", clv_add(graph, y, x), NULL);
    return graph;
}

static void test_instruction(void **state)
{
    float x[ROWS * COLS];
    clv_error err;
    fill(x, 2);
    must(run(logarithm(), true, x, NULL, &err), &err);
    x[5 * COLS + 4] = -1;
    must(run(logarithm(), false, x, NULL, &err), &err);
    expect(logarithm(), x, NULL, 2,
           "rank 2, layers.3.map: the result of layers.3.map is nan at [5,4], though all operands are finite");
    fill(x, 2);
    x[0] = 0;
    expect(logarithm(), x, NULL, 0,
           "rank 0, layers.3.map: the result of layers.3.map is -inf at [0,0], though all operands are finite");
}

/* What came from outside is named itself. */
static void test_input(void **state)
{
    float x[ROWS * COLS];
    fill(x, 2);
    x[7 * COLS] = NAN;
    expect(logarithm(), x, NULL, 3, "rank 3, layers.3.map: input 'x' is nan at [7,0], which this op reads");
    clv_graph *graph = must_graph("x=4");
    clv_value a = matrix(graph, "x", CLV_F32, "x,_"), b = kept(graph, "w", CLV_F32, "x,_");
    clv_output(graph, "y", clv_add(graph, a, b), NULL);
    expect(graph, x, x, 3, "rank 3, combine: input 'x' is nan at [7,0], which this op reads"); /* the first of two */
}

static void test_state(void **state)
{
    float w[ROWS * COLS];
    fill(w, 1);
    w[4 * COLS + 1] = INFINITY;
    clv_graph *graph = must_graph("x=4");
    clv_value v = kept(graph, "w", CLV_F32, "x,_");
    clv_layout whole = clv_graph_layout(graph, 2, "_,_");
    clv_output(graph, "y", v, &whole); /* a gather: other ranks must not be blamed */
    expect(graph, NULL, w, 2, "rank 2, y: state 'w' is inf at [4,1], which this step moves");
    graph = must_graph("x=4");
    v = kept(graph, "w", CLV_F32, "x,_");
    clv_assign(graph, v, clv_scale(graph, v, 2)); /* in place: gone when the result is looked at */
    expect(graph, NULL, w, 2, "rank 2, map: state 'w' is inf at [4,1], which this op reads");
}

/* Finite terms with a sum over ranks that is not finite. */
static void test_sum_over_ranks(void **state)
{
    float x[ROWS * COLS];
    fill(x, 0);
    x[0] = x[7 * COLS] = 3e38F;
    clv_graph *graph = must_graph("x=2");
    clv_value sum = clv_reduce(graph, CLV_SUM, matrix(graph, "x", CLV_F32, "x,_"), (int[]){0}, 1, false);
    clv_output(graph, "y", sum, NULL);
    clv_error err;
    assert_int_equal(run(graph, true, x, NULL, &err), CLV_ENONFINITE);
    if (!strstr(err.message, "the all_reduce of reduce (output 'y') is inf at [0], though all operands are finite"))
        fail_msg("%s", err.message);
}

/* Minus infinity that means "none": rows without a visible key, forward and backward, sharded or not. */
static void test_none_is_no_finding(void **state)
{
    enum { B = 2, S = 3, H = 2, D = 4 };
    static const char *const layouts[] = {"_,_,_,_", "_,x,_,_", "_,_,x,_"};
    for (int l = 0; l < 3; l++) {
        float q[B * S * H * D];
        uint8_t mask[B * S] = {0, 0, 0, 1, 1, 0};
        clv_error err = {0};
        clv_graph *graph = must_graph("x=2");
        clv_layout layout = clv_graph_layout(graph, 4, layouts[l]);
        clv_value in = clv_input(graph, "q", CLV_F32, 4, (int64_t[]){B, S, H, D}, &layout), d_in;
        clv_value kv =
            clv_reshape(graph, clv_concat(graph, (clv_value[]){in, in}, 2, 2), 5, (int64_t[]){B, S, 2, H, D});
        clv_value m = clv_input(graph, "mask", CLV_U8, 2, (int64_t[]){B, S}, NULL);
        clv_value out = clv_attention(graph, in, kv, &(clv_attention_options){.scale = 1, .mask = m});
        clv_gradients(graph, out, out, &in, 1, &d_in);
        clv_output(graph, "d", d_in, NULL);
        for (int i = 0; i < B * S * H * D; i++)
            q[i] = (float)(i % 7) / 7;
        clv_program *program;
        clv_session *session;
        clv_input_binding bound[] = {{"q", q}, {"mask", mask}};
        must(clv_compile(&program, graph, NULL, &err), &err);
        must(clv_session_new(&session, clv_graph_mesh(graph), &(clv_session_options){.find_nonfinite = 1, .check = 1},
                             &err),
             &err);
        must(clv_session_run(session, program, bound, 2, NULL, 0, &err), &err);
        clv_session_free(session);
        clv_program_free(program);
        clv_graph_free(graph);
    }
}

/* Each float dtype's own largest number times itself. */
static void test_dtypes(void **state)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16, CLV_F16, CLV_F64};
    static const double large[] = {1e38, 1e38, 6e4, 1e308};
    for (int t = 0; t < 4; t++) {
        double x[ROWS * COLS] = {0};
        clv_graph *graph = must_graph("x=2");
        clv_output(graph, "y", clv_scale(graph, matrix(graph, "x", dtypes[t], "_,x"), -10), NULL);
        clv_dtype_store(dtypes[t], x, ROWS * COLS - 1, large[t]);
        expect(graph, x, NULL, 1,
               "rank 1, map: the result of map (output 'y') is -inf at [7,4], though all operands are finite");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instruction),
        cmocka_unit_test(test_input),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_sum_over_ranks),
        cmocka_unit_test(test_none_is_no_finding),
        cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
