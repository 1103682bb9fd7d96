/* test_cli_help.c - pages of --help: 80 columns, and nothing that is left out unnamed; their examples are run as they
 * stand, by bash, in a folder that has what they name.
 * What takes long is made short; the benchmarks run only where CLV_CASES asks for more. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_run.h"
#include "unit_test.h"

enum { COMMANDS = 32, EXAMPLES = 64, OPTIONS = 96 };

static char examples[EXAMPLES][512];
static int n_examples;

/* The names that a list of commands shows. */
static int commands_of(char names[COMMANDS][32], const char *path)
{
    static char out[CLI_OUTPUT];
    int n = 0;
    assert_int_equal(cli_run(out, "%s --help", path), 0);
    char *at = strstr(out, "Commands:\n");
    assert_non_null(at);
    for (at += 10; at[0] == ' ' && at[1] == ' '; at = strchr(at, '\n') + 1) {
        assert_true(n < COMMANDS);
        assert_int_equal(sscanf(at, "%31s", names[n++]), 1);
    }
    return n;
}

/* Lines after "Example:" or "Examples:", up to an empty one; each command must have one. */
static void add_examples(const char *command)
{
    static char out[CLI_OUTPUT];
    int before = n_examples;
    assert_int_equal(cli_run(out, "%s --help", command), 0);
    char *at = strstr(out, "\nExample");
    for (at = at ? strstr(at, "cleave ") : NULL; at; at = strstr(at, "cleave ")) {
        size_t length = strcspn(at, "\n");
        while (at[length - 1] == '\\') /* it goes on below */
            length += 1 + strcspn(at + length + 1, "\n");
        assert_true(n_examples < EXAMPLES && length < sizeof examples[0]);
        snprintf(examples[n_examples++], sizeof examples[0], "%.*s", (int)length, at);
        at += length;
        if (at[0] == '\0' || at[1] == '\n')
            break;
    }
    if (n_examples == before)
        fail_msg("cleave %s --help has no example", command);
}

static void find_examples(void)
{
    char names[COMMANDS][32], more[COMMANDS][32], command[80];
    int n = commands_of(names, ""), m = commands_of(more, "bench");
    add_examples("");
    for (int i = 0; i < n; i++)
        add_examples(names[i]);
    for (int i = 0; getenv("CLV_CASES") && i < m; i++) {
        snprintf(command, sizeof command, "bench %s", more[i]);
        add_examples(command);
    }
}

/* A folder that is made by the example is not there before. */
static void remove_out(const char *example)
{
    const char *at = strstr(example, "--out ");
    if (at)
        cli_shell("rm -rf '{d}/here/%.*s'", (int)strcspn(at + 6, " "), at + 6);
}

static void replace(char *text, size_t size, const char *from, const char *to)
{
    char *at = strstr(text, from), rest[512];
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, size - (size_t)(at - text), "%s%s", to, rest);
}

static void run_example(const char *example)
{
    char line[600];
    snprintf(line, sizeof line, "%s", example);
    replace(line, sizeof line, "--steps 500", "--steps 1 --hidden 32 --layers 1");
    replace(line, sizeof line, "--devices 64 --batch 512", "--devices 2 --batch 4");
    replace(line, sizeof line, "bench block --train", "bench block --train --layers 1 --hidden 32 --heads 2 --ffn 64");
    replace(line, sizeof line, "-m DIR", "-m runs/first");
    cli_shell("rm -rf {d}/here && cp -r {d}/base {d}/here");
    remove_out(line);
    FILE *script = fopen("script", "w");
    assert_non_null(script);
    fprintf(script, "set -e -o pipefail\n%s\n", line);
    assert_int_equal(fclose(script), 0);
    cli_shell("cd {d}/here && PATH=\"{d}/bin:$PATH\" bash ../script >../printed 2>&1 || { echo; cat ../script "
              "../printed; false; } >&2");
}

/* ---- pages ---- */

/* The options that a page lists, each once. */
static int options_of(char names[OPTIONS][32], const char *page)
{
    int n = 0;
    for (const char *at = strstr(page, "Options:\n"); at && (at = strstr(at, "\n  -")); at++) {
        assert_true(n < OPTIONS);
        assert_int_equal(sscanf(at, " %31[^ ,\n]", names[n++]), 1);
    }
    return n;
}

static void check_width(const char *command, const char *page)
{
    for (const char *line = page; *line; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > 80)
            fail_msg("cleave %s: more than 80 columns: %.*s", command, (int)strcspn(line, "\n"), line);
}

/* No line has more than 80 columns. What a short list leaves out it names, and --help all tells of everything. */
static void check_page(const char *command)
{
    static char brief[CLI_OUTPUT], all[CLI_OUTPUT], names[OPTIONS][32];
    assert_int_equal(cli_run(brief, "%s --help", command), 0);
    assert_int_equal(cli_run(all, "%s --help all", command), 0);
    check_width(command, brief);
    check_width(command, all);
    const char *more = strstr(brief, "\nMore options");
    assert_null(strstr(all, "\nMore options"));
    int n = options_of(names, all), shown = 0;
    for (int i = 0; i < n; i++) {
        char row[40];
        snprintf(row, sizeof row, "\n  %s", names[i]);
        bool in_brief = strstr(brief, row) != NULL;
        shown += in_brief;
        if (!in_brief && (!more || !strstr(more, names[i])))
            fail_msg("cleave %s --help says nothing of %s", command, names[i]);
    }
    assert_int_equal(shown == n, more == NULL);
}

