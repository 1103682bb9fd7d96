/* test_versioned_structs.c - structs of programs built against other versions of the headers: shorter ones, longer
 * ones, and those whose reserved room is used. */
#include "must.h"
#include "op_cases.h"

#include "cleave/nn.h"
#include "cleave/session.h"

/* A struct of options as a later header may have it. */
#define GROWN(type)                                                                                                    \
    struct {                                                                                                           \
        type known;                                                                                                    \
        int64_t later;                                                                                                 \
    }

static clv_error err;

static clv_value matrix(clv_graph *graph)
{
    return input(graph, "x", CLV_F32, DIMS(4, 4));
}

static void column(clv_graph *graph, const void *how)
{
    clv_column_parallel_linear(graph, matrix(graph), 4, NULL, how);
}

static void row(clv_graph *graph, const void *how)
{
    clv_row_parallel_linear(graph, matrix(graph), 4, NULL, how);
}

static void attention(clv_graph *graph, const void *how)
{
    clv_value q = input(graph, "q", CLV_F32, DIMS(1, 4, 2, 8)), kv = input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8));
    clv_attention(graph, q, kv, how);
}

static void adamw(clv_graph *graph, const void *how)
{
    clv_value w = clv_state(graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ZEROS, 0});
    clv_adamw(graph, w, w, input(graph, "lr", CLV_F32, 0, NULL), input(graph, "step", CLV_I32, 0, NULL), how);
}

static const struct {
    void (*build)(clv_graph *graph, const void *how);
    size_t size; /* of the options today */
} builders[] = {{column, sizeof(clv_linear_options)},
                {row, sizeof(clv_linear_options)},
                {attention, sizeof(clv_attention_options)},
                {adamw, sizeof(clv_adamw_options)}};

static void test_builders(void **state)
{
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++) {
        union {
            size_t size;
            unsigned char bytes[512];
        } grown = {.size = builders[i].size + 8};
        clv_graph *graph = new_graph();
        builders[i].build(graph, &grown);
        must(clv_graph_status(graph, &err), &err);
        clv_graph_free(graph);
        grown.bytes[builders[i].size + 7] = 1;
        graph = new_graph();
        builders[i].build(graph, &grown);
        assert_refused(graph, CLV_EUNSUPPORTED, "an option that this version of the library does not have");
        grown.size = 3;
        graph = new_graph();
        builders[i].build(graph, &grown);
        assert_refused(graph, CLV_EINVAL, "a struct whose size is 3");
        grown.size = SIZE_MAX;
        graph = new_graph();
        builders[i].build(graph, &grown);
        assert_refused(graph, CLV_EINVAL, "a struct whose size is");
    }
}

/* Structs that others hold keep their size: their reserved room must hold nothing. */
static void test_reserved_room(void **state)
{
    const clv_block_options plain = clv_block_defaults(CLV_BLOCK_LLAMA, 2, 2, 8);
    for (int which = 0; which < 4; which++) {
        clv_block_options o = plain;
        int64_t *reserved[] = {o.reserved, o.attention.reserved, o.attention.rope.reserved, o.mlp.reserved};
        const char *const calls[] = {"clv_transformer_block", "clv_parallel_attention", "clv_rope", "clv_parallel_mlp"};
        reserved[which][2] = 1;
        clv_graph *graph = new_graph();
        clv_transformer_block(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 8)), NULL, &o);
        assert_refused(graph, CLV_EUNSUPPORTED, calls[which]);
    }
}

static void test_compiling_and_running(void **state)
{
    GROWN(clv_compile_options) compile = {.known = {.size = sizeof compile}};
    GROWN(clv_session_options) run = {.known = {.size = sizeof run}};
    clv_program *program;
    clv_session *session;
    clv_graph *graph = new_graph();
    clv_output(graph, "y", matrix(graph), NULL);
    must(clv_compile(&program, graph, &compile.known, &err), &err);
    must(clv_session_new(&session, clv_program_mesh(program), &run.known, &err), &err);
    clv_session_free(session);
    run.later = 1;
    assert_int_equal(clv_session_new(&session, clv_program_mesh(program), &run.known, NULL), CLV_EUNSUPPORTED);
    run.known.size = 3;
    assert_int_equal(clv_session_new(&session, clv_program_mesh(program), &run.known, NULL), CLV_EINVAL);
    clv_program_free(program);
    compile.later = 1;
    assert_int_equal(clv_compile(&program, graph, &compile.known, NULL), CLV_EUNSUPPORTED);
    compile.known.size = 3;
    assert_int_equal(clv_compile(&program, graph, &compile.known, NULL), CLV_EINVAL);
    clv_graph_free(graph);
}

/* What is handed out fills as much as the caller has, and zeros beyond what the library knows. */
static void test_results(void **state)
{
    GROWN(clv_memory) grown = {.known = {.size = sizeof grown}, .later = 7};
    clv_memory first = {0}, whole = {.size = sizeof whole};
    clv_program *program;
    clv_graph *graph = new_graph();
    clv_output(graph, "y", clv_unary(graph, CLV_TANH, matrix(graph)), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_program_memory(program, &grown.known, &err), &err);
    must(clv_program_memory(program, &first, &err), &err);
    must(clv_program_memory(program, &whole, &err), &err);
    assert_true(whole.total > 0 && whole.total == first.total && whole.total == grown.known.total);
    assert_int_equal(grown.later, 0);
    for (int shift = 17; shift < 64; shift++) { /* no struct of the library has so many bytes: none is filled */
        clv_memory damaged = {.size = (size_t)1 << shift};
        assert_int_equal(clv_program_memory(program, &damaged, &err), CLV_EINVAL);
        err = (clv_error){0};
    }
    assert_true(whole.size == sizeof whole && grown.known.size == sizeof grown && first.size == 0);
    clv_program_free(program);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builders),
        cmocka_unit_test(test_reserved_room),
        cmocka_unit_test(test_compiling_and_running),
        cmocka_unit_test(test_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
