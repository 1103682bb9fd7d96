/* test_cli_bench_search.c - cleave bench search: every candidate of plan --search is run, and listed with its times;
 * nothing here depends on how long they take. CLV_TEST_LAUNCHERS: as in test_cli_mpi.c; without it, one process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_run.h"
#include "unit_test.h"

#define SIZE  "--hidden 36 --heads 6 --ffn 50 --batch 4 --seq 10 "
#define BENCH "bench search --hardware {d}/host.json --iterations 2 "
#define PROFILE                                                                                                        \
    "{\"name\": \"host\", \"ranks_per_host\": %d, \"hosts\": 1, \"memory_bytes\": 1e9, \"flops_per_s\": "              \
    "{\"f32\": 1e11}, \"memory_bytes_per_s\": 1e10, \"efficiency\": 0.8, \"instruction_s\": 1e-6, "                    \
    "\"host\": {\"alpha_s\": 1e-6, \"bytes_per_s\": 5e9}}"

static void write_profile(int ranks)
{
    cli_shell("printf '" PROFILE "' > {d}/host.json", ranks);
}

/* Runs a command with --json, and prints what Python makes of `d`, its output. */
static void evaluate(char out[CLI_OUTPUT], const char *command, const char *python)
{
    int code = cli_run(out, "%s --json 2>/dev/null | python3 -c 'import json, sys; d = json.load(sys.stdin); %s'",
                       command, python);
    if (code != 0)
        fail_msg("%s: exit %d: %s", command, code, out);
}

/* Times are positive and sorted, and the summary is theirs. */
static void expect_consistent(const char *command)
{
    static char out[CLI_OUTPUT];
    evaluate(
        out, command,
        "c = d[\"candidates\"]; t = [x[\"measured\"] for x in c]; r = [x for x in c if x[\"recommended\"]]; "
        "n = sum(abs(x[\"predicted\"] / x[\"measured\"] - 1) <= 0.12 for x in c); "
        "print(t[0] > 0, t == sorted(t), all(x[\"median\"] >= x[\"measured\"] and x[\"predicted\"] > 0 for x in "
        "c), len(r) == 1, len(c) == d[\"measured_candidates\"], abs(d[\"within_12_percent\"] - n / len(c)) < 1e-9, "
        "abs(t[0] * (1 + d[\"recommended_over_fastest\"]) / r[0][\"measured\"] - 1) < 1e-6)");
    if (strcmp(out, "True True True True True True True\n") != 0)
        fail_msg("%s: %s", command, out);
}

static void test_consistent(void **state)
{
    write_profile(4);
    expect_consistent(BENCH "--block gpt --grad --devices 4 " SIZE);
    expect_consistent(BENCH "--block llama --dtype bf16 --devices 3 " SIZE);
    expect_consistent(BENCH "-m {g}/llama --batch 2 --seq 8 --devices 2 --recompute full");
    expect_consistent(BENCH "-m {g}/gpt2 --batch 2 --seq 8 --decode -tp 2");
}

/* The layouts are those of plan --search, and the first of that is the recommended one. */
static void test_same_as_plan(void **state)
{
    static const char ours[] = BENCH "--block gpt --grad --devices 4 " SIZE,
                      plan[] = "plan --block gpt --grad --search --devices 4 --hardware {d}/host.json " SIZE;
    static char ran[CLI_OUTPUT], planned[CLI_OUTPUT];
    write_profile(4);
    evaluate(ran, ours,
             "x = [x for x in d[\"candidates\"] if x[\"recommended\"]][0]; print(x[\"mesh\"], x[\"rules\"], "
             "x[\"recompute\"], x[\"reshard_after_forward\"], "
             "sorted(set((x[\"mesh\"], x[\"rules\"]) for x in d[\"candidates\"])))");
    evaluate(planned, plan,
             "x = d[\"ranked\"][0]; print(x[\"mesh\"], x[\"rules\"], x[\"recompute\"], x[\"reshard_after_forward\"], "
             "sorted(set((x[\"mesh\"], x[\"rules\"]) for x in d[\"ranked\"])))");
    assert_string_equal(ran, planned);
}

