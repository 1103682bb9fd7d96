/* test_cli_plan_screen.c - the first screen of cleave plan: 80 x 24, its bars, its figures against those of --json, and
 * what to change first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli_run.h"

#define LLAMA_70B "-m %s/data/configs/llama-3-70b.json --mesh data=8,model=8 --batch 64 --seq 4096 --dtype bf16 "

static char out[CLI_OUTPUT];

static const char *root(void)
{
    const char *path = getenv("CLV_SOURCE_DIR");
    assert_non_null(path);
    return path;
}

static int write_gpt2(void **state)
{
    (void)state;
    setenv("COLUMNS", "80", 1);
    cli_shell("mkdir {d}/gpt2 && echo '{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": 12, \"n_head\": 12, "
              "\"n_positions\": 1024, \"vocab_size\": 50257, \"layer_norm_epsilon\": 1e-5, "
              "\"activation_function\": \"gelu_new\"}' >{d}/gpt2/config.json");
    return 0;
}

static json_t *plan(const char *arguments)
{
    char path[512];
    assert_int_equal(cli_run(out, "plan %s --json 2>{d}/said >{d}/plan.json", arguments) & ~1, 0);
    snprintf(path, sizeof path, "%s/plan.json", cli_folder());
    json_t *document = json_load_file(path, 0, NULL);
    assert_non_null(document);
    return document;
}

static double number(json_t *document, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(document, object), key));
}

/* ---- 80 x 24 ---- */

/* The share of a row, "  TP reductions  838 ms  16.3 %"; -1: it is none. */
static double share_of(const char *line)
{
    const char *percent = strstr(line, " %");
    if (strncmp(line, "  ", 2) != 0 || !percent)
        return -1;
    while (percent > line && percent[-1] != ' ')
        percent--;
    return strtod(percent, NULL);
}

/* Shares of the rows from this title to the next empty line. */
static double sum_of_shares(const char *text, const char *title)
{
    double sum = 0;
    const char *line = strstr(text, title);
    assert_non_null(line);
    for (line = strchr(line + 1, '\n') + 1; *line && *line != '\n'; line = strchr(line, '\n') + 1) {
        assert_true(share_of(line) >= 0);
        sum += share_of(line);
    }
    return sum;
}

/* Columns of a line whose characters take one each. */
static int columns_of(const char *line)
{
    int n = 0;
    for (; *line; line++)
        n += ((unsigned char)*line & 0xc0) != 0x80;
    return n;
}

static const char *const plans[] = {
    "-m {d}/gpt2",
    "-m {d}/gpt2 --mesh data=2,model=4 --rules fsdp+megatron-sp --batch 64 --seq 1024 --hardware a100-80gb",
    LLAMA_70B "--hardware h100-nvlink-ib",
    LLAMA_70B "--rules fsdp+megatron-sp --reshard-after-forward --recompute full --hardware h100-nvlink-ib",
    LLAMA_70B "--rules fsdp+megatron-sp --overlap --hardware h200 --memory-limit 1GiB --comm-dtype bf16",
    LLAMA_70B "--decode --quant q4 --hardware gb200-nvl72",
    "--block gpt -tp 4",
    "--block llama --mesh X=2,Y=4 --rules gspmd-2d --grad --hidden 4096 --heads 32 --seq 2048 --hardware tpu-v4",
    "--block ffn --memory-limit 1K",
    "--block attention --hardware cpu-10gbe"};

static void test_fits_a_terminal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, plans[i], root());
        assert_int_equal(cli_run(out, "plan %s 2>{d}/said", arguments) & ~1, 0);
        int lines = 0;
        assert_true(fabs(sum_of_shares(out, "\ntime  ") - 100) < 1);
        sum_of_shares(out, "\nmemory  ");
        assert_non_null(strstr(out, "\nchange first "));
        assert_non_null(strstr(out, "--collectives"));
        for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n"), lines++)
            if (columns_of(line) > 80)
                fail_msg("plan %s: %s", arguments, line);
        lines += 3; /* empty ones */
        if (lines > 23)
            fail_msg("plan %s: %d lines", arguments, lines);
    }
}

