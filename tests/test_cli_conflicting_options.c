/* test_cli_conflicting_options.c - an option that another one leaves without effect is refused by name, not passed
 * over; also when it is given the value that it would have anyway. */
#include <stdio.h>
#include <string.h>

#include "cli_run.h"
#include "unit_test.h"

static char out[CLI_OUTPUT];

static void test_refused(void **state)
{
    static const struct {
        const char *arguments, *option, *other;
    } cases[] = {
        {"bench block -tp 1 --mesh model=2 --program", "-tp", "--mesh"},
        {"bench block --mesh model=2 --rules megatron --sp --program", "--sp", "--rules"},
        {"bench block --program --iterations 7", "--iterations", "--program"},
        {"bench block --program -t 1", "-t", "--program"},
        {"bench block --program --json", "--json", "--program"},
        {"explain --block ffn --mesh model=2 --dot --most 8", "--most", "--dot"},
        {"explain --block ffn --mesh model=2 --json --dot", "--json", "--dot"},
        {"plan --block ffn --mesh model=2 --show up --json", "--json", "--show"},
        {"plan --block ffn --mesh model=2 --show up --hardware tpu-v2-8", "--hardware", "--show"},
        {"tokenize -m {g}/tokenizer --decode --json", "--json", "--decode"},
        {"tokenize -m {g}/tokenizer --decode --no-special", "--no-special", "--decode"},
        {"info -m {g}/llama --tensors --degrees 16", "--degrees", "--tensors"},
        {"generate -m {g}/llama -p x -b 8", "-b", "-p"},
        {"score -m {g}/llama --input {g}/scores/text.txt --csv --json", "--csv", "--json"},
        {"verify -m {g}/llama --tp 1 --mesh model=2", "--tp", "--mesh"},
        {"verify -m {g}/llama --against f --batch 2", "--batch", "--against"},
        {"verify -m {g}/llama --against f --seq 16", "--seq", "--against"},
        {"verify -m {g}/llama --against f --seed 1", "--seed", "--against"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[128];
        snprintf(message, sizeof message, "%s cannot be combined with %s", cases[i].option, cases[i].other);
        cli_expect(2, message, "%s", cases[i].arguments);
    }
}

/* Whether it has an effect can hang on the model. */
static void test_refused_by_model(void **state)
{
    static const char sp[] = "a sequence that is generated stays whole";
    cli_expect(2, "--ctx-size: for windows", "score -m {g}/esm --input {g}/scores/proteins.fasta -c 8");
    cli_expect(2, "--stride: for windows", "score -m {g}/esm --input {g}/scores/proteins.fasta --stride 8");
    cli_expect(2, "a protein is scored whole",
               "score -m {g}/esm --input {g}/scores/wild.fasta --mutations A4G --ctx-size 8");
    cli_expect(2, sp, "plan -m {g}/llama --seq 16 --decode -tp 2 --sp");
    cli_expect(2, sp, "plan -m {g}/llama --seq 16 --prefill -tp 2 --sp");
    cli_expect(0, "", "plan -m {g}/esm --prefill -tp 2 --sp --seq 16");
    cli_expect(2, "unknown option '--sp'", "generate -m {g}/llama -p x -tp 2 --sp");
    cli_expect(2, "unknown option '--sp'", "bench generate -m {g}/llama -tp 2 --sp");
}

static void test_help(void **state)
{
    assert_int_equal(cli_run(out, "explain --help all"), 0);
    assert_non_null(strstr(out, "print JSON; conflicts with --dot\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_by_model),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