/* Recomputation and reshard_after_forward where they have an effect, microbatches of a training step; what is given is
 * kept. */
static void test_options(void **state)
{
    static char out[CLI_OUTPUT];
    write_profile(4);
    evaluate(out, BENCH "--block gpt --grad --mesh data=2,model=2 --rules fsdp+megatron-sp " SIZE,
             "c = d[\"candidates\"]; print(sorted(set(x[\"recompute\"] for x in c)), "
             "sorted(set(x[\"reshard_after_forward\"] for x in c)))");
    assert_string_equal(out, "['full', 'none', 'selective'] ['all', 'none', 'weights']\n");
    evaluate(out, BENCH "-m {g}/llama --batch 4 --seq 8 --mesh data=2 --rules dp --recompute full",
             "c = d[\"candidates\"]; print(sorted(set(x[\"recompute\"] for x in c)), "
             "sorted(set(x[\"accumulate\"] for x in c)))");
    assert_string_equal(out, "['full'] [1, 2]\n");
}

/* Of three ranks on two cores one waits for the core of two. */
static void test_oversubscribed(void **state)
{
    static const char command[] = BENCH "--block gpt --devices 3 " SIZE;
    static char three[CLI_OUTPUT], two[CLI_OUTPUT];
    write_profile(3);
    evaluate(three, command, "print([round(2e9 * x[\"predicted\"]) for x in d[\"candidates\"] if x[\"recommended\"]])");
    write_profile(2);
    evaluate(two, command, "print([round(1e9 * x[\"predicted\"]) for x in d[\"candidates\"] if x[\"recommended\"]])");
    assert_string_equal(three, two);
}

static void test_text(void **state)
{
    write_profile(2);
    cli_expect(0, "transport threads", BENCH "--block gpt --devices 2 " SIZE);
    cli_expect(0, "mpirun -n 4 cleave bench search", "bench search --help");
}

static void test_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"--block gpt --devices 64 " SIZE, "64 devices, a batch of 4 and 6 heads: each rank of the data axis needs"},
        {"--devices 2", "give either -m PATH or --block ffn|attention|gpt|llama"},
        {"--block gpt --devices 0", "--devices"},
        {"--block gpt --devices 2 --mesh data=2", "--mesh"},
        {"--block gpt --devices 2 --rules best", "no preset is called 'best'"},
        {"-m {d}/none --devices 2", "none"},
    };
    static char out[CLI_OUTPUT];
    write_profile(2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int code = cli_run(out, BENCH "%s", wrong[i][0]);
        if (code != 2 || !strstr(out, wrong[i][1]) || strchr(out, '\n') != out + strlen(out) - 1)
            fail_msg("%s: exit %d: %s", wrong[i][0], code, out);
    }
}

/* Two and four processes with four ranks. */
static void test_jobs(void **state)
{
    const char *all = getenv("CLV_TEST_LAUNCHERS");
    char launchers[1024], *rest = launchers;
    snprintf(launchers, sizeof launchers, "%s", all ? all : "");
    write_profile(4);
    for (const char *l = strtok_r(rest, "|", &rest); l; l = strtok_r(NULL, "|", &rest))
        for (int n = 2; n <= 4; n += 2) {
            static char out[CLI_OUTPUT];
            char line[600];
            snprintf(line, sizeof line, "%s -np %d", l, n);
            cli_start_by(line);
            expect_consistent(BENCH "--block gpt --grad --devices 4 " SIZE);
            evaluate(out, BENCH "--block gpt --devices 4 " SIZE, "print(d[\"search\"][\"transport\"])");
            assert_string_equal(out, "mpi\n");
        }
    cli_start_by(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consistent),     cmocka_unit_test(test_same_as_plan), cmocka_unit_test(test_options),
        cmocka_unit_test(test_oversubscribed), cmocka_unit_test(test_text),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