/* Without UTF-8 bars are ASCII, a row's bar begins where that of the row before ends, and the limit is a column. */
static void test_bars(void **state)
{
    (void)state;
    setenv("LC_ALL", "C", 1);
    assert_int_equal(cli_run(out, "plan --block gpt --hidden 4096 --heads 32 --mesh data=2,model=4 --grad --seq 4096 "
                                  "--memory-limit 2GiB 2>{d}/said"),
                     1);
    unsetenv("LC_ALL");
    size_t mark = 0, end = 0;
    const char *line = strstr(out, "\nmemory  ");
    assert_non_null(line);
    for (line = strchr(line + 1, '\n') + 1; *line != '\n'; line = strchr(line, '\n') + 1) {
        size_t n = strcspn(line, "\n"), begin = strcspn(line, "#:\n"), limit = strcspn(line, "|\n");
        for (size_t i = 0; i < n; i++)
            assert_true((unsigned char)line[i] < 0x80);
        assert_true(end == 0 || begin == end || line[begin] == ':');
        assert_true(mark == 0 || limit == mark || limit == n);
        end = begin + strspn(line + begin, "#");
        mark = limit < n ? limit : mark;
    }
    assert_true(mark > 0 && mark < end && end >= 77 && end < 80);
}

/* ---- figures ---- */

static double sum_of(json_t *object)
{
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) sum += json_number_value(value);
    return sum;
}

/* Purposes add up to the collectives, and with the ops to the time; an attention block has no other ops. */
static void test_purposes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, plans[i], root());
        if (strstr(arguments, "70b"))
            continue; /* of 80 layers, with all their collectives */
        json_t *d = plan(arguments), *row;
        double seconds = sum_of(json_object_get(d, "ops_seconds")), bytes = 0;
        size_t k, n = 0;
        json_array_foreach(json_object_get(d, "purposes"), k, row)
        {
            seconds += json_number_value(json_object_get(row, "seconds"));
            bytes += json_number_value(json_object_get(row, "bytes"));
            n += (size_t)json_integer_value(json_object_get(row, "collectives"));
        }
        assert_int_equal(n, json_array_size(json_object_get(d, "collectives")));
        assert_true(fabs(bytes - json_number_value(json_object_get(d, "bytes"))) <= 1e-9 * bytes);
        assert_true(fabs(seconds / number(d, "predicted", "seconds") - 1) < 1e-6);
        if (strstr(arguments, "--block attention"))
            assert_true(number(d, "ops_seconds", "attention") > 0 && number(d, "ops_seconds", "rest") == 0);
        json_decref(d);
    }
}

/* ---- what to change first ---- */

/* The option after "change first", and the figure behind it. */
static void read_change(char option[256], char figure[64])
{
    const char *line = strstr(out, "\nchange first ");
    assert_non_null(line);
    if (sscanf(line, "\nchange first %255[^:]: %63[^,]", option, figure) != 2)
        fail_msg("%s", line);
}

