/* test_cli_import.c - import, and programs of StableHLO text and of torch.export in plan, explain, forward and verify:
 * what they print, and what they refuse. */
#include <stdio.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cli_run.h"
#include "must.h"
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
    cli_shell("head -c 900 {g}/stablehlo/mlp.mlir > {d}/cut.mlir");
    cli_expect(2, "cut.mlir:", "explain -m {d}/cut.mlir");
    cli_expect(1, "mlp.mlir is a program of JAX or PyTorch, not a model;", "generate -m {g}/stablehlo/mlp.mlir -p x");
    cli_expect(1, "gpt2.pt2 is a program of JAX or PyTorch, not a model;", "info {g}/torch_export/gpt2.pt2");
    cli_expect(2, "missing: --ids or --inputs FILE, --out FILE", "forward -m {g}/stablehlo/mlp.mlir");
    cli_expect(1, "mlp.mlir is a program of JAX or PyTorch, not a model;",
               "embed -m {g}/stablehlo/mlp.mlir --input {g}/mlp.json --out {d}/o");
    cli_expect(2, "--rules has no effect", "plan -m {g}/stablehlo/mlp.mlir --rules fsdp -tp 2");
    cli_expect(2, "--batch has no effect on a program of others; valid beside it: --no-patterns, --layouts, --grad",
               "plan -m {g}/stablehlo/mlp.mlir --batch 4");
    cli_expect(2, "--batch has no effect on a program", "verify -m {g}/stablehlo/mlp.mlir --batch 3");
    cli_expect(2, "--dtype has no effect on a program",
               "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/mlp.safetensors --dtype bf16 --out {d}/o");
    cli_expect(2, "have no effect with --search of a program",
               "plan -m {g}/stablehlo/mlp.mlir --search --devices 4 --mesh model=2");
    cli_expect(2, "--seq has no effect", "explain -m {g}/stablehlo/mlp.mlir --seq 4");
    cli_expect(2, "--no-patterns has no effect on a model", "plan -m {g}/llama --no-patterns");
    cli_expect(2, "gradients are of parameters; the program has none",
               "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/mlp.safetensors --grad --out {d}/o");
    cli_expect(
        2, "--trace-out has no effect",
        "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/mlp.safetensors --trace-out {d}/t --out {d}/o");
    cli_expect(2, "has no tensor",
               "forward -m {g}/stablehlo/mlp.mlir --inputs {g}/stablehlo/moe.safetensors --out {d}/o");
    cli_expect(2, "--matrix has no effect on a program", "plan -m {g}/stablehlo/mlp.mlir --matrix --devices 2");
    cli_expect(2, "--save has no effect on a program", "plan -m {g}/stablehlo/mlp.mlir --search --save {d}/rules.json");
    cli_expect(2, "--devices has no effect without --search", "plan -m {g}/stablehlo/mlp.mlir --devices 2");
}

/* Other files, by the name of a program: one line that says what they are. */
static void test_other_files(void **state)
{
    static const char *const commands[] = {"import", "plan -m", "explain -m", "verify -m", "export --stablehlo -m"};
    cli_shell("cp {g}/stablehlo/mlp.safetensors {d}/tensors.mlir; : > {d}/empty.pt2; cp {g}/mlp.json {d}/json.mlir; "
              "printf '\\211PNG\\r\\n\\032\\n\\000' > {d}/image.mlir; printf 'ML\\357R\\001' > {d}/code.mlir; "
              "{ printf 'PK\\005\\006'; head -c 18 /dev/zero; } > {d}/other.pt2");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cli_expect(2, "tensors.mlir: is a safetensors file, not StableHLO text or an archive of torch.export.save;",
                   "%s {d}/tensors.mlir", commands[i]);
        cli_expect(2, "empty.pt2: is an empty file, not", "%s {d}/empty.pt2", commands[i]);
        cli_expect(2, "json.mlir: is JSON, not", "%s {d}/json.mlir", commands[i]);
        cli_expect(2, "image.mlir: is no text, thus not", "%s {d}/image.mlir", commands[i]);
        cli_expect(2, "code.mlir: is MLIR bytecode; write the text", "%s {d}/code.mlir", commands[i]);
        cli_expect(2, "other.pt2: ", "%s {d}/other.pt2", commands[i]);
    }
}

