/* test_graph_text.c - graphs as text: what is printed parses to the same graph, which compiles to the same program;
 * what is wrong is named with its line. */
#include <stdlib.h>
#include <string.h>

#include "gpt_block.h"
#include "graph/graph.h"
#include "program/program.h"
#include "random_graph.h"
#include "sweep.h"
#include "unit_test.h"

enum { ALL_CASES = 150, CASES = 60, THIN_CASES = 20 };

static char *text_of(const clv_graph *graph)
{
    size_t size = clv_graph_print(NULL, 0, graph) + 1;
    char *text = malloc(size);
    assert_int_equal(clv_graph_print(text, size, graph), size - 1);
    return text;
}

static void compile(char **text, uint64_t *digest, const clv_graph *graph, const clv_compile_options *options)
{
    clv_error err = {0};
    clv_program *program;
    must(clv_compile(&program, graph, options, &err), &err);
    size_t size = clv_program_print(NULL, 0, program) + 1;
    *text = malloc(size);
    clv_program_print(*text, size, program);
    *digest = clv_program_digest(program);
    clv_program_free(program);
}

/* Printed, parsed and printed again: the same text, and the same program. */
static void check_round_trip(const clv_graph *graph, const clv_compile_options *options)
{
    clv_error err = {0};
    clv_graph *parsed;
    uint64_t digest, other_digest;
    char *text = text_of(graph), *program, *other_program;
    must(clv_graph_parse(&parsed, text, &err), &err);
    char *again = text_of(parsed);
    assert_string_equal(again, text);
    compile(&program, &digest, graph, options);
    compile(&other_program, &other_digest, parsed, options);
    assert_string_equal(other_program, program);
    assert_true(digest == other_digest);
    free(text);
    free(again);
    free(program);
    free(other_program);
    clv_graph_free(parsed);
}

static void test_random_graphs(void **state)
{
    const uint64_t n = sweep_is_whole() ? ALL_CASES : sweep_is_thin() ? THIN_CASES : CASES;
    for (random_spec spec = {0}; spec.seed < n; spec.seed++) {
        random_graph g;
        random_graph_build(&g, &spec, 0);
        check_round_trip(g.graph, &g.options);
        random_graph_free(&g);
    }
}

/* With rules, their names, stationary weights and the gradients of all of it. */
static void test_a_block(void **state)
{
    static const char *const rules[] = {"megatron", "megatron-sp", "fsdp", "gspmd-2d"};
    clv_error err = {0};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        clv_mesh mesh;
        clv_axis_rules r;
        must(clv_mesh_parse(&mesh, i < 2 ? "model=4" : i == 2 ? "data=4" : "X=2,Y=2", &err), &err);
        must(clv_axis_rules_preset(&r, rules[i], &mesh, &err), &err);
        clv_graph *graph = must_block_with_gradients(&mesh, &r, (int64_t[]){4, 8, 32}, 4, 64);
        check_round_trip(graph, NULL);
        clv_graph_free(graph);
    }
}

/* Names of any characters, and numbers that six digits do not tell. */
static void test_names_and_numbers(void **state)
{
    clv_graph *graph = must_graph("a=2");
    clv_value x = clv_input(graph, "x \"of\" \\ é", CLV_F32, 1, (int64_t[]){8}, NULL);
    clv_state(graph, "w", CLV_BF16, 0, NULL, NULL, (clv_init){CLV_INIT_NORMAL, 0.1});
    clv_output(graph, "a = %1 {a}", clv_scale(graph, x, 1.0 / 3), NULL);
    check_round_trip(graph, NULL);
    clv_graph_free(graph);
}

static void test_by_hand(void **state)
{
    static const char text[] = "# Megatron's feed-forward layer\n"
                               "graph on model=4\n"
                               "\n"
                               "%1 f32[64,256] {_,_} = input \"x\"\n"
                               "%2 f32[256,1024] {_,model} = state \"up\" parameter normal 1\n"
                               "%3 f32[64,1024] = dot_general \"up_product\" (%1, %2) : a=bm b=mh c=bh\n"
                               "output \"y\" = %3 {_,_}";
    clv_error err = {0};
    clv_graph *graph;
    must(clv_graph_parse(&graph, text, &err), &err);
    assert_int_equal(graph->n_ops, 1);
    assert_string_equal(graph->ops[0].name, "up_product");
    assert_int_equal(clv_graph_parameters(graph, NULL, 0), 1);
    check_round_trip(graph, NULL);
    clv_graph_free(graph);
}