static void test_changes(void **state)
{
    static const char dp[] =
        "--block gpt --hidden 2048 --heads 16 --batch 64 --seq 512 --grad --hardware h100-nvlink-ib "
        "--rules fsdp+megatron-sp --mesh ";
    char option[256], figure[64], arguments[512];
    (void)state;
    /* what fits, with its memory */
    assert_int_equal(cli_run(out, "plan --block gpt --hidden 4096 --heads 32 --mesh data=2,model=4 --grad --seq 4096 "
                                  "--memory-limit 2GiB 2>{d}/said"),
                     1);
    assert_non_null(strstr(out, ": does not fit, 771.0 MiB too much\n"));
    assert_non_null(strstr(out, "\nchange first --dtype bf16: 1.4 GiB a rank, fits\n"
                                "             --batch 4: 1.5 GiB a rank, fits\n"));
    /* more ranks only where nothing else suffices */
    assert_int_equal(cli_run(out, "plan --block gpt --hidden 4096 --heads 32 --mesh data=2,model=4 --grad --seq 4096 "
                                  "--memory-limit 1.5GiB --dtype bf16 --batch 16 2>{d}/said"),
                     1);
    assert_non_null(strstr(out, "\nchange first --batch 8: 1.4 GiB a rank, fits\n"
                                "             --mesh data=4,model=4: 1.4 GiB a rank of 16, fits\n"));
    /* several options, where none suffices alone: the memory and the time are those of the plan with them */
    static const char several[] = "--accumulate 8 --recompute selective";
    static const char tiny[] = "plan -m {g}/llama --batch 32 --seq 16 --mesh data=2 --rules fsdp --hardware "
                               "h100-nvlink-ib --memory-limit 400K %s 2>{d}/said";
    assert_int_equal(cli_run(out, tiny, ""), 1);
    read_change(option, figure);
    assert_string_equal(option, several);
    const char *fits = strstr(out, "a rank, fits, ");
    char seconds[64] = "";
    assert_non_null(fits);
    assert_int_equal(sscanf(fits, "a rank, fits, %63s", seconds), 1);
    assert_int_equal(cli_run(out, tiny, several), 0);
    figure[strcspn(figure, " ")] = '\0';
    assert_non_null(strstr(out, figure));
    assert_non_null(strstr(strstr(out, "\ntime "), seconds));
    /* what comes closest, where nothing fits */
    assert_int_equal(cli_run(out, "plan -m {g}/llama --seq 16 --memory-limit 1K 2>{d}/said"), 1);
    assert_non_null(strstr(out, ", does not fit either\n             --search --devices 1, which combines options\n"));
    /* the order of axes: the time is that of the plan with it */
    assert_int_equal(cli_run(out, "plan %smodel=8,data=2", dp), 0);
    read_change(option, figure);
    assert_string_equal(option, "--mesh data=2,model=8");
    assert_int_equal(cli_run(out, "plan %sdata=2,model=8", dp), 0);
    assert_non_null(strstr(out, figure));
    /* overlap: likewise */
    read_change(option, figure);
    assert_string_equal(option, "--overlap");
    assert_int_equal(cli_run(out, "plan %sdata=2,model=8 --overlap", dp), 0);
    assert_non_null(strstr(out, figure));
    assert_null(strstr(out, "change first --overlap"));
    /* no order that does not fit */
    static const char eight_b[] =
        "plan -m %s/data/configs/llama-3-8b.json --batch 8 --seq 1024 --dtype bf16 --hardware "
        "cpu-10gbe --mesh data=4,model=2 --rules fsdp+megatron-sp %s";
    cli_expect(0, "change first --mesh model=2,data=4: ", eight_b, root(), "--memory-limit 20GiB");
    assert_int_equal(cli_run(out, eight_b, root(), "--memory-limit 18.6GiB"), 0);
    assert_null(strstr(out, "--mesh model=2,data=4"));
    /* nothing, or the machine */
    cli_expect(0, "\nchange first nothing: it fits, and 100.0 % of the time is ops\n",
               "plan -m {d}/gpt2 --hardware h200");
    cli_expect(0, "\nchange first --hardware NAME, ", "plan -m {d}/gpt2");
    snprintf(arguments, sizeof arguments, "%sdata=2,model=8", dp);
    json_t *d = plan(arguments), *first = json_object_get(d, "change_first");
    assert_null(json_object_get(json_object_get(d, "predicted"), "faster_by"));
    assert_string_equal(json_string_value(json_array_get(first, 0)), "--overlap");
    json_decref(d);
}

/* ---- the step ---- */

/* Options that are not at their defaults, each with its value. */
static void test_step(void **state)
{
    static const char tiny[] = "plan -m {g}/llama --mesh data=2 --rules fsdp --batch 4 --seq 16 ";
    (void)state;
    cli_expect(0, "f32, reshard_after_forward none\n", "%s--keep-gathered", tiny);
    cli_expect(0, "f32, reshard_after_forward all\n", "%s--reshard-after-forward", tiny);
    cli_expect(0, "f32, accumulate 2, no_sync, comm_dtype bf16,\n  recompute full, overlap\n",
               "%s--accumulate 2 --no-sync --comm-dtype bf16 --recompute full --overlap", tiny);
}

