/* test_cli_plan_search.c - cleave plan --search: its table, what it refuses, and the file that other commands read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_run.h"

/* The mesh, microbatches and recomputation of a plan by the saved file. */
#define PLANNED(options)                                                                                               \
    "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/best.json " options " --json | python3 -c 'import json, sys; "   \
    "p = json.load(sys.stdin)[\"plan\"]; print(p[\"mesh\"], p.get(\"accumulate\", \"null\"), p.get(\"recompute\", "    \
    "\"null\"))'"
#define SEARCH "plan -m {g}/llama --search --batch 8 --seq 16 "

/* Of a line of UTF-8. */
static int columns_of(const char *line)
{
    int n = 0;
    for (; *line && *line != '\n'; line++)
        n += (*line & 0xc0) != 0x80;
    return n;
}

/* Lines fit 80 columns; the last one says what does not run. */
static void test_table(void **state)
{
    (void)state;
    char out[CLI_OUTPUT];
    assert_int_equal(
        cli_run(out, SEARCH "--devices 4 --hardware h100-nvlink-ib --software pytorch-flash1 --cost 2.5/h"), 0);
    for (const char *line = out; *line; line += strcspn(line, "\n"), line += *line == '\n')
        assert_true(columns_of(line) <= 80);
    assert_non_null(strstr(out, "devices 4"));
    assert_non_null(strstr(out, "cost_per_1e9"));
    assert_non_null(strstr(out, " slower: "));
    const char *last = "runs  estimated: not priced by its program; --runnable leaves these out\n";
    assert_string_equal(out + strlen(out) - strlen(last), last);
    assert_int_equal(cli_run(out, SEARCH "--devices 4 --hardware h100-nvlink-ib --runnable"), 0);
    assert_null(strstr(out, "runs"));
    assert_non_null(strstr(out, "pipe="));
    /* what is saved of stages that run is what was listed */
    assert_int_equal(cli_run(out, SEARCH "--mesh pipe=2,data=2 --schedule zero-bubble --hardware h100-nvlink-ib "
                                         "--save {d}/stages.json --json > {d}/listed.json"),
                     0);
    cli_expect(
        0, "True\n",
        "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/stages.json --hardware h100-nvlink-ib --json | python3 "
        "-c 'import json, sys; p = json.load(sys.stdin); c = json.load(open(\"{d}/listed.json\"))[\"ranked\"][0]; "
        "print(c[\"can_run\"] and c[\"bubble_share\"] > 0 and c[\"memory\"] == p[\"memory\"][\"total\"] and "
        "abs(c[\"seconds\"] / p[\"predicted\"][\"seconds\"] - 1) < 1e-9)'");
    cli_expect(0, "{True}\n",
               SEARCH "--devices 2 --runnable --json | python3 -c 'import json, sys; "
                      "print({c[\"can_run\"] for c in json.load(sys.stdin)[\"ranked\"]})'");
    cli_expect(0, "\"devices\": 4", SEARCH "--inventory '2 hosts x 2' --hardware h100-nvlink-ib --json");
    cli_expect(0, "\"batch\": ", "plan -m {g}/llama --search --devices 2 --decode --seq 16 --latency-limit 0.1 --json");
    cli_expect(0, "--batch ", "plan -m {g}/llama --search --devices 2 --decode --seq 16 --latency-limit 0.1");
    cli_expect(0, "megatron-sp", SEARCH "--mesh model=2 --sp");
    /* a list that is cut says so */
    assert_int_equal(cli_run(out, SEARCH "--devices 2 --most 2 --hardware h100-nvlink-ib"), 0);
    assert_non_null(strstr(out, "\nmore  --most N lists more layouts than these\n"));
    cli_expect(0, "2\n",
               SEARCH "--devices 2 --most 2 --runnable --json | python3 -c 'import json, sys; "
                      "print(len(json.load(sys.stdin)[\"ranked\"]))'");
    assert_int_equal(cli_run(out, SEARCH "--devices 2 --most 999 --hardware h100-nvlink-ib"), 0);
    assert_null(strstr(out, "\nmore "));
    cli_expect(2, "--most has no effect without --search", "plan -m {g}/llama --most 4");
}

