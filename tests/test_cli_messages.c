/* test_cli_messages.c - what the commands say: of requests that are nearly right, and of what came out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit_test.h"
#include <jansson.h>

#include "cli_run.h"

/* ---- requests that are nearly right ---- */

/* A model is a folder: a file of it is rejected with that hint. */
static void test_model_files(void **state)
{
    static const char *const folder[] = {"generate -p x", "verify", "shard --out {d}/none",
                                         "score --input {g}/scores/text.txt"};
    cli_expect(0, "--repetition-penalty X\n    ", "generate --help all");
    cli_expect(1, "/dev/null is neither a file nor a folder; give the folder of a model", "verify -m /dev/null");
    static const char *const config[] = {"plan", "info", "explain --op mlp.down --mesh model=2"};
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        cli_expect(1, "/llama/model.safetensors is a file; give the folder of the model: ",
                   "%s -m {g}/llama/model.safetensors", folder[i]);
        cli_expect(1, "/llama\n", "%s -m {g}/llama/config.json", folder[i]);
    }
    for (size_t i = 0; i < sizeof config / sizeof config[0]; i++)
        cli_expect(1, "; a model is given by its folder, or its config.json", "%s -m {g}/llama/model.safetensors",
                   config[i]);
    cli_expect(0, "", "info -m {g}/llama/config.json");
    cli_expect(1, "; give the model's folder, or its tokenizer.json", "tokenize -p x -m {g}/llama/config.json");
    cli_expect(1, "; give the model's folder, or its tokenizer.json", "tokenize -p x -m {g}/llama/model.safetensors");
}

/* Options of experts that would have no effect. */
static void test_options_of_experts(void **state)
{
    static const char *const gathered[] = {"--mesh model=2", "--mesh data=2,expert=2 --rules dp --comm-dtype bf16"};
    cli_expect(2, "valid: 0\n", "plan -m {g}/llama --seq 16 --moe-expert-rank-capacity-factor 2");
    for (size_t i = 0; i < sizeof gathered / sizeof *gathered; i++)
        cli_expect(2, "is 2, and all rows are gathered, however many experts need; valid: 0, or experts split over",
                   "plan -m {g}/mixtral --batch 8 --seq 64 %s --moe-expert-rank-capacity-factor 2", gathered[i]);
    cli_expect(0, "", "plan -m {g}/mixtral --batch 8 --seq 64 --mesh expert=2 --moe-expert-rank-capacity-factor 2");
    cli_shell("seq 1 4000 > {d}/numbers.txt");
    cli_expect(
        2,
        "router_bias_update_rate is 0.001; valid: 0, and above it for all weights of a model whose routers "
        "have a bias",
        "train --data {d}/numbers.txt --hidden 16 --heads 2 --layers 1 --steps 1 --batch 1 --seq 8 --mesh data=1 "
        "--moe-router-bias-update-rate 0.001 --out {d}/none");
}

static void test_op_names(void **state)
{
    static const struct {
        const char *given, *meant;
    } rows[] = {{"mlp.dwn", "mlp.down"},
                {"combine", "attention.combine"},
                {"attenton", "attention"},
                {"mlp.down.weigth", "mlp.down.weight"},
                {"down", "mlp.down"}};
    char says[128];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(says, sizeof says, "named '%s'; did you mean '%s'?", rows[i].given, rows[i].meant);
        cli_expect(2, says, "explain --block gpt --mesh model=2 --op %s", rows[i].given);
    }
    cli_expect(2, "called 'mlp.dwn'; did you mean 'mlp.down'? there are x, ",
               "plan --block gpt --mesh model=2 --show mlp.dwn");
    cli_expect(2, "called 'down'; did you mean 'mlp.down'?", "plan --block gpt --mesh model=2 --show down");
    cli_expect(2, "named 'zzzzzzzz'; names are whole", "explain --block gpt --mesh model=2 --op zzzzzzzz");
}

