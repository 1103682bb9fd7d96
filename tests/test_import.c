/* test_import.c - programs of others: each of tests/golden/stablehlo on one rank and on meshes, values as JAX has them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/import.h"
#include "golden_path.h"
#include "import_goldens.h"
#include "must.h"
#include "unit_test.h"

static clv_import *must_read(const char *name)
{
    clv_import *program = NULL;
    clv_error err = {0};
    if (clv_import_read(&program, golden_path("stablehlo/%s.mlir", name), &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    return program;
}

/* The same where each argument of the text that states no sharding is split: argument i in dimension i + turn. */
static clv_import *must_read_split(const char *name, int turn)
{
    static char text[1 << 18];
    static const char *const axes[] = {"\"data\"", "\"model\"", "\"model\", \"data\""};
    clv_import *program = NULL;
    clv_error err = {0};
    FILE *file = fopen(golden_path("stablehlo/%s.mlir", name), "r");
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    char *at = strstr(text, "@main("), *body = strstr(at, "\n");
    for (int i = turn; (at = strstr(at, ": tensor<")) != NULL && at < body && !strstr(name, "parallel"); i++) {
        char *type = at + 9, sharding[256] = " {sdy.sharding = #sdy.sharding<@mesh, [", *end = strchr(type, '>') + 1;
        int rank = 0;
        at = end;
        for (char *p = type; p < end; p++)
            rank += *p == 'x';
        if (rank == 0 || strncmp(end, " {", 2) == 0)
            continue;
        for (int d = 0; d < rank; d++)
            snprintf(sharding + strlen(sharding), sizeof sharding - strlen(sharding), "%s{%s}", d ? ", " : "",
                     d == i % rank ? axes[i % 3] : "");
        strcat(sharding, "]>}");
        size_t length = strlen(sharding);
        memmove(end + length, end, strlen(end) + 1);
        memcpy(end, sharding, length);
        body += length;
        at = end + length;
    }
    if (clv_import_parse(&program, text, strlen(text), name, &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    return program;
}

/* split: arguments are split (must_read_split), else they are as the text has them. */
static void run_on(const char *name, const char *mesh, int split, bool no_patterns)
{
    const clv_import_options how = {.size = sizeof how, .no_patterns = no_patterns};
    clv_import *program = split ? must_read_split(name, split) : must_read(name);
    clv_graph *graph = must_graph(mesh);
    clv_program *compiled = NULL;
    clv_session *session = NULL;
    clv_error err = {0};
    ports p;
    if (clv_import_stablehlo(graph, program, &how, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    if (clv_compile(&compiled, graph, NULL, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    bool states_all = strcmp(name, "fsdp") == 0 || strcmp(name, "tensor_parallel") == 0 || strcmp(name, "gspmd") == 0 ||
                      strcmp(name, "unreduced") == 0 || strcmp(name, "converts") == 0 /* elementwise */;
    if (split && !states_all && clv_program_collective_count(compiled) == 0)
        fail_msg("%s on %s: nothing is split", name, mesh);
    clv_session_options options = {
        .size = sizeof options, .source = clv_import_state_source, .source_arg = program, .check = 1, .no_pinning = 1};
    assert_int_equal(clv_session_new(&session, clv_program_mesh(compiled), &options, &err), CLV_OK);
    bind(&p, program, golden_path("stablehlo/%s.safetensors", name));
    if (clv_session_run(session, compiled, p.inputs, p.n_in, p.outputs, p.n_out, &err) != CLV_OK)
        fail_msg("%s on %s: %s", name, mesh, err.message);
    for (int i = 0; i < p.n_out; i++)
        compare(name, mesh, &p, i, p.type[i].dtype == CLV_BF16 ? 0x1p-6 : 1e-5);
    free_ports(&p);
    clv_session_free(session);
    clv_program_free(compiled);
    clv_graph_free(graph);
    clv_import_free(program);
}

static const char *const programs[] = {"mlp_forward",
                                       "mlp",
                                       "llama_forward",
                                       "gpt2",
                                       "llama",
                                       "esm",
                                       "scan_remat",
                                       "nnx_layers",
                                       "adamw",
                                       "fsdp",
                                       "moe",
                                       "tensor_parallel",
                                       "gspmd",
                                       "unreduced",
                                       "shard_map",
                                       "shard_map_collectives",
                                       "shard_map_ring",
                                       "shard_map_block",
                                       "shard_map_patterns",
                                       "shard_map_attention",
                                       "shard_map_vocabulary",
                                       "shard_map_unchecked",
                                       "grouped_attention",
                                       "dropout",
                                       "sampling",
                                       "scan_remat_jax_0_9",
                                       "bf16_attention",
                                       "unsigned",
                                       "branches",
                                       "converts",
                                       "window_attention",
                                       "rope_forms",
                                       "rope_like",
                                       "padding_attention",
                                       "padding_like"};
static const char *const meshes[] = {"data=1,model=1", "data=2,model=1", "data=1,model=3", "data=2,model=2"};

static void test_values(void **state)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            if (getenv("CLV_VERBOSE"))
                fprintf(stderr, "%s on %s\n", programs[i], meshes[m]);
            for (int split = 0; split < (m == 0 ? 1 : 3); split++)
                for (int no_patterns = 0; no_patterns < 2; no_patterns++)
                    run_on(programs[i], meshes[m], split, no_patterns);
        }
    run_on("fsdp", "model=2", 0, false); /* which has none of its axes */
    run_on("shard_map_ring_sum", "model=4", 0, false);
    run_on("shard_map_ring", "model=4", 0, false);
}

/* ---- fused ops in place of their parts ---- */

/* "attention 4, attention gradient 2"; a place that is left is "-1". */
static void expect_patterns(const char *name, const char *expected)
{
    clv_import *program = must_read(name);
    clv_graph *graph = must_graph("data=2,model=2");
    clv_import_pattern_info p = {.size = sizeof p};
    clv_error err = {0};
    char text[1024] = "";
    must(clv_import_stablehlo(graph, program, NULL, &err), &err);
    for (int i = 0; clv_import_pattern(program, i, &p, NULL) == CLV_OK && p.name; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s%s %d", at ? ", " : "", p.name, p.gradient ? " gradient" : "",
                 p.recognised);
        at = strlen(text);
        if (p.left)
            snprintf(text + at, sizeof text - at, " (%d left, %s)", p.left, p.where);
    }
    assert_string_equal(text, expected);
    assert_int_equal(clv_import_pattern(program, -1, &p, NULL), CLV_EINVAL);
    clv_graph_free(graph);
    clv_import_free(program);
}

static void test_patterns(void **state)
{
    expect_patterns("mlp_forward", "");
    expect_patterns("mlp", "gelu 1, gelu gradient 1");
    expect_patterns("llama_forward", "silu 2, RMS norm 5, rope 4, attention 2");
    expect_patterns("gpt2", "gelu 1, gelu gradient 1, layer norm 2, layer norm gradient 2, cross-entropy 1, "
                            "cross-entropy gradient 1, attention 1, attention gradient 1");
    expect_patterns("llama", "silu 4, silu gradient 2, RMS norm 9, RMS norm gradient 5, cross-entropy 1, "
                             "cross-entropy gradient 1, rope 8, rope gradient 4, attention 4, attention gradient 2");
    expect_patterns("esm", "gelu 1, gelu gradient 1, layer norm 2, layer norm gradient 2, cross-entropy 1, "
                           "cross-entropy gradient 1, rope 2, rope gradient 2, attention 1, attention gradient 1");
    expect_patterns("padding_attention", "attention 5, attention gradient 5");
    expect_patterns("padding_like", "softmax 7, softmax gradient 7");
    expect_patterns("rope_forms", "rope 5, rope gradient 5");
    expect_patterns("rope_like", "");
    expect_patterns("grouped_attention", "attention 1, attention gradient 1");
    expect_patterns("window_attention", "attention 6, attention gradient 3");
    expect_patterns("bf16_attention", "attention 1, attention gradient 1");
    expect_patterns("nnx_layers", "layer norm 1, RMS norm 1, RMS norm gradient 1, layer norm gradient 1, "
                                  "cross-entropy 1, cross-entropy gradient 1, attention 1, attention gradient 1");
}

/* ---- refusals: one line, with the place ---- */

static void refuse(const char *body, clv_status code, const char *text)
{
    char program[4096];
    clv_import *read = NULL;
    clv_error err = {0};
    int n = snprintf(program, sizeof program,
                     "module {\n  func.func @main(%%x: tensor<2xf32>, %%i: tensor<i32>) -> tensor<2xf32> {\n    %s\n"
                     "    return %%x : tensor<2xf32>\n  }\n}\n",
                     body);
    clv_status status = clv_import_parse(&read, program, (size_t)n, "a.mlir", &err);
    clv_graph *graph = must_graph("data=2");
    if (status == CLV_OK)
        status = clv_import_stablehlo(graph, read, NULL, &err);
    if (status != code || strncmp(err.message, "a.mlir:", 7) != 0 || !strstr(err.message, text))
        fail_msg("%s: %s '%s'; expected %s with '%s'", body, clv_status_name(status), err.message,
                 clv_status_name(code), text);
    clv_graph_free(graph);
    clv_import_free(read);
}

static void test_refused(void **state)
{
    refuse("%y = stablehlo.fft %x : tensor<2xf32>", CLV_EUNSUPPORTED, "3:10: stablehlo.fft: this op is not");
    refuse("%y = \"stablehlo.sort\"(%x) <{dimension = 0 : i64}> ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
           "%l = stablehlo.compare LT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
           "stablehlo.return %l : tensor<i1> }) : (tensor<2xf32>) -> tensor<2xf32>",
           CLV_EUNSUPPORTED, "its comparator is not LT or GT of the first operand");
    refuse("%y = stablehlo.custom_call @foo(%x) : (tensor<2xf32>) -> tensor<2xf32>", CLV_EUNSUPPORTED, "@foo");
    refuse("%y = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xui16>", CLV_EUNSUPPORTED, "3:52: tensor<2xui16>");
    refuse("%y = stablehlo.add %x, %x : tensor<?xf32>", CLV_EUNSUPPORTED, "dynamic dimension");
    refuse("%y = stablehlo.add %x, %z : tensor<2xf32>", CLV_ESYNTAX, "3:28: there is no value %z");
    refuse("%y = stablehlo.add %x, %i : tensor<2xf32>", CLV_ESHAPE, "3:10: stablehlo.add: operand 1");
    refuse("%y = stablehlo.sine %i : tensor<i32>", CLV_EDTYPE, "3:10: stablehlo.sine");
    refuse("%y = stablehlo.add %x, %x : tensor<3xf32>", CLV_ESHAPE, "3:10");
    refuse("%y = stablehlo.reshape %x : (tensor<2xf32>) -> tensor<3xf32>", CLV_ESHAPE, "stablehlo.reshape");
    refuse("%y = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<2xf32>", CLV_ESYNTAX, "dense literal");
    refuse("%y = stablehlo.constant dense<[1.0]> : tensor<2xf32>", CLV_ESYNTAX, "dense literal");
    refuse("%y = stablehlo.constant dense_resource<big> : tensor<2xf32>", CLV_EUNSUPPORTED, "big");
    refuse("%y = call @nothing(%x) : (tensor<2xf32>) -> tensor<2xf32>", CLV_ENOTFOUND, "@nothing");
    refuse("%y = call @main(%x, %i) : (tensor<2xf32>, tensor<i32>) -> tensor<2xf32>", CLV_ELIMIT, "64 calls");
    refuse("%y = sdy.sharding_constraint %x <@m, [{}, {}]> : tensor<2xf32>", CLV_EUNSUPPORTED, "dimensions");
    refuse("%y = \"stablehlo.add", CLV_ESYNTAX, "a string does not end");
    refuse("%y:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<2xf32>\n"
           "cond { %k = stablehlo.compare LT, %a, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
           "stablehlo.return %k : tensor<i1> } do { stablehlo.return %a, %b : tensor<i32>, tensor<2xf32> }",
           CLV_EUNSUPPORTED, "turns depends on values");
    static const char branches[] =
        " ({ stablehlo.return %x : tensor<2xf32> }, { stablehlo.return %x : tensor<2xf32> })";
    static const struct {
        const char *begin, *branches, *type, *message;
    } cases[] = {{"case\"(%x)", branches, "(tensor<2xf32>)", "3:10: stablehlo.case: of f32 of rank 1; valid: i32"},
                 {"if\"(%i)", branches, "(tensor<i32>)", "of i32 of rank 0; valid: i1"},
                 {"case\"(%i, %i)", branches, "(tensor<i32>, tensor<i32>)", "2 operands and 2 branches"},
                 {"if\"(%i)", " ({ stablehlo.return %x : tensor<2xf32> })", "(tensor<i32>)", "two branches"},
                 {"case\"(%i)", " ({ ^bb0(%a: tensor<2xf32>): stablehlo.return %a : tensor<2xf32> })", "(tensor<i32>)",
                  "a branch with arguments"},
                 {"case\"(%i)", " ({}, {})", "(tensor<i32>)", "3:10: stablehlo.case: a region without a return"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "%%y = \"stablehlo.%s%s : %s -> tensor<2xf32>", cases[i].begin, cases[i].branches,
                 cases[i].type);
        refuse(text, strstr(cases[i].message, "of rank") ? CLV_ESHAPE : CLV_ESYNTAX, cases[i].message);
    }
    static const char *const formats[] = {"e8m7x", "e8m7m23", "m7", "e0m0"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char text[200];
        snprintf(text, sizeof text, "%%y = stablehlo.reduce_precision %%x, format = %s : tensor<2xf32>", formats[i]);
        refuse(text, CLV_ESYNTAX, "no format, as e8m23");
    }
}

/* What is cut off anywhere is refused with a place, or, behind the module, is whole. */
static void test_truncated(void **state)
{
    static char text[1 << 16];
    FILE *file = fopen(golden_path("stablehlo/scan_remat.mlir"), "r");
    size_t n = fread(text, 1, sizeof text, file), whole = 0;
    fclose(file);
    for (size_t size = 7; size < n; size += 7) {
        clv_import *program = NULL;
        clv_error err = {0};
        clv_status status = clv_import_parse(&program, text, size, "cut.mlir", &err);
        whole += status == CLV_OK;
        if (status != CLV_OK && (status != CLV_ESYNTAX || strncmp(err.message, "cut.mlir:", 9) != 0))
            fail_msg("at %zu: %s", size, err.message);
        clv_import_free(program);
    }
    assert_true(whole < n / 14);
}

/* ---- what the text says ---- */

static void test_listing(void **state)
{
    clv_import *program = must_read("tensor_parallel");
    clv_import_argument_or_result_info port = {.size = sizeof port};
    clv_import_op_kind_info op = {.size = sizeof op};
    clv_mesh mesh;
    char text[CLV_MESH_TEXT];
    int ops;
    assert_true(clv_import_mesh(program, &mesh));
    clv_mesh_print(text, sizeof text, &mesh);
    assert_string_equal(text, "data=2,model=2");
    assert_int_equal(clv_import_argument_or_result(program, 1, &port, NULL), CLV_OK);
    assert_string_equal(port.name, "p['up']");
    assert_string_equal(port.sharding, "_,model");
    assert_true(!port.is_result && port.type.rank == 2 && port.type.shape[1] == 24);
    assert_int_equal(clv_import_argument_or_result(program, 3, &port, NULL), CLV_OK);
    assert_true(port.is_result && strcmp(port.name, "result[0]") == 0);
    assert_int_equal(clv_import_op_kind(program, 0, &op, NULL), CLV_OK);
    assert_true(strcmp(op.name, "sdy.sharding_constraint") == 0 && op.count == 4 && op.supported);
    assert_string_equal(clv_import_function(program, 0, &ops), "main");
    assert_null(clv_import_function(program, 9, NULL));
    clv_import *other;
    assert_int_equal(clv_import_argument_or_result(program, -1, &port, NULL), CLV_EINVAL);
    assert_int_equal(clv_import_op_kind(program, -1, &op, NULL), CLV_EINVAL);
    assert_int_equal(clv_import_read(&other, golden_path("nothing.mlir"), NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_import_read(&other, golden_path("stablehlo"), NULL), CLV_EFORMAT);
    assert_true(clv_import_is_program(golden_path("stablehlo/mlp.mlir")));
    assert_false(clv_import_is_program(golden_path("mlp.json")));
    clv_import_free(program);
}

/* Collectives are named after the line of Python, and stated shardings cause them. */
static void test_causes(void **state)
{
    clv_import *program = must_read("tensor_parallel");
    clv_graph *graph = must_graph("data=2,model=2");
    clv_program *compiled;
    clv_error err = {0};
    clv_collective c = {.size = sizeof c};
    int named = 0;
    must(clv_import_stablehlo(graph, program, NULL, &err), &err);
    must(clv_compile(&compiled, graph, NULL, &err), &err);
    for (int i = 0; i < clv_program_collective_count(compiled); i++) {
        must(clv_program_collective(compiled, i, &c, &err), &err);
        named += strncmp(c.op, "make_stablehlo.py:", 18) == 0;
    }
    assert_true(named >= 3);
    clv_program_free(compiled);
    clv_graph_free(graph);
    clv_import_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),  cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_truncated),
                                       cmocka_unit_test(test_listing), cmocka_unit_test(test_causes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