/* How sure: by runs that are alike, which are counted; few ones are said to be few. */
static void test_published(void **state)
{
    static const char gpt2[] = "plan -m {d}/gpt2 --dtype bf16 --hardware h100-nvlink-ib --software pytorch-flash1 ";
    (void)state;
    cli_expect(0, "software pytorch-flash1: nine in ten of 16 published runs, by fsdp, within 6 %\n", "%s", gpt2);
    cli_expect(0, "software pytorch-flash1\n", "%s--decode", gpt2);
    cli_expect(0, "software pytorch-flash1\n", "%s--prefill", gpt2);
    cli_expect(0, "software pytorch-flash1\n",
               "plan -m {d}/gpt2 --dtype f32 --hardware h100-nvlink-ib --software pytorch-flash1");
    cli_expect(0, "software torchtitan-float8: only 1 published run, by fsdp, within 7 %\n",
               "plan -m {d}/gpt2 --dtype bf16 --hardware h200 --software torchtitan-float8");
    cli_expect(0, "\"software\": \"pytorch-flash1\", \"published_runs\": 16, \"published_rules\": \"fsdp\"", "%s--json",
               gpt2);
    cli_expect(0, "  published_error     6.00 %\n", "%s--all", gpt2);
}

/* Bytes of collectives stay apart from the share; ranks without a sequence, and a shared device, are named. */
static void test_notes(void **state)
{
    char arguments[512];
    (void)state;
    snprintf(arguments, sizeof arguments,
             LLAMA_70B "--rules fsdp+megatron-sp --accumulate 8 --recompute full "
                       "--reshard-after-forward --hardware h100-nvlink-ib",
             root());
    assert_int_equal(cli_run(out, "plan %s 2>{d}/said", arguments), 0);
    const char *row = strstr(out, "\n  SP gathers and scatters ");
    assert_non_null(row);
    row = strchr(row, '%');
    assert_true(strncmp(row, "%  ", 3) == 0);
    assert_non_null(strstr(row, " in "));
    cli_expect(0, "note: of 4 ranks that split the batch 1 have no sequence; valid for all: --batch 4 or more",
               "plan -m {g}/llama --seq 16 --batch 3 --mesh data=4 --rules dp");
    cli_expect(0, "note: of 4 ranks that split the batch 2 have no sequence; valid for all: --batch 8 or more",
               "plan -m {g}/llama --seq 16 --batch 4 --accumulate 2 --mesh data=4 --rules dp --json");
    assert_int_equal(cli_run(out, "plan -m {g}/mixtral --seq 8 --batch 4 --mesh data=2,expert=2 --rules fsdp"), 0);
    assert_null(strstr(out, "no sequence"));
    assert_int_equal(cli_run(out, "plan -m {g}/llama --seq 16 --batch 4 --mesh data=4 --rules dp"), 0);
    assert_null(strstr(out, "note: "));
    cli_shell("sed 's/\"hosts\": 0/\"hosts\": 1/' %s/data/profiles/h100-nvlink-ib.json > {d}/one_host.json", root());
    cli_expect(0, " of 39.8 GiB (2 ranks on a device): fits",
               "plan -m {g}/llama --seq 16 --batch 16 --mesh data=16 --rules dp --hardware {d}/one_host.json");
}

/* ---- the rest of the output ---- */

static void test_flags(void **state)
{
    (void)state;
    cli_expect(0, "\npurpose       collectives  ", "plan --block gpt -tp 2 --collectives");
    cli_expect(0, "the residual stream is stated as whole on every rank",
               "plan --block gpt -tp 2 --collectives --wide");
    assert_int_equal(cli_run(out, "plan --block gpt -tp 2 --collectives"), 0);
    assert_null(strstr(out, "\nmemory\n"));
    cli_expect(0, "\nops_seconds\n  attention ", "plan --block gpt -tp 2 --all");
    cli_expect(0, "\nmemory\n  parameters ", "plan --block gpt -tp 2 --all");
    cli_expect(2, "--wide has no effect without --collectives or --all", "plan --block gpt -tp 2 --wide");
    cli_expect(2, "--collectives cannot be combined with --all", "plan --block gpt -tp 2 --all --collectives");
    cli_expect(2, "cannot be combined with", "plan --block gpt -tp 2 --all --show mlp.up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits_a_terminal), cmocka_unit_test(test_bars), cmocka_unit_test(test_purposes),
        cmocka_unit_test(test_changes),         cmocka_unit_test(test_step), cmocka_unit_test(test_published),
        cmocka_unit_test(test_notes),           cmocka_unit_test(test_flags)};
    return cmocka_run_group_tests(tests, write_gpt2, cli_remove_folder);
}