/* A name nearly the same, or what the help of an option speaks of; and a line, no list of all. */
static void test_option_names(void **state)
{
    static const struct {
        const char *arguments, *says;
    } rows[] = {
        {"reshard -m x", "cleave reshard: unknown option '-m'. Valid: see 'cleave reshard --help'\n"},
        {"reshard --model x", "cleave reshard: unknown option '--model'. Valid: see 'cleave reshard --help'\n"},
        {"score --text x", "unknown option '--text'; did you mean '--input'? Valid: see 'cleave score --help'\n"},
        {"embed --fasta=x", "unknown option '--fasta'; did you mean '--input'?"},
        {"generate --seedd 3", "unknown option '--seedd'; did you mean '--seed'?"},
        {"generate -tpp 3", "unknown option '-tpp'; did you mean '-tp'?"},
        {"bench gemm --dtyp bf16", "did you mean '--dtype'? Valid: see 'cleave bench gemm --help'\n"},
        {"generate -m '' -p x", "cleave generate: -m is empty; valid: the name of a file or folder\n"},
        {"plan --model= -tp 2", "cleave plan: --model is empty; valid: the name of a file or folder\n"},
        {"train --text a '' --out b", "--text is empty;"},
        {"merge '' --out b", "DIR is empty;"},
        {"frobnicate", "unknown command 'frobnicate'. Valid: bench "},
        {"help frobnicate", "unknown command 'frobnicate'. Valid: bench "},
        {"plan -m {g}/llama --seq 8 --mesh expert=2",
         "this model has none; valid: a mesh without an axis of experts\n"},
        {"plan --block llama --mesh expert=2,model=2", "splits the experts of a mixture"},
        {"plan -m {g}/mixtral --seq 8 --mesh X=2,Y=2,expert=2", "do not fit the mesh"},
        {"generate -m {g}/llama -p x --mesh foo=2",
         "or use the axis names of presets: pipe, expert, data, context, model, X, Y\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cli_expect(2, rows[i].says, "%s", rows[i].arguments);
}

static void test_help_and_version(void **state)
{
    cli_expect(0, "cleave generate: generate text", "help generate");
    cli_expect(0, "  -p, --prompt TEXT", "help generate");
    cli_expect(0, "cleave bench gemm: time one matrix product", "help bench gemm");
    cli_expect(0, "cleave bench gemm: time one matrix product", "bench help gemm");
    cli_expect(0, "Usage: cleave COMMAND", "help");
    cli_expect(0, "Usage: cleave bench COMMAND", "help bench");
    cli_expect(0, "cleave  ", "--version");
    cli_expect(0, "cleave  ", "-V");
    cli_expect(0, "\"cleave\": \"", "--version --json");
}

/* What plans print is explained: each kind of memory where plans are, and words of the house in the glossary. */
static void test_words_of_plans(void **state)
{
    static char out[CLI_OUTPUT];
    static const char *const words[] = {"degree", "lower_bound", "fullest rank", "gathered", "fragments", "comm_share"};
    const char *key, *source = getenv("CLV_SOURCE_DIR");
    char path[4096];
    assert_int_equal(cli_run(out, "plan --block ffn --json"), 0);
    json_t *plan = json_loads(out, 0, NULL), *value;
    assert_non_null(plan);
    json_object_foreach(json_object_get(plan, "memory"), key, value)
    {
        if (strcmp(key, "total") != 0 && strcmp(key, "peak_at") != 0)
            cli_shell("grep -q '^| .*\\b%s\\b.* |' '%s/docs/planner.md'", key, source ? source : ".");
    }
    json_decref(plan);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        snprintf(path, sizeof path, "%s/docs/glossary.md", source ? source : ".");
        cli_shell("grep -q '^| %s | ' '%s'", words[i], path);
    }
}

/* What is at fault in a request is said alone: that ranks will run slowly comes when they do. */
static void test_no_warning_before_an_error(void **state)
{
    static char out[CLI_OUTPUT];
    static const char *const wrong[] = {
        "generate -m {g}/llama -p x --mesh model=97",
        "forward -m {g}/llama --ids nowhere --out {d}/x -tp 97",
        "verify -m {g}/llama --mesh model=97 --seq 100000",
        "generate -m {d}/few -p 'a long prompt' -c 3 -tp 7",
        "bench generate -m {d}/few -p 9999 -tp 7",
        "score -m {g}/esm --input nowhere -tp 97",
        "score -m {d}/few_esm --input {g}/scores/wild.fasta --mutations nowhere -tp 7",
        "train --text {g}/scores/text.txt --hidden 30 --heads 4 --seq 8 --out {d}/x -tp 97",
        "bench block --hidden 30 --heads 4 -tp 97"};
    cli_expect(0, "",
               "train --text {g}/scores/text.txt --layers 1 --hidden 16 --heads 2 --seq 8 --batch 1 --steps 1 "
               "--out {d}/few");
    cli_shell("mkdir {d}/few_esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/few_esm");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(cli_run(out, "%s", wrong[i]), 0);
        if (strstr(out, "warning") || strstr(out, "note: "))
            fail_msg("%s: %s", wrong[i], out);
    }
}