/* Every TP degree with and without SP, and DP, ZeRO-1 and FSDP beside it; and the textbook's equations. */
static void test_matrix(void **state)
{
    (void)state;
    cli_expect(0,
               "1  DP 1  ZeRO-1 1  FSDP 2  DP 2  ZeRO-1 2 SP DP 2 SP ZeRO-1 2 SP FSDP 4  DP 4 SP DP [1, 2, 4] fastest",
               "plan -m {g}/llama --matrix --devices 4 --batch 8 --seq 16 --json | python3 -c 'import json, sys; "
               "p = json.load(sys.stdin); c = p[\"cells\"]; "
               "print(*(\"%%d %%s %%s\" %% (x[\"tp\"], x[\"sp\"], x[\"data\"]) for x in c), "
               "[e[\"tp\"] for e in p[\"equations\"]], min(c, key=lambda x: x[\"seconds\"])[\"why\"][-7:])'");
    /* 16 bytes a parameter, and a parameter's four copies over the data axis */
    cli_expect(0, "True True True",
               "plan -m {g}/llama --matrix --devices 4 --batch 8 --seq 16 --json | python3 -c 'import json, sys; "
               "e = json.load(sys.stdin)[\"equations\"]; print(e[0][\"state_dp\"] == 4 * e[2][\"state_dp\"], "
               "e[0][\"state_fsdp\"] * 4 == e[0][\"state_dp\"], e[2][\"layer_sp\"] * 4 == e[0][\"layer_tp\"])'");
    cli_expect(0, "TP spans hosts",
               "plan -m {g}/llama --matrix --seq 16 --inventory '2 hosts x 2' --hardware h100-nvlink-ib");
    /* the options of a cell, by name and as of the command line */
    cli_expect(0, "['all'] none",
               "plan -m {g}/llama --matrix --devices 4 --batch 8 --seq 16 --reshard-after-forward --json | python3 -c "
               "'import json, sys; c = json.load(sys.stdin)[\"cells\"]; "
               "print(sorted({x[\"reshard_after_forward\"] for x in c}), c[0][\"recompute\"])'");
    cli_expect(0, "--keep-gathered", "plan -m {g}/llama --matrix --devices 4 --batch 8 --seq 16 --keep-gathered");
    cli_expect(0, "\nthe textbook's equations, in 16 bits: ", "plan -m {g}/llama --matrix --devices 4 --seq 16");
    cli_expect(1, " KiB too much\n", "plan -m {g}/llama --matrix --devices 2 --seq 16 --memory-limit 1K");
    cli_expect(2, "--matrix needs --devices N", "plan -m {g}/llama --matrix");
    cli_expect(2, "--matrix", "plan --block gpt --matrix --devices 4");
}

