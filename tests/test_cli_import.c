/* test_cli_import.c - import, and programs of StableHLO text in plan, explain, forward and verify: what they print, and
 * what they refuse. */
#include <stdio.h>
#include <string.h>

#include "cli_run.h"
#include "unit_test.h"

static char said[CLI_OUTPUT];

static void test_listing(void **state)
{
    cli_expect(0, "p['down']", "import {g}/stablehlo/fsdp.mlir");
    assert_int_equal(cli_run(said, "import {g}/stablehlo/fsdp.mlir --json"), 0);
    assert_non_null(strstr(said,
                           "\"tensor\": \"p['up']\", \"kind\": \"input\", \"type\": \"f32[16,24]\", \"bytes\": 1536, "
                           "\"sharding\": \"data,_\""));
    assert_non_null(strstr(said, "\"op\": \"stablehlo.dot_general\", \"count\": 5, \"supported\": true"));
    assert_non_null(strstr(said, "\"mesh\": \"data=4\""));
    assert_int_equal(cli_run(said, "import {g}/stablehlo/gpt2.mlir --json"), 0);
    assert_non_null(strstr(said, "\"pattern\": \"attention\", \"pass\": \"gradient\", \"recognised\": 1, "
                                 "\"left_as_parts\": 0, \"first_left\": \"-\""));
    assert_int_equal(cli_run(said, "import {g}/stablehlo/gpt2.mlir --no-patterns --json"), 0);
    assert_null(strstr(said, "\"pattern\": \"attention\""));
}

/* One line with the place; 2. */
static void test_refused(void **state)
{
    cli_expect(
        2, "convolution.mlir:5:10: stablehlo.convolution (make_stablehlo.py:", "import {g}/stablehlo/convolution.mlir");
    cli_expect(2, "shard_map.mlir:", "plan -m {g}/stablehlo/shard_map.mlir");
    cli_shell("head -c 900 {g}/stablehlo/mlp.mlir > {d}/cut.mlir");
    cli_expect(2, "cut.mlir:", "explain -m {d}/cut.mlir");
    cli_expect(2, "--rules has no effect", "plan -m {g}/stablehlo/mlp.mlir --rules fsdp -tp 2");
    cli_expect(2, "--batch has no effect on a program of StableHLO text; valid beside it: --no-patterns, --mesh",
               "plan -m {g}/stablehlo/mlp.mlir --batch 4");
    cli_expect(2, "--seq has no effect", "explain -m {g}/stablehlo/mlp.mlir --seq 4");
    cli_expect(2, "--no-patterns has no effect on a model", "plan -m {g}/llama --no-patterns");
    cli_expect(2, "--grad has no effect",
               "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/mlp.safetensors --grad --out {d}/o");
    cli_expect(2, "has no tensor",
               "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/moe.safetensors --out {d}/o");
    cli_expect(2, "--matrix has no effect on a program", "plan -m {g}/stablehlo/mlp.mlir --matrix --devices 2");
    cli_expect(2, "--save has no effect on a program", "plan -m {g}/stablehlo/mlp.mlir --search --save {d}/rules.json");
    cli_expect(2, "--devices has no effect without --search", "plan -m {g}/stablehlo/mlp.mlir --devices 2");
}

/* Memory, time, and collectives by the line of Python that they are for. */
static void test_plan(void **state)
{
    assert_int_equal(cli_run(said, "plan -m {g}/stablehlo/fsdp.mlir --hardware h100-nvlink-ib --json"), 0);
    assert_non_null(strstr(said, "\"mesh\": \"data=4\""));
    assert_non_null(strstr(said, "\"kind\": \"all_gather\""));
    assert_non_null(strstr(said, "input p['up'] is stated as split by dimension 0 over data"));
    assert_non_null(strstr(said, "make_stablehlo.py:"));
    assert_non_null(strstr(said, "\"total\": "));
    cli_expect(0, "mesh data=2", "plan -m {g}/stablehlo/fsdp.mlir --mesh data=2");
    cli_expect(1, "a rank needs", "plan -m {g}/stablehlo/fsdp.mlir --memory-limit 1000");
}

/* Meshes of the text's axes; one rank takes as long as several that do the same work. */
static void test_search(void **state)
{
    assert_int_equal(cli_run(said, "plan -m {g}/stablehlo/tensor_parallel.mlir --search --devices 4 --json"), 0);
    assert_non_null(strstr(said, "\"candidates_priced\": 6"));
    assert_non_null(strstr(said, "\"mesh\": \"data=4,model=1\", \"layouts\": \"stated\""));
    assert_non_null(strstr(said, "\"mesh\": \"data=1,model=4\", \"layouts\": \"found\""));
    assert_non_null(strstr(said, "\"fits\": true"));
    cli_expect(0, "candidates_priced  4", "plan -m {g}/stablehlo/mlp.mlir --search --devices 2 --most 1");
    assert_int_equal(cli_run(said, "plan -m {g}/stablehlo/mlp.mlir --search --devices 2 --memory-limit 1 --json"), 0);
    assert_null(strstr(said, "\"fits\": true"));
}

static void test_explain(void **state)
{
    cli_expect(0, "all_gather", "explain -m {g}/stablehlo/fsdp.mlir");
    assert_int_equal(cli_run(said, "explain -m {g}/stablehlo/fsdp.mlir --json"), 0);
    const char *line = strstr(said, "make_stablehlo.py:");
    assert_non_null(line);
    char name[64];
    assert_int_equal(sscanf(line, "%63[^\"]", name), 1);
    cli_expect(0, "chosen", "explain -m {g}/stablehlo/fsdp.mlir --op %s", name);
}

static void test_forward(void **state)
{
    cli_expect(0, "ran in",
               "forward -m {g}/stablehlo/gpt2.mlir --inputs {g}/stablehlo/gpt2.safetensors -tp 3 --out {d}/ours");
    cli_expect(0, "none",
               "verify -m {g}/stablehlo/gpt2.mlir --inputs {g}/stablehlo/gpt2.safetensors --tp 2 "
               "--against {d}/ours");
}

/* Every op on meshes, results beside JAX's, and a value that is put off. */
static void test_verify(void **state)
{
    cli_expect(0, "none", "verify -m {g}/stablehlo/llama.mlir --mesh data=2 --mesh model=3");
    cli_expect(0, "none", "verify -m {g}/stablehlo/llama.mlir --tp 2 --against {g}/stablehlo/llama.safetensors");
    cli_expect(1, "result",
               "verify -m {g}/stablehlo/mlp.mlir --tp 2 --inputs {g}/stablehlo/mlp.safetensors --against "
               "{g}/stablehlo/mlp.safetensors --tolerance 1e-12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_listing), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_plan),    cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_explain), cmocka_unit_test(test_forward),
                                       cmocka_unit_test(test_verify)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
