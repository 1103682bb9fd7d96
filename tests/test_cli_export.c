/* test_cli_export.c - export and --import: what they write, read, and refuse. */
#include <stdio.h>
#include <string.h>

#include "cli_run.h"
#include "unit_test.h"

static char said[CLI_OUTPUT], again[CLI_OUTPUT];

/* What is written is a program, and its results are the model's. */
static void test_stablehlo(void **state)
{
    cli_expect(0, "",
               "export --stablehlo --block gpt --hidden 16 --heads 2 --seq 4 --grad --mesh data=2,model=2 --out "
               "{d}/block.mlir");
    assert_int_equal(cli_run(said, "import {d}/block.mlir --json"), 0);
    const char *gradient = strstr(said, "\"d.mlp.down.weight\", \"kind\": \"result\""); /* split as its weight */
    assert_non_null(gradient);
    assert_int_equal(strncmp(strstr(gradient, "\"sharding\": "), "\"sharding\": \"model,_\"", 21), 0);
    cli_expect(0, "none", "verify -m {d}/block.mlir --mesh data=2,model=2");
    cli_expect(0, "", "export --stablehlo -m {g}/llama -tp 2 --batch 2 --seq 4 --out {d}/step.mlir");
    cli_expect(0, "new.embed.weight", "import {d}/step.mlir");
    cli_expect(0, "sdy.mesh @mesh = <[\"data\"=4]>", "export --stablehlo -m {g}/stablehlo/fsdp.mlir");
    cli_expect(2, "an op 'router' of groups of experts is not among those that are written as StableHLO",
               "export --stablehlo -m {g}/deepseek_v3 --seq 4");
    cli_expect(2, "give --stablehlo, or --as", "export -m {g}/llama");
    cli_expect(2, "--as", "export --stablehlo --as jax -m {g}/llama");
}

static void test_layouts(void **state)
{
    cli_expect(0, "\"p['up']\": [\"data\", null]", "export --as jax -m {g}/stablehlo/fsdp.mlir");
    cli_expect(0, "[37, 24] #sdy.sharding<@mesh, [{\"model\"}, {}]>", "export --as shardy -m {g}/llama -tp 3");
    cli_expect(2, "valid for a program: jax, shardy", "export --as megatron -m {g}/stablehlo/fsdp.mlir");
    cli_expect(2, "dimension 0 of 37 is split unevenly", "export --as jax -m {g}/llama -tp 2");
    cli_expect(2, "2-D weights", "export --as megatron -m {g}/llama --mesh X=2,Y=2 --rules gspmd-2d");
    cli_expect(2, "names parameters of a checkpoint", "export --as jax --block gpt -tp 2");
    cli_expect(0, "--pipeline-model-parallel-size 2\n--use-distributed-optimizer\n--micro-batch-size 2\n",
               "export --as megatron -m {g}/llama --mesh pipe=2,data=2,model=2 --rules zero1 --batch 8 --accumulate 2");
}

/* The same plan as by --mesh and --rules. */
static void test_import(void **state)
{
    cli_expect(0, "", "export --as jax -m {g}/llama --mesh data=8 --rules fsdp --out {d}/fsdp.py");
    assert_int_equal(cli_run(said, "plan -m {g}/llama --seq 8 --import {d}/fsdp.py --all"), 0);
    assert_int_equal(cli_run(again, "plan -m {g}/llama --seq 8 --mesh data=8 --rules fsdp --all"), 0);
    assert_string_equal(said, again);
    assert_int_equal(cli_run(said, "plan -m {g}/llama --import '--tensor-model-parallel-size 2 --sequence-parallel "
                                   "--world-size 4 --micro-batch-size 2 --global-batch-size 8 --seq-length 16 "
                                   "--recompute-granularity full' --json"),
                     0);
    assert_int_equal(cli_run(again, "plan -m {g}/llama --mesh data=2,model=2 --rules megatron-sp --batch 8 --seq 16 "
                                    "--accumulate 2 --recompute full --json"),
                     0);
    assert_string_equal(said, again);
    cli_expect(0, "pipeline: 2 stages",
               "plan -m {g}/llama --import '--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size "
               "4 --seq-length 8'");
    cli_expect(0, "over model", "explain -m {g}/llama --seq 8 --import '--tensor-model-parallel-size 2' --json");
    cli_expect(0, "--sequence-parallel\n",
               "export --as megatron -m {g}/llama --import '--tensor-model-parallel-size 2 --sequence-parallel'");
}

/* What is run today, beside what a search finds. */
static void test_search(void **state)
{
    assert_int_equal(cli_run(said, "plan -m {g}/llama --search --batch 8 --seq 8 --import "
                                   "'--world-size 4 --tensor-model-parallel-size 2 --sequence-parallel' --json"),
                     0);
    assert_non_null(strstr(said, "\"imported\": {\"mesh\": \"data=2,model=2\", \"rules\": \"megatron-sp\""));
    assert_non_null(strstr(said, "\"devices\": 4"));
    assert_non_null(strstr(said, "\"rules\": \"fsdp\""));
}

/* A rank's file has what its stage has: of tied embeddings the first one's; merged it is the checkpoint again. */
static void test_shards_of_stages(void **state)
{
    static const char *const models[] = {"llama", "gpt2", "mixtral"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char command[512];
        snprintf(command, sizeof command, "shard -m {g}/%s --mesh pipe=2,model=2 --stages 1,1 --out {d}/%s", models[m],
                 models[m]);
        cli_expect(0, "", "%s", command);
        snprintf(command, sizeof command, "merge {d}/%s --out {d}/%s.merged", models[m], models[m]);
        cli_expect(0, "", "%s", command);
        snprintf(command, sizeof command, "cmp {d}/%s.merged/model.safetensors {g}/%s/model.safetensors", models[m],
                 models[m]);
        cli_shell("%s", command);
    }
    cli_shell("! grep -a layers.1 {d}/llama/rank-00000-of-00004.safetensors && "
              "! grep -a layers.0 {d}/llama/rank-00002-of-00004.safetensors");
    cli_expect(2, "stages of 3 layers together, of a model of 2",
               "shard -m {g}/llama --mesh pipe=2 --stages 2,1 --out {d}/wrong");
}

static void test_refused(void **state)
{
    cli_expect(2, "--tensor-modle-size is not known", "plan -m {g}/llama --import '--tensor-modle-size 2'");
    cli_expect(2, "--import has no effect on a program",
               "plan -m {g}/stablehlo/mlp.mlir --import '--tensor-model-parallel-size 2'");
    cli_expect(2, "--mesh", "plan -m {g}/llama --mesh data=2 --import '--tensor-model-parallel-size 2'");
    cli_shell("echo nothing > {d}/nothing");
    cli_expect(2, "no layout", "plan -m {g}/llama --import {d}/nothing");
    cli_expect(2, "pipeline stages have no form in jax; valid: megatron",
               "export --as jax -m {g}/llama --mesh pipe=2,model=2");
    cli_expect(2, "absent", "plan -m {g}/llama --import {d}/absent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stablehlo),        cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_import),           cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_shards_of_stages), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