/* Ranks that all do the same, or have nothing to do, are noted. */
static void test_idle_ranks(void **state)
{
    cli_expect(0, "note: nothing is split over model: its 99999 ranks all do the same; --layouts FILE",
               "plan -m {g}/stablehlo/mlp.mlir -tp 99999");
    cli_expect(0, "note: model has 99999 ranks, and no input or result has more than 24 elements",
               "plan -m {g}/stablehlo/tensor_parallel.mlir -tp 99999");
    cli_expect(0, "note: nothing is split over model: its 2 ranks", "verify -m {g}/stablehlo/mlp.mlir --tp 2");
    assert_int_equal(cli_run(said, "plan -m {g}/stablehlo/tensor_parallel.mlir -tp 2"), 0);
    assert_null(strstr(said, "note"));
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
    cli_expect(0, "none", "verify -m {g}/stablehlo/gpt2.mlir --tp 2 --against {d}/ours"); /* which has the inputs */
    cli_expect(2, "moe.safetensors has no tensor p['bias'], an input of the program; --inputs FILE names",
               "verify -m {g}/stablehlo/mlp.mlir --tp 2 --against {g}/stablehlo/moe.safetensors");
}

static void test_bench(void **state)
{
    cli_expect(0, "median_ms", "bench {g}/stablehlo/gpt2.mlir -tp 2 --iterations 2");
    assert_int_equal(
        cli_run(said, "bench -m {g}/stablehlo/tensor_parallel.mlir --inputs "
                      "{g}/stablehlo/tensor_parallel.safetensors --iterations 3 --hardware h100-nvlink-ib --json"),
        0);
    assert_non_null(strstr(said, "\"mesh\": \"data=2,model=2\", \"median_ms\": "));
    assert_non_null(strstr(said, "\"predicted_ms\": "));
    cli_expect(0, "gflops_per_rank", "bench program -m {g}/torch_export/gpt2.pt2 --grad --iterations 1");
    cli_expect(2, "'-p'", "bench {g}/stablehlo/gpt2.mlir -p 4");
    cli_expect(2, "cut.mlir:", "bench {d}/cut.mlir");
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

/* shard_map: values as JAX has them, what is wrong with it by name and line, and what measuring takes back. */
static void test_shard_map(void **state)
{
    cli_expect(0, "none",
               "verify -m {g}/stablehlo/shard_map_block.mlir --mesh data=2,model=2 --against "
               "{g}/stablehlo/shard_map_block.safetensors");
    cli_expect(0, "reduce_scatter", "plan -m {g}/stablehlo/shard_map_block.mlir --collectives");
    assert_int_equal(cli_run(said, "verify -m {g}/stablehlo/mistake_norm_gradient.mlir --tp 2 --json"), 1);
    assert_non_null(strstr(said, "\"first_divergence\": \"none\""));
    assert_non_null(strstr(said, "\"fault\": \"missing psum\", \"tensor\": \"result['wrong']\", \"axes\": \"model\", "
                                 "\"devices_differ\": 0."));
    assert_non_null(strstr(said, "a partial sum over model since make_mistakes.py:"));
    cli_expect(1, "psum too many",
               "verify -m {g}/stablehlo/mistake_psum_twice.mlir --tp 2 --against "
               "{g}/stablehlo/mistake_psum_twice.safetensors");
    cli_expect(0, "missing psum", "import {g}/stablehlo/mistake_norm_gradient.mlir");
    cli_expect(
        0,
        "  a partial sum over model since make_mistakes.py:25.reduce; out_specs say that\n  all devices have the same",
        "verify -m {g}/stablehlo/mistake_norm_gradient.mlir --tp 2 || true");
    cli_expect(0, "note: missing psum over model: result['wrong']: a partial sum over model since make_mistakes.py:25",
               "plan -m {g}/stablehlo/mistake_norm_gradient.mlir");
    assert_int_equal(cli_run(said, "explain -m {g}/stablehlo/shard_map_ring_sum.mlir"), 0);
    assert_null(strstr(said, "\u2026")); /* no sentence is cut */
    cli_expect(0, "note: psum too many over model", "explain -m {g}/stablehlo/mistake_psum_twice.mlir");
    assert_int_equal(cli_run(said, "verify -m {g}/stablehlo/shard_map_ring_sum.mlir --tp 2"), 0);
    assert_null(strstr(said, "psum"));
    cli_expect(0, "missing psum", "import {g}/stablehlo/shard_map_ring_sum.mlir");
}

/* A text that states no shardings, with tensor parallelism and with FSDP by --layouts; and what is refused. */
static void test_layouts(void **state)
{
    cli_shell("echo '{\"mesh\": \"data=2,model=2\", \"layouts\": {\"*up*\": \"_,model\", \"*down*\": \"model,_\", "
              "\"x\": \"data,_\"}}' > {d}/tp.json");
    cli_expect(0, "_,model", "import {g}/stablehlo/mlp.mlir --layouts {d}/tp.json");
    cli_expect(0, "all_reduce", "plan -m {g}/stablehlo/mlp.mlir --layouts {d}/tp.json");
    cli_expect(0, "mesh model=4", "plan -m {g}/stablehlo/mlp.mlir --layouts {d}/tp.json --mesh model=4");
    cli_expect(0, "none",
               "verify -m {g}/stablehlo/mlp.mlir --layouts {d}/tp.json --mesh data=2,model=2 --against "
               "{g}/stablehlo/mlp.safetensors");
    cli_shell("echo '{\"layouts\": {\"*up*\": \"_,model\", \"*up*\": \"_\"}}' > {d}/twice.json");
    cli_expect(2, "a duplicate key", "import {g}/stablehlo/mlp.mlir --layouts {d}/twice.json");
    cli_shell("echo '{\"layouts\": {\"nothing\": \"_\"}}' > {d}/none.json");
    cli_expect(2, "none.json: ", "import {g}/stablehlo/mlp.mlir --layouts {d}/none.json");
    cli_expect(2, "--layouts is for programs", "plan -m {g}/llama --layouts {d}/tp.json");
    cli_expect(2, "--rules", "plan -m {g}/stablehlo/mlp.mlir --layouts {d}/tp.json --rules fsdp");
    cli_expect(2, "no such", "plan -m {g}/stablehlo/mlp.mlir --layouts {d}/no.json");
}

/* Archives of torch.export: gradients by --grad, values of parameters by --inputs. */
static void test_torch(void **state)
{
    cli_expect(0, "model.lm_head.weight", "import {g}/torch_export/gpt2.pt2");
    assert_int_equal(cli_run(said, "import {g}/torch_export/gpt2.pt2 --json"), 0);
    assert_non_null(strstr(said, "\"tensor\": \"model.lm_head.weight\", \"kind\": \"state\", \"type\": \"f32[13,16]\", "
                                 "\"bytes\": 832, \"sharding\": \"as the same weight\""));
    cli_shell("echo '{\"layouts\": {\"*.c_fc.weight\": \"_,model\", \"*.mlp.c_proj.weight\": \"model,_\"}}' > "
              "{d}/tp.json");
    assert_int_equal(
        cli_run(said, "plan -m {g}/torch_export/gpt2.pt2 --layouts {d}/tp.json -tp 2 --grad --collectives --json"), 0);
    assert_non_null(strstr(said, "\"op\": \"model.transformer.h."));
    assert_non_null(strstr(said, "backward"));
    cli_expect(0, "chosen",
               "explain -m {g}/torch_export/gpt2.pt2 --layouts {d}/tp.json -tp 2 --op "
               "model.transformer.h.0.mlp.c_fc.dot_general");
    cli_expect(0, "none",
               "verify -m {g}/torch_export/gpt2.pt2 --layouts {d}/tp.json --tp 1,3 --grad --inputs "
               "{g}/torch_export/gpt2.safetensors");
    cli_expect(0, "none",
               "verify -m {g}/torch_export/gpt2.pt2 --tp 2 --grad --against {g}/torch_export/gpt2.safetensors");
    cli_expect(0, "ran in",
               "forward -m {g}/torch_export/gpt2.pt2 --inputs {g}/torch_export/gpt2.safetensors --grad -tp 2 "
               "--layouts {d}/tp.json --out {d}/ours");
    cli_expect(0, "none",
               "verify -m {g}/torch_export/gpt2.pt2 --tp 3 --grad --against {d}/ours --inputs "
               "{g}/torch_export/gpt2.safetensors");
    cli_expect(2, "--grad is for programs", "verify -m {g}/llama --grad");
    cli_shell("head -c 9000 {g}/torch_export/gpt2.pt2 > {d}/cut.pt2");
    cli_expect(2, "cut.pt2: a damaged or truncated zip archive", "plan -m {d}/cut.pt2");
}

/* A parameter that the file of inputs has is in the place of the archive's. */
static void test_parameters(void **state)
{
    static const int64_t x_shape[] = {6, 8}, y_shape[] = {6}, bias_shape[] = {5};
    static const float x[48], bias[] = {0, 0, 0, 0, 50};
    static const int64_t y[] = {4, 4, 4, 4, 4, 4};
    char path[4096];
    clv_checkpoint_writer *writer;
    clv_error err = {0};
    snprintf(path, sizeof path, "%s/values.safetensors", cli_folder());
    must(clv_checkpoint_create(&writer, path, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "x", CLV_F32, 2, x_shape, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "y", CLV_I64, 1, y_shape, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "down.bias", CLV_F32, 1, bias_shape, &err), &err);
    must(clv_checkpoint_add_tensor(writer, "down.bais", CLV_F32, 1, bias_shape, &err), &err);
    must(clv_checkpoint_write(writer, 3, NULL, bias, &err), &err);
    must(clv_checkpoint_write(writer, 0, NULL, x, &err), &err);
    must(clv_checkpoint_write(writer, 1, NULL, y, &err), &err);
    must(clv_checkpoint_write(writer, 2, NULL, bias, &err), &err);
    must(clv_checkpoint_commit(writer, &err), &err);
    cli_expect(0, "values.safetensors: the program has no tensor down.bais;",
               "forward -m {g}/torch_export/mlp.pt2 --inputs {d}/values.safetensors -tp 2 --out {d}/o");
    clv_checkpoint *file;
    int64_t at;
    float loss = 1;
    snprintf(path, sizeof path, "%s/o", cli_folder());
    must(clv_checkpoint_open(&file, path, NULL, &err), &err);
    must(clv_checkpoint_find(&at, file, "result[0]", &err), &err);
    must(clv_checkpoint_read(file, at, NULL, CLV_F32, &loss, &err), &err);
    clv_checkpoint_close(file);
    assert_true(loss >= 0 && loss < 1e-6f); /* the label is as sure as can be */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing),    cmocka_unit_test(test_refused),   cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_idle_ranks), cmocka_unit_test(test_plan),      cmocka_unit_test(test_search),
        cmocka_unit_test(test_explain),    cmocka_unit_test(test_forward),   cmocka_unit_test(test_bench),
        cmocka_unit_test(test_verify),     cmocka_unit_test(test_shard_map), cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_torch),      cmocka_unit_test(test_parameters)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
