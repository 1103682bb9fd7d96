/* test_locale.c - what is written and read has a point in its numbers, in programs whose locale has a comma, too. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/machine.h"
#include "cleave/text.h"
#include "cli_run.h"
#include "io/diagnostics/trace_file.h"
#include "io/json/json.h"
#include "must.h"
#include "unit_test.h"

static bool has_comma;

/* A locale of our own making, as machines seldom have another. */
static int set_up(void **state)
{
    char text[16];
    cli_shell("localedef -i de_DE -f UTF-8 {d}/de_DE.UTF-8 >{d}/said 2>&1 || true");
    setenv("LOCPATH", cli_folder(), 1);
    has_comma = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    snprintf(text, sizeof text, "%g", 1.5);
    has_comma = has_comma && strcmp(text, "1,5") == 0;
    if (!has_comma)
        print_message("localedef (Debian package locales) makes no locale with a comma here: skipped\n");
    return 0;
}

static void need_comma(void)
{
    if (!has_comma)
        skip();
}

static const char *in(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", cli_folder(), name);
    return path;
}

/* The program's own locale stays. */
static void check_own(void)
{
    char text[16];
    snprintf(text, sizeof text, "%g", 0.25);
    assert_string_equal(text, "0,25");
}

static void test_texts(void **state)
{
    char text[CLV_QUANTITY_TEXT];
    clv_error err = {0};
    json_t *json = NULL;
    need_comma();
    clv_print_bytes(text, sizeof text, 1536);
    assert_string_equal(text, "1.5 KiB");
    clv_print_seconds(text, sizeof text, 0.0125);
    assert_string_equal(text, "12.5 ms");
    clv_fail(&err, CLV_EINVAL, "%g is above %.2f", 0.5, 0.25);
    assert_string_equal(err.message, "0.5 is above 0.25");
    static const char reals[] = "[1.5, -2.5e-1, 1e400, 18446744073709551616]";
    must(clv_json_parse(&json, reals, sizeof reals - 1, CLV_JSON_KEYS_LAST_WINS, "text", &err), &err);
    assert_true(json_real_value(json_array_get(json, 0)) == 1.5 && json_real_value(json_array_get(json, 1)) == -0.25);
    assert_true(json_real_value(json_array_get(json, 3)) == 18446744073709551616.0);
    json_decref(json);
    check_own();
}

/* A profile that is written is the one that was read. */
static void test_machine_profile(void **state)
{
    clv_machine *machine, *again;
    clv_machine_info one = {.size = sizeof one}, two = {.size = sizeof two};
    clv_error err = {0};
    need_comma();
    must(clv_machine_open(&machine, "h100-nvlink-ib", NULL, &err), &err);
    must(clv_machine_write(machine, in("profile.json"), &err), &err);
    must(clv_machine_open(&again, in("profile.json"), NULL, &err), &err);
    must(clv_machine_get_info(machine, &one, &err), &err);
    must(clv_machine_get_info(again, &two, &err), &err);
    assert_true(one.efficiency == two.efficiency && one.efficiency > 0 && one.efficiency < 1);
    assert_true(one.host.alpha_s == two.host.alpha_s && one.host.alpha_s > 0);
    clv_machine_free(machine);
    clv_machine_free(again);
    check_own();
}

static void test_trace(void **state)
{
    clv_trace_op op = {.name = "a", .kind = "gemm", .axes = "", .layer = -1, .flops = 1234.5, .bytes = 0.5};
    clv_trace_program program = {1, &op};
    clv_trace_event events[] = {{100, 200, 0, 0, 0, -1, 0, CLV_TRACE_RUN},
                                {100, 150, 0, 0, 0, 0, 0, CLV_TRACE_INSTRUCTION}};
    clv_trace_content content = {.mesh = "x=1",
                                 .machine = "m",
                                 .ranks = 1,
                                 .seen = 1,
                                 .processes = 1,
                                 .process_of = &(int){0},
                                 .steps = 1,
                                 .predicted = {{0.25, 0.125}},
                                 .n_programs = 1,
                                 .programs = &program,
                                 .n = 2,
                                 .events = events};
    clv_trace_table table;
    clv_error err = {0};
    need_comma();
    must(clv_trace_file_write(&content, in("trace.json"), &err), &err);
    must(clv_trace_file_read(&table, in("trace.json"), &err), &err);
    assert_true(table.of[0].predicted.seconds == 0.25 && table.of[0].predicted.communication == 0.125);
    check_own();
}

/* Programs of the environment's locale, as the commands are: metrics, drawings, checkpoints and what is printed. */
static void test_commands(void **state)
{
    need_comma();
    cli_shell("seq 300 >{d}/text");
    static const char train[] = "train --text {d}/text --layers 1 --hidden 16 --heads 2 --seq 16 --batch 2 --lr 0.015";
    cli_expect(0, "", "%s --steps 4 --save-every 2 --plot {d}/p.svg --json --out {d}/run >{d}/summary 2>&1", train);
    cli_expect(0, "", "%s --steps 6 --resume --plot {d}/p.svg --out {d}/run", train);
    cli_shell(
        "grep -q '\"loss\":[0-9]*[.][0-9]' {d}/run/metrics.jsonl && grep -q '\"lr\":0[.]0' {d}/run/metrics.jsonl");
    cli_shell("! grep -E '\": ?-?[0-9]+,[0-9]' {d}/run/metrics.jsonl {d}/run/config.json {d}/summary");
    cli_shell("grep -q ' x=\"[0-9]*[.][0-9]' {d}/p.svg && ! grep -E ' (x|y|width)=\"[0-9]+,[0-9]' {d}/p.svg");
}

int main(void)
{
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_machine_profile),
                                       cmocka_unit_test(test_trace), cmocka_unit_test(test_commands)};
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