static void test_refused(void **state)
{
    (void)state;
    cli_expect(2, "--devices has no effect without --search", "plan -m {g}/llama --devices 4");
    cli_expect(2, "--save has no effect without --search", "plan -m {g}/llama --save {d}/x.json");
    cli_expect(2, "--search needs --devices N, --inventory \"8 hosts x 8\" or --mesh AXES", SEARCH);
    static const char *const wrong[] = {"8", "2 x 2 x 2", "2 hosts x 2, 3 hosts x 4", "2 hosts x 8 A100 40 GB",
                                        "0 x 8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cli_expect(2, "; valid: hosts that are alike, and the devices of each", SEARCH "--inventory '%s'", wrong[i]);
    cli_expect(2, "--cost free; valid: the price of a device's hour", SEARCH "--devices 2 --cost free");
    cli_expect(2, "nothing fits 1.0 KiB a rank on 2 devices; the least is ", SEARCH "--devices 2 --memory-limit 1K");
    cli_expect(2, "no candidate takes at most 1e-09 s in 1.0 GiB; the least is ",
               "plan -m {g}/llama --search --devices 2 --decode --seq 16 --latency-limit 1e-9 --memory-limit 1G");
    cli_expect(2, "--all cannot be combined with --search", SEARCH "--devices 2 --all");
    cli_expect(2, "--collectives cannot be combined with --search", SEARCH "--devices 2 --collectives");
    cli_shell("echo '{\"rules\": []}' > {d}/rules.json");
    cli_expect(2, "/rules.json'; a search takes a preset, not a file; valid: dp, ",
               SEARCH "--devices 2 --rules {d}/rules.json");
    cli_shell("echo '{\"rules\": [], \"reshard_after_forward\": true}' > {d}/bool.json");
    cli_expect(2, "\"reshard_after_forward\" is no text; valid: \"weights\", \"all\", \"none\"",
               "plan -m {g}/llama --rules {d}/bool.json");
    cli_expect(2, "no preset is called 'best'", SEARCH "--devices 2 --rules best");
    cli_expect(2, "--rules auto finds rules for one mesh", SEARCH "--devices 2 --rules auto");
    cli_expect(2, "latency_limit is for prefill and decode", SEARCH "--devices 2 --latency-limit 1");
}

/* The mesh, rules and options of the first; an option of the command line goes first. */
static void test_saved(void **state)
{
    char out[CLI_OUTPUT];
    (void)state;
    cli_expect(0, "",
               SEARCH "--mesh data=2,model=2 --rules fsdp+megatron-sp --accumulate 2 --recompute full "
                      "--save {d}/best.json");
    cli_expect(0, "data=2,model=2 2 full", PLANNED(""));
    cli_expect(0, "data=2,model=2 4 full", PLANNED("--accumulate 4"));
    cli_expect(0, "data=1,model=2 2 full", PLANNED("--mesh data=1,model=2"));
    cli_expect(0, "data=2,model=2 null null", PLANNED("--decode"));
    cli_expect(0, "data=2,model=2 null null", PLANNED("--accumulate 1 --recompute none")); /* defaults, too */
    cli_shell("sed 's/\"weights\"\\|\"none\"$/\"all\"/' {d}/best.json > {d}/all.json");
    cli_expect(0, "reshard_after_forward all", "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/all.json");
    assert_int_equal(cli_run(out, "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/all.json --reshard-weights"), 0);
    assert_null(strstr(out, "reshard_after_forward"));
    cli_expect(2, "the mesh has no axis 'data'", "plan -m {g}/llama --seq 16 -tp 2 --rules {d}/best.json");
    /* train: accumulate 2 does not divide a batch of 3 */
    cli_shell("yes the quick brown fox | head -n 50 > {d}/text");
    cli_expect(2, "--accumulate 2 does not divide --batch 3",
               "train --text {d}/text --hidden 16 --layers 1 --heads 2 --seq 8 --batch 3 --steps 1 "
               "--rules {d}/best.json --out {d}/run");
    cli_expect(0, "over 4 ranks",
               "train --text {d}/text --hidden 16 --layers 1 --heads 2 --seq 8 --batch 3 --steps 1 --accumulate 1 "
               "--rules {d}/best.json --out {d}/whole");
    cli_expect(0, "over 4 ranks",
               "train --text {d}/text --hidden 16 --layers 1 --heads 2 --seq 8 --batch 4 --steps 1 "
               "--rules {d}/best.json --out {d}/run");
    cli_expect(0, "", "generate -m {d}/run --rules {d}/best.json -p the -n 1 2>{d}/warning");
    cli_shell("grep -q '4 ranks share' {d}/warning || [ $(nproc) -ge 4 ]");
}

/* The hosts of --inventory are those of `plan`, too, and of what is saved. */
static void test_inventory(void **state)
{
    static const char layout[] = "plan -m {g}/llama --batch 8 --seq 16 --mesh data=2,model=4 --rules fsdp+megatron-sp "
                                 "--keep-gathered --hardware h100-nvlink-ib %s --json | python3 -c 'import json, sys; "
                                 "print(json.load(sys.stdin)[\"predicted\"][\"seconds\"])'";
    char on_two[CLI_OUTPUT], on_one[CLI_OUTPUT], saved[CLI_OUTPUT], found[CLI_OUTPUT];
    (void)state;
    assert_int_equal(cli_run(on_one, layout, ""), 0);
    assert_int_equal(cli_run(on_two, layout, "--inventory '2 hosts x 4'"), 0);
    assert_true(atof(on_two) > 1.01 * atof(on_one));
    assert_int_equal(cli_run(found,
                             "plan -m {g}/llama --batch 8 --seq 16 --mesh data=2,model=4 --rules "
                             "fsdp+megatron-sp --keep-gathered --hardware h100-nvlink-ib --search --accumulate 1 "
                             "--recompute none --inventory '2 hosts x 4' --save {d}/hosts.json --json | python3 "
                             "-c 'import json, sys; print(json.load(sys.stdin)[\"ranked\"][0][\"seconds\"])'"),
                     0);
    assert_string_equal(found, on_two);
    assert_int_equal(cli_run(saved, "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/hosts.json --hardware "
                                    "h100-nvlink-ib --json | python3 -c 'import json, sys; "
                                    "print(json.load(sys.stdin)[\"predicted\"][\"seconds\"])'"),
                     0);
    assert_string_equal(saved, on_two);
    /* rules are found for these hosts, too: by the seconds that they are found with, they are planned */
    cli_expect(0, "True\n",
               "plan -m {g}/llama --batch 8 --seq 16 --mesh data=2,model=4 --rules auto --hardware h100-nvlink-ib "
               "--inventory '2 hosts x 4' --json | python3 -c 'import json, sys; p = json.load(sys.stdin); "
               "print(p[\"found\"][\"preset_seconds\"] > p[\"predicted\"][\"seconds\"] * 0.999)'");
    cli_expect(2, "16 devices on 2 hosts of 4; valid: at most 8 devices",
               "plan -m {g}/llama --mesh data=4,model=4 --seq 16 --batch 8 --hardware h100-nvlink-ib --inventory 2x4");
}

/* Figures of no machine are said to be so. What was found is printed though it cannot be saved. */
static void test_notes(void **state)
{
    char out[CLI_OUTPUT];
    (void)state;
    cli_expect(0, "\nnote  on the default machine: only ratios mean something;", SEARCH "--devices 2");
    cli_expect(0, "\nnote  on the default machine: only ratios mean something;",
               "plan -m {g}/llama --matrix --seq 16 --devices 2");
    assert_int_equal(cli_run(out, SEARCH "--devices 2 --hardware h200"), 0);
    assert_null(strstr(out, "only ratios"));
    cli_shell("touch {d}/there.json");
    cli_expect(0, "/there.json is replaced", SEARCH "--devices 2 --save {d}/there.json");
    /* what other commands can use is saved: the best that runs */
    cli_expect(0, "has the best that runs",
               SEARCH "--devices 4 --hardware h100-nvlink-ib --software pytorch-flash1 --save {d}/runs.json");
    cli_expect(0, "rules", "plan -m {g}/llama --batch 8 --seq 16 --rules {d}/runs.json");
    cli_expect(1, "nothing that fits runs",
               SEARCH "--mesh pipe=2,data=2 --hardware h100-nvlink-ib --software pytorch-flash1 --save {d}/none.json");
    cli_shell("ln -s /dev/full {d}/full.json");
    assert_int_equal(cli_run(out, SEARCH "--devices 2 --save {d}/full.json"), 1);
    assert_non_null(strstr(out, "\nmesh "));
}

/* What is given is not searched, though it is the default. */
static void test_kept(void **state)
{
    (void)state;
    static const char *const given[][3] = {{"recompute", "--recompute none", "none"},
                                           {"accumulate", "--accumulate 1", "1"},
                                           {"reshard_after_forward", "--reshard-weights", "weights"}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char want[64];
        snprintf(want, sizeof want, "{'%s'}\n", given[i][2]);
        cli_expect(0, want,
                   SEARCH "--devices 2 %s --json | python3 -c 'import json, sys; "
                          "print({str(c[\"%s\"]) for c in json.load(sys.stdin)[\"front\"]})'",
                   given[i][1], given[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),   cmocka_unit_test(test_matrix),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_saved),
                                       cmocka_unit_test(test_kept),    cmocka_unit_test(test_inventory),
                                       cmocka_unit_test(test_notes)};
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
