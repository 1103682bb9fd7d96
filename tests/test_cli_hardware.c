/* test_cli_hardware.c - --hardware of every command that compiles: layouts are priced by the profile. */
#include <stdio.h>
#include <string.h>

#include "unit_test.h"
#include <jansson.h>

#include "cli_run.h"

/* A step takes long, whatever it moves: fewer of them are better. */
static const char slow[] =
    "{\"name\": \"slow links\", \"ranks_per_host\": 1, \"hosts\": 0, \"memory_bytes\": 1e12, \"flops_per_s\": "
    "{\"f32\": 1e14}, \"memory_bytes_per_s\": 2e12, \"efficiency\": 0.5, \"instruction_s\": 1e-6, \"host\": "
    "{\"alpha_s\": 5e-6, \"bytes_per_s\": 3e11}, \"network\": {\"alpha_s\": 0.02, \"bytes_per_s\": 2e6}}";

static char out[CLI_OUTPUT];

static int set_up(void **state)
{
    char path[512];
    snprintf(path, sizeof path, "%s/slow.json", cli_folder());
    FILE *f = fopen(path, "w");
    return f && fputs(slow, f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static void test_every_command(void **state)
{
    static const char *const commands[] = {
        "generate -m {g}/llama -p 0 -n 2",
        "embed -m {g}/esm --input {g}/scores/proteins.fasta --out {d}/e",
        "score -m {g}/esm --input {g}/scores/wild.fasta",
        "forward -m {g}/llama --ids {d}/slow.json --out {d}/f",
        "verify -m {g}/llama --tp 2 --seq 4",
        "train --text {g}/scores/text.txt --layers 1 --hidden 32 --seq 8 --batch 1 --steps 1 --out {d}/run",
        "bench generate -m {g}/llama -p 4 -n 2 -r 1",
        "bench block --layers 1 --hidden 32 --ffn 32 --heads 4 --seq 8 --program",
        "plan --block ffn",
        "explain --block ffn --dot"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        cli_expect(2, "--hardware nowhere: no such file; valid: ", "%s --hardware nowhere", commands[i]);
}

/* The profiles that the library has, as a table of 80 columns and as rows. */
static void test_list(void **state)
{
    (void)state;
    cli_expect(0, "\nmi300x          178.8 GiB      1.31 P     5.30 T      310 G   45.0 G           8\n",
               "plan --hardware list");
    assert_int_equal(cli_run(out, "plan --hardware list"), 0);
    assert_non_null(strstr(out, "\n  pytorch, torch-compile, pytorch-flash1, megatron-2021\n"));
    int columns = 0;
    for (const char *c = out; *c; c++) {
        columns = *c == '\n' ? 0 : columns + ((*c & 0xc0) != 0x80); /* of UTF-8 */
        assert_true(columns <= 80);
    }
    assert_int_equal(cli_run(out, "plan --hardware list --json"), 0);
    json_t *printed = json_loads(out, 0, NULL), *row, *rows = json_object_get(printed, "profiles");
    size_t i;
    assert_true(json_array_size(rows) >= 16);
    json_array_foreach(rows, i, row)
    {
        assert_true(json_number_value(json_object_get(row, "memory")) > 8e9);
        assert_true(json_number_value(json_object_get(row, "bf16_flops")) > 1e10);
        assert_non_null(json_string_value(json_object_get(row, "software")));
        cli_expect(0, json_string_value(json_object_get(row, "name")), "plan --block ffn --json --hardware %s",
                   json_string_value(json_object_get(row, "name")));
    }
    json_decref(printed);
}

/* The bytes of all collectives of a step. */
static double bytes_of(const char *arguments)
{
    double bytes = 0;
    size_t i;
    json_t *row;
    assert_int_equal(cli_run(out, "%s 2>{d}/stderr", arguments), 0);
    json_t *printed = json_loads(out, 0, NULL);
    assert_non_null(printed);
    json_array_foreach(json_object_get(printed, "collectives_per_step"), i, row) bytes +=
        json_number_value(json_object_get(row, "bytes"));
    json_decref(printed);
    return bytes;
}

/* A step is compiled for the machine: fewer collectives, of more bytes. */
static void test_priced(void **state)
{
    static const char train[] =
        "train --text {g}/scores/text.txt --layers 1 --hidden 64 --heads 4 --ffn 256 --seq 4 --batch 2 "
        "--steps 1 --mesh X=4,Y=1 --rules gspmd-2d --json --out {d}/";
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%susual", train);
    double usual = bytes_of(arguments);
    snprintf(arguments, sizeof arguments, "%spriced --hardware {d}/slow.json", train);
    double priced = bytes_of(arguments);
    assert_true(usual > 0);
    assert_true(priced > usual);
}

static void test_program_priced(void **state)
{
    static char usual[CLI_OUTPUT];
    static const char block[] =
        "bench block --layers 1 --hidden 64 --heads 4 --ffn 256 --seq 4 --batch 2 --mesh X=4,Y=1 "
        "--rules gspmd-2d --program";
    assert_int_equal(cli_run(usual, "%s", block), 0);
    assert_int_equal(cli_run(out, "%s --hardware {d}/slow.json", block), 0);
    assert_string_not_equal(out, usual);
}

/* What comes of it does not hang on the machine. */
static void test_same_results(void **state)
{
    static char usual[CLI_OUTPUT];
    static const char text[] = "generate -m {d}/usual -p This -n 8 --temp 0 --mesh X=2,Y=2 --rules gspmd-2d";
    assert_int_equal(cli_run(usual, "%s 2>{d}/stderr", text), 0);
    assert_int_equal(cli_run(out, "%s --hardware {d}/slow.json 2>{d}/stderr", text), 0);
    assert_string_equal(out, usual);
    cli_expect(0, "none", "verify -m {g}/llama --mesh X=2,Y=2 --rules gspmd-2d --seq 4 --hardware {d}/slow.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_every_command),
                                       cmocka_unit_test(test_priced), cmocka_unit_test(test_program_priced),
                                       cmocka_unit_test(test_same_results)};
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