static void test_pages(void **state)
{
    char names[COMMANDS][32], more[COMMANDS][32], command[80];
    int n = commands_of(names, ""), m = commands_of(more, "bench");
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "bench") != 0)
            check_page(names[i]);
    for (int i = 0; i < m; i++) {
        snprintf(command, sizeof command, "bench %s", more[i]);
        check_page(command);
    }
    cli_expect(0, "\nMore options ('cleave train --help all' describes them): --rows", "train --help");
    cli_expect(0, "--rows packed|padded", "help train all");
    cli_expect(0, "conflicts with\n                           --json, --show", "plan -h all");
    cli_expect(0, "Commands:", "help all");
}

static void test_examples(void **state)
{
    find_examples();
    assert_true(n_examples >= 25);
    for (int i = 0; i < n_examples; i++)
        run_example(examples[i]);
}

/* In '...' of a shell a backslash is one: what was meant is $'\n'. */
static void test_no_quoted_escapes(void **state)
{
    for (int i = 0; i < n_examples; i++)
        for (const char *at = examples[i]; (at = strstr(at, "'\\")) != NULL; at++)
            if (at == examples[i] || at[-1] != '$')
                fail_msg("%s: the shell hands on a backslash", examples[i]);
}

/* ---- what the examples name ---- */

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/base/%s", cli_folder(), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    static const char wild[] = ">wild\nMKTAYIAKQRQISFVKGSHFSRQAEERLGKLVV\n",
                      prose[] = "Once upon a time a tensor was split.\n";
    cli_shell("mkdir -p {d}/base/runs {d}/bin {d}/base/esm2 {d}/base/llama-7b");
    for (int i = 0; i < 2; i++)
        write_file(i == 0 ? "prompts.txt" : "text.txt", prose);
    write_file("chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}, "
                              "{\"role\": \"assistant\", \"content\": \"Because.\"}]}\n");
    write_file("proteins.fasta", wild);
    write_file("wild.fasta", wild);
    cli_expect(0, "", "bench allreduce -tp 2 --bytes 64 --flight-recorder {d}/base/run.flight");
    cli_expect(0, "", "bench block --layers 1 --hidden 32 --heads 2 --ffn 64 -tp 2 --trace-out {d}/base/block.json");
    cli_shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cat {d}/base/text.txt; done > {d}/base/book.txt");
    write_file(
        "llama-7b/config.json",
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"vocab_size\": 32000, "
        "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\"}");
    cli_shell("cp {g}/stablehlo/mlp.mlir {d}/base/step.mlir && cp {g}/stablehlo/mlp.safetensors "
              "{d}/base/values.safetensors");
    cli_shell("cp {g}/torch_export/mlp.pt2 {d}/base/model.pt2 && cp {g}/torch_export/mlp.safetensors "
              "{d}/base/batch.safetensors && echo '{\"layouts\": {\"up.weight\": \"model,_\"}}' > {d}/base/tp.json");
    cli_shell("cp {g}/esm/* {g}/tokenizer/esm_vocab/vocab.txt {d}/base/esm2");
    cli_expect(0, "",
               "train --text {d}/base/book.txt --layers 1 --hidden 32 --heads 8 --seq 16 --batch 1 --steps 2 --out "
               "{d}/base/runs/first");
    cli_shell("cp -r {d}/base/runs/first {d}/base/llama && cp %s {d}/base/ids.safetensors", cli_ids("llama_golden"));
    cli_expect(0, "",
               "forward -m {d}/base/llama --ids {d}/base/ids.safetensors --grad --out {d}/base/golden.safetensors");
    cli_expect(0, "", "shard -m {d}/base/llama -tp 4 --out {d}/base/llama-tp4");
    cli_shell(
        "mkdir {d}/base/adapters && cp {g}/llama_lora/* {d}/base/adapters && "
        "sed 's,\\.\\./llama,{g}/llama,' {g}/llama_lora/adapter_config.json >{d}/base/adapters/adapter_config.json");
    cli_expect(0, "", "data --input {d}/base/book.txt --out {d}/base/corpus.bin");
    cli_shell("printf '#!/bin/sh\\ncat\\n' > {d}/bin/dot && chmod +x {d}/bin/dot");
    const char *build = getenv("CLV_BUILD_DIR");
    char *whole = realpath(build ? build : "build", NULL);
    assert_non_null(whole);
    cli_shell("ln -s '%s/cleave' {d}/bin/cleave", whole);
    free(whole);
    return chdir(cli_folder());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages), cmocka_unit_test(test_examples),
                                       cmocka_unit_test(test_no_quoted_escapes)};
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
