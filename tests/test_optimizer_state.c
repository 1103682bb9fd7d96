/* test_optimizer_state.c - optimizer state in a layout of its own (ZeRO stage 1) and the f32 copies of 16-bit
 * parameters. */
#include <string.h>

#include "cleave/program.h"
#include "cleave/rules.h"
#include "cleave/session.h"
#include "must.h"
#include "unit_test.h"

enum { ROWS = 7, COLUMNS = 5, N = ROWS * COLUMNS, STEPS = 3 };

typedef struct outcome {
    float weight[N], master[N];
} outcome;

/* loss = sum((x w)^2) over a batch that is split over "data": the gradient is partial over it. */
static clv_program *compile(const char *mesh_text, const char *preset, clv_dtype dtype, clv_mesh *mesh)
{
    clv_error err = {0};
    clv_graph *graph;
    clv_program *program;
    clv_axis_rules rules = {0};
    must(clv_mesh_parse(mesh, mesh_text, &err), &err);
    must(clv_graph_new(&graph, mesh, &err), &err);
    if (preset)
        must(clv_axis_rules_preset(&rules, preset, mesh, &err), &err);
    clv_layout batch, held = clv_layout_replicated(2), moments;
    must(clv_axis_rules_layout(&batch, &rules, mesh, 2, (clv_logical_axis[]){CLV_BATCH, CLV_UNNAMED}, &err), &err);
    must(clv_axis_rules_optimizer_layout(&moments, &rules, mesh, &held, (int64_t[]){ROWS, COLUMNS}, &err), &err);
    clv_value x = clv_input(graph, "x", dtype, 2, (int64_t[]){4, ROWS}, &batch);
    clv_value lr = clv_input(graph, "lr", CLV_F32, 0, NULL, NULL),
              step = clv_input(graph, "step", CLV_I32, 0, NULL, NULL);
    clv_value w = clv_state(graph, "w", dtype, 2, (int64_t[]){ROWS, COLUMNS}, &held, (clv_init){CLV_INIT_NORMAL, 1});
    clv_value y = clv_einsum(graph, "bi,ij->bj", x, w), d;
    clv_gradients(graph, y, y, &w, 1, &d);
    clv_adamw(graph, w, d, lr, step, &(clv_adamw_options){.state_layout = &moments});
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_graph_free(graph);
    return program;
}

/* The weight is the rounding of its copy. */
static void read_state(outcome *out, clv_session *session, clv_dtype dtype)
{
    clv_error err = {0};
    uint16_t half[N], rounded[N];
    if (dtype == CLV_F32) {
        must(clv_session_read(session, "w", NULL, out->weight, &err), &err);
        return;
    }
    must(clv_session_read(session, "w", NULL, half, &err), &err);
    must(clv_session_read(session, "w.master", NULL, out->master, &err), &err);
    clv_dtype_convert(dtype, rounded, CLV_F32, out->master, N);
    assert_memory_equal(half, rounded, sizeof half);
    clv_dtype_convert(CLV_F32, out->weight, dtype, half, N);
}

static void run(outcome *out, const char *mesh_text, const char *preset, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_session *session;
    clv_program *program = compile(mesh_text, preset, dtype, &mesh);
    float x[4 * ROWS], lr = 0.01f;
    uint64_t typed[4 * ROWS];
    for (int i = 0; i < 4 * ROWS; i++)
        x[i] = (float)(i % 5) - 2;
    clv_dtype_convert(dtype, typed, CLV_F32, x, 4 * ROWS);
    must(clv_session_new(&session, &mesh, &(clv_session_options){.seed = 3, .check = 1}, &err), &err);
    must(clv_session_load(session, program, &err), &err);
    for (int32_t step = 1; step <= STEPS; step++) {
        read_state(out, session, dtype);
        clv_input_binding inputs[] = {{"x", typed}, {"lr", &lr}, {"step", &step}};
        must(clv_session_run(session, program, inputs, 3, NULL, 0, &err), &err);
    }
    read_state(out, session, dtype);
    clv_session_free(session);
    clv_program_free(program);
}

static void same_on_every_mesh(clv_dtype dtype)
{
    static const char *const meshes[] = {"data=2", "data=3", "data=4"};
    outcome alone, split;
    run(&alone, "data=1", NULL, dtype);
    for (int m = 0; m < 3; m++) {
        run(&split, meshes[m], "zero1", dtype);
        for (int i = 0; i < N; i++) {
            float off = split.weight[i] - alone.weight[i];
            if (!(off * off <= 1e-10f))
                fail_msg("%s, element %d: %g, expected %g", meshes[m], i, split.weight[i], alone.weight[i]);
        }
    }
}

static void test_zero1(void **state)
{
    same_on_every_mesh(CLV_F32);
}

static void test_master_copies(void **state)
{
    same_on_every_mesh(CLV_BF16);
    same_on_every_mesh(CLV_F16);
}

/* One reduce_scatter of the gradient, one all_gather of the parameter in its own dtype, nothing else. */
static void test_collectives(void **state)
{
    for (int k = 0; k < 2; k++) {
        clv_mesh mesh;
        clv_program *program = compile("data=2", "zero1", k ? CLV_BF16 : CLV_F32, &mesh);
        int scatters = 0, gathers = 0;
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective c = {.size = sizeof c};
            clv_program_collective(program, i, &c, NULL);
            if (c.bytes == 0)
                continue;
            scatters += strcmp(c.kind, "reduce_scatter") == 0;
            gathers += strcmp(c.kind, "all_gather") == 0;
            assert_int_equal(c.type.dtype, k ? CLV_BF16 : CLV_F32);
            assert_int_equal((int)(c.bytes * 1000), (k ? 2 : 4) * COLUMNS * ((ROWS + 1) / 2) * 1000);
        }
        assert_int_equal(scatters, 1);
        assert_int_equal(gathers, 1);
        clv_program_free(program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zero1), cmocka_unit_test(test_master_copies),
                                       cmocka_unit_test(test_collectives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
