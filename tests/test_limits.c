/* test_limits.c - tensors and programs as large as they may be, and larger: refused, never overflown (run by the
 * undefined sanitizer too). Nothing here is allocated. */
#include <stdio.h>
#include <string.h>

#include "base/memory/arena.h"
#include "cleave/graph.h"
#include "cleave/program.h"
#include "partition/reshard/reshard_planner.h"
#include "must.h"
#include "program/program.h"
#include "unit_test.h"

#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static const int64_t E = INT64_C(1) << 58; /* f32 of 2^60 bytes */

/* Compiles and frees the graph; the region of a rank, or -1 and the message. */
static int64_t region_of(clv_graph *graph, clv_error *err)
{
    clv_program *program = NULL;
    clv_status status = clv_compile(&program, graph, NULL, err);
    int64_t region = status == CLV_OK ? clv_program_region_bytes(program) : -1;
    if (status == CLV_OK) {
        clv_memory m = {.size = sizeof m};
        clv_program_memory(program, &m, NULL);
        assert_true(m.total >= m.region && m.region == region && m.fragments >= 0 && m.total <= CLV_MAX_RANK_BYTES);
    }
    clv_program_free(program);
    clv_graph_free(graph);
    return region;
}

static void assert_refused(clv_graph *graph, const char *part)
{
    clv_error err = {0};
    assert_int_equal(region_of(graph, &err), -1);
    assert_int_equal(err.code, CLV_ELIMIT);
    if (!strstr(err.message, part))
        fail_msg("'%s' lacks '%s'", err.message, part);
}

static void shapes_have_2_60_bytes(void **state)
{
    for (int dtype = 0; dtype < CLV_DTYPE_COUNT; dtype++) {
        int64_t most = CLV_MAX_TENSOR_BYTES / (int64_t)clv_dtype_size((clv_dtype)dtype);
        assert_int_equal(clv_shape_check(&most, 1, (clv_dtype)dtype, NULL), CLV_OK);
        assert_int_equal(clv_shape_check((int64_t[]){2, most / 2, 1, 0}, 4, (clv_dtype)dtype, NULL), CLV_OK);
        assert_int_equal(clv_shape_check((int64_t[]){most + 1}, 1, (clv_dtype)dtype, NULL), CLV_ELIMIT);
        assert_int_equal(clv_shape_check((int64_t[]){2, most / 2 + 1}, 2, (clv_dtype)dtype, NULL), CLV_ELIMIT);
        assert_int_equal(clv_shape_check((int64_t[]){0, most, 2}, 3, (clv_dtype)dtype, NULL), CLV_ELIMIT);
        assert_int_equal(clv_shape_check((int64_t[]){INT64_MAX, INT64_MAX}, 2, (clv_dtype)dtype, NULL), CLV_ELIMIT);
    }
    assert_int_equal(clv_shape_check((int64_t[]){3, -1}, 2, CLV_U8, NULL), CLV_ESHAPE);
}

static void values_are_bounded(void **state)
{
    clv_graph *graph = must_graph("");
    clv_input(graph, "x", CLV_F32, DIMS(E + 1), NULL);
    assert_refused(graph, "x: a tensor of more than 2^60 bytes");
    graph = must_graph("");
    clv_reshape(graph, clv_input(graph, "x", CLV_F32, DIMS(E), NULL), DIMS(INT64_MAX, INT64_MAX, 4));
    assert_refused(graph, "more than 2^60 bytes");
    graph = must_graph("");
    clv_value x = clv_input(graph, "x", CLV_F32, DIMS(E), NULL), many[8] = {x, x, x, x, x, x, x, x};
    clv_concat(graph, many, 8, 0);
    assert_refused(graph, "more than 2^60 bytes");
    graph = must_graph("");
    x = clv_input(graph, "x", CLV_F32, DIMS(E), NULL);
    clv_pad(graph, x, (int64_t[]){INT64_MAX}, (int64_t[]){INT64_MAX});
    assert_refused(graph, "dimension 0 of more than 2^63 - 1 elements");
    graph = must_graph("");
    x = clv_input(graph, "x", CLV_BF16, DIMS(2 * E), NULL);
    clv_cast(graph, x, CLV_F32);
    assert_refused(graph, "more than 2^60 bytes");
}