/* One is one. */
static void test_numbers(void **state)
{
    cli_expect(0, "over 1 rank\n",
               "train --text {g}/scores/text.txt --layers 1 --hidden 16 --heads 2 --seq 8 --batch 1 --steps 1 --out "
               "{d}/bytes");
    cli_expect(0, "note: 1 text ends because", "generate -m {d}/bytes -p abcdefgh -n 20 -c 10");
    cli_shell("printf 'a\\0bcdefgh\\n' > {d}/zero");
    cli_expect(2, "/zero: byte 1 is 0; a text holds none", "generate -m {d}/bytes -f {d}/zero");
    cli_expect(2, "/zero: byte 1 is 0; a text holds none", "embed -m {d}/bytes --input {d}/zero --out {d}/vectors");
    cli_expect(0, "perplexity", "score -m {d}/bytes --input {d}/zero"); /* a text of a decoder's is any bytes */
    cli_expect(0, "\"prompt\": \"a\xef\xbf\xbd\"", "generate -m {d}/bytes -p 'a\xff' -n 1 --json");
    cli_shell("printf 'abcdefgh\\nabcdefgh\\n' > {d}/two");
    cli_expect(0, "note: 2 texts end because", "generate -m {d}/bytes -f {d}/two -n 20 -c 10");
    cli_shell("mkdir {d}/esm && cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/esm");
    cli_expect(0, "1 sequence in ", "embed -m {d}/esm --input {g}/scores/wild.fasta --out {d}/e");
}

/* ---- files of prompts and records ---- */

/* Where Windows ends lines, prompts are the same. */
static void test_prompts_of_windows(void **state)
{
    static char unix_out[CLI_OUTPUT], windows_out[CLI_OUTPUT];
    cli_shell("printf 'abc\\nde\\nf' > {d}/unix && printf 'abc\\r\\nde\\r\\nf\\r' > {d}/windows");
    assert_int_equal(cli_run(unix_out, "generate -m {d}/bytes -f {d}/unix -n 4 --temp 0 --json 2>/dev/null"), 0);
    assert_int_equal(cli_run(windows_out, "generate -m {d}/bytes -f {d}/windows -n 4 --temp 0 --json 2>/dev/null"), 0);
    assert_string_equal(windows_out, unix_out);
    cli_shell("printf 'a\\r\\n\\r\\nb' > {d}/gap");
    cli_expect(0, "{\"prompt\": \"\", \"text\": \"\", \"prompt_tokens\": 0, \"tokens\": 0}, {\"prompt\": \"b\"",
               "generate -m {d}/bytes -f {d}/gap -n 4 --json");
    cli_expect(0, "\n\nb", "generate -m {d}/bytes -f {d}/gap -n 0");
    cli_shell("printf '\n\r\n' > {d}/blank");
    cli_expect(2, "no prompt; one a line is needed", "generate -m {d}/bytes -f {d}/blank -n 4");
    cli_expect(2, "-p: the prompt is empty", "generate -m {d}/bytes -p '' -n 4");
    cli_shell("printf 'a\\rb\\n' > {d}/inner");
    cli_expect(0, "{\"prompt\": \"b\"",
               "generate -m {d}/bytes -f {d}/inner -n 4 --json"); /* as Macs once ended lines */
}

static void test_names_of_records(void **state)
{
    static char out[CLI_OUTPUT];
    cli_shell("printf '>a\\nMKT\\n>b\\nMKT\\n>a x\\nMKT\\n>\\nMKT\\n>b\\nMKT\\n' > {d}/same.fasta");
    cli_expect(0, "note: 2 records have the name of an earlier one, the first is 'a'\n",
               "embed -m {d}/esm --input {d}/same.fasta --out {d}/e");
    cli_expect(0, "note: 1 record has no name behind '>'\n", "embed -m {d}/esm --input {d}/same.fasta --out {d}/e");
    cli_expect(0, "note: 2 records have the name of an earlier one", "score -m {d}/esm --input {d}/same.fasta");
    assert_int_equal(cli_run(out, "embed -m {d}/esm --input {g}/scores/proteins.fasta --out {d}/e"), 0);
    assert_null(strstr(out, " record"));
    cli_shell("printf 'MKT\\nMKT\\n' > {d}/same");
    assert_int_equal(cli_run(out, "embed -m {d}/esm --input {d}/same --out {d}/e"), 0);
    assert_null(strstr(out, " record"));
}