/* Whether text[at] belongs to an op's attributes, which its builder checks and a text is trusted with. */
static bool is_attribute(const char *text, size_t at)
{
    while (at > 0 && text[at] != '\n' && strncmp(text + at, " : ", 3) != 0)
        at--;
    return text[at] == ' ';
}

/* Texts with other characters in them: parsed or refused, and what is parsed prints. */
static void test_damaged(void **state)
{
    static const char other[] = "0123456789%{}[]<>,:=_-+ abm\"";
    uint64_t random = 1;
    int n_parsed = 0;
    for (random_spec spec = {0}; spec.seed < (sweep_is_thin() ? 10 : 40); spec.seed++) {
        random_graph g;
        random_graph_build(&g, &spec, 0);
        char *text = text_of(g.graph), *copy = malloc(strlen(text) + 1);
        for (int i = 0; i < 200; i++) {
            clv_graph *parsed = NULL;
            memcpy(copy, text, strlen(text) + 1);
            for (int k = 0; k < 1 + i % 3; k++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                size_t at = (random >> 33) % strlen(text);
                if (!is_attribute(text, at))
                    copy[at] = other[(random >> 20) % (sizeof other - 1)];
            }
            if (clv_graph_parse(&parsed, copy, NULL) != CLV_OK)
                continue;
            free(text_of(parsed));
            clv_graph_free(parsed);
            n_parsed++;
        }
        free(text);
        free(copy);
        random_graph_free(&g);
    }
    assert_true(n_parsed > 0);
}

static void test_errors(void **state)
{
    static const struct {
        const char *text, *message;
        clv_status status;
    } cases[] = {
        {"", "begins with 'graph on MESH'", CLV_ESYNTAX},
        {"%1 f32[2] = input \"x\"", "'graph on ' is expected", CLV_ESYNTAX},
        {"graph on a=0", "a size of at least 1", CLV_EINVAL},
        {"graph on a=2\n%2 f32[2] = input \"x\"", "line 2: '%2 f32[2] = input \"x\"', column 1", CLV_ESYNTAX},
        {"graph on a=2\n%1 f33[2] = input \"x\"", "f33", CLV_EDTYPE},
        {"graph on a=2\n%1 f32[2 = input \"x\"", "',' is expected", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] {b} = input \"x\"", "'b'", CLV_EAXIS},
        {"graph on a=2\n%1 f32[2] {a = input \"x\"", "a layout ends with '}'", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = input \"x", "a name ends with", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = input \"x\" more", "the end of the line is expected", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = state \"x\" weight zeros 0", "'weight' is unknown", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = nothing \"x\" ()", "there is no op 'nothing' of 1 results", CLV_ENOTFOUND},
        {"graph on a=2\n%1 f32[2] = input \"x\"\n%2 f32[2] = map \"m\" (%3) : op=1", "valid: 0 to 1", CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = input \"x\"\n%2 f32[2] = map \"m\" (%1) : sort=1", "op=... is expected",
         CLV_ESYNTAX},
        {"graph on a=2\n%1 f32[2] = input \"x\"\n%2 f32[3] = map \"m\" (%1) : op=0 factor=0", "%2 is f32[2]",
         CLV_ESHAPE},
        {"graph on a=2\n%1 f32[2] = input \"x\"\nassign %1 = %1", "the target is not state", CLV_EINVAL},
        {"graph on a=2\n%1 f32[2] = input \"x\"\noutput \"y\" = %0", "numbered from 1", CLV_ESYNTAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_error err = {0};
        clv_graph *graph = NULL;
        clv_status status = clv_graph_parse(&graph, cases[i].text, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].message))
            fail_msg("'%s': %s, '%s'", cases[i].text, clv_status_name(status), err.message);
        assert_null(graph);
    }
    assert_int_equal(clv_graph_parse(NULL, "graph on a=2", NULL), CLV_EINVAL);
    assert_int_equal(clv_graph_print(NULL, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs), cmocka_unit_test(test_a_block), cmocka_unit_test(test_names_and_numbers),
        cmocka_unit_test(test_by_hand),       cmocka_unit_test(test_damaged), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