/* n sums of one input that all live to the end. */
static clv_graph *sums(const char *mesh, const char *layout, int n)
{
    clv_graph *graph = must_graph(mesh);
    clv_layout cut = clv_graph_layout(graph, 1, layout);
    clv_value x = clv_input(graph, "x", CLV_F32, DIMS(E), &cut);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        clv_output(graph, name, clv_add(graph, x, x), &cut);
    }
    return graph;
}

static void programs_have_2_62_bytes_a_rank(void **state)
{
    clv_error err = {0};
    assert_true(region_of(sums("", "_", 2), &err) == 3 * CLV_MAX_TENSOR_BYTES);
    assert_refused(sums("", "_", 3), "the tensors of a program come to more than 2^62 bytes a rank");
    assert_refused(sums("", "_", 12), "the tensors of a program come to more than 2^62 bytes a rank");
    assert_true(region_of(sums("x=4", "x", 12), &err) == 13 * (CLV_MAX_TENSOR_BYTES / 4));
}

static void state_counts(void **state)
{
    clv_graph *graph = must_graph("");
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        clv_state(graph, name, CLV_F32, DIMS(E), NULL, (clv_init){0});
    }
    assert_refused(graph, "the tensors of a program come to more than 2^62 bytes a rank");
}

static void workspaces_are_bounded(void **state)
{
    const int64_t keys = INT64_C(1) << 45;
    clv_graph *graph = must_graph("");
    clv_value q = clv_input(graph, "q", CLV_F32, DIMS(1, 1, 1, 1), NULL), d[2];
    clv_value kv = clv_input(graph, "kv", CLV_F32, DIMS(1, keys, 2, 1, 1), NULL);
    clv_value y = clv_attention(graph, q, kv, NULL);
    clv_gradients(graph, y, y, (clv_value[]){q, kv}, 2, d);
    clv_output(graph, "dq", d[0], NULL);
    assert_refused(graph, "a workspace of more than 2^62 bytes a rank");
}

static void plans_of_large_tensors(void **state)
{
    static const char *const layouts[] = {"_,_",     "x,_",      "_,x",          "y,x",
                                          "(x,y),_", "_,y:(1)2", "_,_ + sum{x}", "_,y + sum{x}"};
    clv_mesh mesh;
    const int n = sizeof layouts / sizeof *layouts;
    assert_int_equal(clv_mesh_parse(&mesh, "x=3,y=4", NULL), CLV_OK);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            clv_arena *arena = clv_arena_new();
            clv_layout from, to;
            clv_reshard_plan plan;
            assert_int_equal(clv_layout_parse(&from, layouts[i], &mesh, 2, NULL), CLV_OK);
            assert_int_equal(clv_layout_parse(&to, layouts[j], &mesh, 2, NULL), CLV_OK);
            assert_int_equal(clv_reshard_plan_make(&plan, arena, &mesh, &from, &to, (int64_t[]){1 << 29, 1 << 29},
                                                   CLV_F32, NULL, true, NULL),
                             CLV_OK);
            assert_true(plan.bytes >= 0 && plan.bytes <= 4e18 && plan.peak_bytes > 0);
            assert_int_equal(clv_reshard_plan_make(&plan, arena, &mesh, &from, &to, (int64_t[]){1 << 29, 1 << 29},
                                                   CLV_F64, NULL, true, NULL),
                             CLV_ELIMIT);
            clv_arena_free(arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_2_60_bytes),          cmocka_unit_test(values_are_bounded),
        cmocka_unit_test(programs_have_2_62_bytes_a_rank), cmocka_unit_test(state_counts),
        cmocka_unit_test(workspaces_are_bounded),          cmocka_unit_test(plans_of_large_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