/* No head is made smaller than was asked for, and what is said is of the options, not of what comes of them. */
static void test_train_heads(void **state)
{
    static const char train[] =
        "train --text {g}/scores/text.txt --layers 1 --seq 8 --batch 1 --steps 1 --out {d}/heads";
    cli_expect(2, "--hidden 36 is not a multiple of --heads 8; valid: --hidden 32 or 48", "%s --hidden 36 --heads 8",
               train);
    cli_expect(2, "--hidden 30 is not a multiple of --heads 4; valid: --hidden 24 or 32", "%s --hidden 30 --heads 4",
               train);
    cli_expect(2,
               "--hidden 28 / --heads 4 is a head width of 7, which is odd; rotary embedding needs an even one; valid: "
               "--hidden 24 or 32",
               "%s --hidden 28 --heads 4", train);
    cli_expect(2, "--hidden 3 is not a multiple of --heads 4; valid: --hidden 8", "%s --hidden 3 --heads 4", train);
    cli_expect(2, "--kv-heads 4 does not divide --heads 6", "%s --hidden 36 --heads 6 --kv-heads 4", train);
    cli_expect(0, "", "%s --hidden 24 --heads 6 --kv-heads 2", train);
}

/* ---- why an op is split as it is ---- */

/* Values are called what their makers call them, gradients after what they are of. */
static void test_explained_words(void **state)
{
    static const struct {
        const char *arguments, *says;
    } rows[] = {
        {"--op layers.0.mlp.norm", "\"purpose\": \"for the gradients of layers.0.mlp.normalize\""},
        {"--op layers.0.attention.norm", "\"purpose\": \"partial sum of the gradient of the residual stream\""},
        {"--op layers.0.attention.attention", "layers.0.attention.rope (of the query tensor), "},
        {"--op layers.0.attention.rope", "kept in place: the query tensor stays as it is over Y"},
        {"--op layers.0.attention.kv", "\"split\": \"keys and values over X, KV heads over Y\""},
        {"--op layers.0.mlp.gate_up", "\"split\": \"gate and up over X, ffn over Y\""},
        {"--op layers.0.mlp.norm", "partial sums over X"},
        {"--op layers.0.mlp.norm",
         "illegal: no operand of the gradient of the norm is a partial sum over X that it could pass on"},
        {"--op adamw", "\"op\": \"adamw\", \"purpose\": \"new embed.weight\""},
        {"--op adamw", "\"purpose\": \"new layers.1.mlp.down.weight\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cli_expect(0, rows[i].says, "explain -m {g}/llama --seq 16 --mesh X=2,Y=2 --rules gspmd-2d --json %s",
                   rows[i].arguments);
}

/* Experts are split over the ranks that share them, and rows are brought to them. */
static void test_experts(void **state)
{
    static const char *const says[] = {"\"split\": \"experts over expert, ffn over model\"",
                                       "the input of the experts is stated as whole on every rank"};
    for (int i = 0; i < 2; i++)
        cli_expect(0, says[i], "explain -m {g}/mixtral --seq 16 --batch 4 --mesh expert=2,model=2 --json%s",
                   i == 0 ? " --op layers.0.mlp.experts" : " --op layers.0.mlp.constraint");
}

/* What is reduced over data ranks is the gradient of a bias, not of a reshape. */
static void test_bias_gradients(void **state)
{
    cli_expect(0, "the gradient of layers.*.attention.q.bias is a sum over data",
               "plan -m {g}/gpt2 --seq 16 --mesh data=2,model=2 --rules zero1 --collectives");
    cli_expect(0, "the gradient of layers.*.mlp.up.bias is a sum over data",
               "plan -m {g}/bert --seq 12 --mesh data=2,model=2 --rules zero1 --collectives");
}

/* ---- what would make a plan fit ---- */

static void test_enough(void **state)
{
    (void)state;
    cli_expect(1, "\n  enough      none of these options alone\n",
               "plan -m {g}/llama --seq 16 --memory-limit 1K --all");
    cli_expect(1, "\"enough\": \"none of these options alone\"", "plan -m {g}/llama --seq 16 --memory-limit 1K --json");
    cli_expect(
        1, "\n  enough      --dtype bf16; --mesh data=4,model=4; --batch 4\n",
        "plan --block gpt --hidden 4096 --heads 32 --mesh data=2,model=4 --grad --seq 4096 --memory-limit 2GiB --all");
    cli_expect(1, "activations  --mesh model=2; --recompute full; --batch 4; --recompute selective\n",
               "plan -m {g}/llama --seq 16 --memory-limit 1K --all --wide");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_files),
        cmocka_unit_test(test_option_names),
        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_words_of_plans),
        cmocka_unit_test(test_no_warning_before_an_error),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_prompts_of_windows),
        cmocka_unit_test(test_names_of_records),
        cmocka_unit_test(test_options_of_experts),
        cmocka_unit_test(test_op_names),
        cmocka_unit_test(test_explained_words),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_bias_gradients),
        cmocka_unit_test(test_enough),
        cmocka_unit_test(test_train_heads),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
