/* test_cli.c - the command line as its users meet it: the built binary's output and exit codes, for every command
 * that `cleave --help` lists; and the option parser by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.c"
#include "cli/job/crash_report.c"
#include "cli/job/job_processes.c"
#include "cli/job/option_consistency.c"
#include "cli/output/exit_code.c"
#include "cli/output/messages.c"
#include "cli/output/progress.c"
#include "cli/output/table.c"
#include "cli/output/table_print.c"
#include "cli/output/table_text.c"
#include "cli/output/terminal.c"
#include "cli/output/word_wrap.c"
#include "cli/parser/did_you_mean.c"
#include "cli/parser/option_parser.c"
#include "cli/parser/output_path.c"
#include "cli/timing/suspensions.c"
#include "unit_test.h"

enum { OUTPUT_SIZE = 32768 };

static char binary[4096];

/* Runs `cleave ARGUMENTS`; out receives what it wrote to the streams that `redirect` leaves on stdout. */
static int run(char out[OUTPUT_SIZE], const char *arguments, const char *redirect)
{
    char line[8192];
    size_t n = 0, got;
    FILE *f;

    snprintf(line, sizeof line, "'%s' %s %s </dev/null", binary, arguments, redirect);
    f = popen(line, "r");
    assert_non_null(f);
    while (n < OUTPUT_SIZE - 1 && (got = fread(out + n, 1, OUTPUT_SIZE - 1 - n, f)) > 0)
        n += got;
    out[n] = '\0';
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char stdout_only[] = "2>/dev/null";
static const char stderr_only[] = "2>&1 >/dev/null";

static void check_one_line(const char *text)
{
    const char *newline = strchr(text, '\n');

    if (newline == NULL || newline[1] != '\0')
        fail_msg("not one line: '%s'", text);
}

static void check_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' lacks '%s'", text, part);
}

/* Of a terminal of 100 columns. */
static void check_columns(const char *text)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (n > 100)
            fail_msg("%zu columns: %.*s", n, (int)n, text);
    }
}

/* ---- every command, found through the help that lists it ---- */

static void check_command(const char *path)
{
    static char out[OUTPUT_SIZE];
    char arguments[256];

    snprintf(arguments, sizeof arguments, "%s --help", path);
    assert_int_equal(run(out, arguments, stdout_only), 0);
    check_contains(out, "Example");
    check_contains(out, "Options:");
    check_columns(out);
    assert_int_equal(run(out, arguments, stderr_only), 0);
    assert_string_equal(out, "");

    snprintf(arguments, sizeof arguments, "%s --no-such-flag", path);
    assert_int_equal(run(out, arguments, stderr_only), 2);
    check_one_line(out);
    check_contains(out, "unknown option '--no-such-flag'");
    check_contains(out, "Valid:");
    assert_int_equal(run(out, arguments, stdout_only), 2);
    assert_string_equal(out, "");
}

/* Checks each command of the list `help` (what `path --help` printed); returns how many there are. */
static int check_commands(const char *path, const char *help)
{
    const char *at = strstr(help, "Commands:\n");
    char name[64];
    int n = 0;

    assert_non_null(at);
    check_contains(help, "\nExample");
    check_columns(help);
    for (at = strchr(at, '\n') + 1; at[0] == ' ' && sscanf(at, "%63s", name) == 1; at = strchr(at, '\n') + 1) {
        char *inner = malloc(OUTPUT_SIZE);
        char inner_path[320], arguments[400];
        snprintf(inner_path, sizeof inner_path, "%s %s", path, name);
        snprintf(arguments, sizeof arguments, "%s --help", inner_path);
        assert_non_null(inner);
        assert_int_equal(run(inner, arguments, stdout_only), 0);
        if (strstr(inner, "Commands:\n") != NULL)
            n += check_commands(inner_path, inner);
        else
            check_command(inner_path);
        n++;
        free(inner);
    }
    return n;
}

static void test_help_of_every_command(void **state)
{
    static char help[OUTPUT_SIZE];

    assert_int_equal(run(help, "--help", stdout_only), 0);
    assert_true(check_commands("", help) >= 2);
}

/* help NAME is NAME --help; what it has no use for is refused. */
static void test_help_by_name(void **state)
{
    static char help[OUTPUT_SIZE], out[OUTPUT_SIZE];
    static const char *const same[][2] = {{"help plan", "plan --help"},
                                          {"help bench gemm", "bench gemm --help"},
                                          {"bench help gemm", "bench gemm -h"},
                                          {"--help bench", "bench --help"},
                                          {"help", "--help"}};
    static const char *const wrong[][2] = {{"help plan extra", "cleave help plan: unexpected argument 'extra'"},
                                           {"help bench gemm extra", "cleave bench help gemm: unexpected argument"},
                                           {"help plna", "did you mean 'plan'?"},
                                           {"--help plna", "did you mean 'plan'?"}};

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(run(help, same[i][0], stdout_only), 0);
        assert_int_equal(run(out, same[i][1], stdout_only), 0);
        assert_string_equal(help, out);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(run(out, wrong[i][0], stderr_only), 2);
        check_one_line(out);
        check_contains(out, wrong[i][1]);
    }
}

static void test_no_command(void **state)
{
    static char out[OUTPUT_SIZE];

    assert_int_equal(run(out, "", stderr_only), 2);
    check_contains(out, "Usage: cleave COMMAND");
    assert_int_equal(run(out, "", stdout_only), 2);
    assert_string_equal(out, "");
}

static void test_unknown_command(void **state)
{
    static char out[OUTPUT_SIZE];

    assert_int_equal(run(out, "versoin", stderr_only), 2);
    check_one_line(out);
    check_contains(out, "did you mean 'version'?");
    assert_int_equal(run(out, "bench zzzzzz", stderr_only), 2);
    check_contains(out, "cleave bench: unknown command 'zzzzzz'");
}

static void test_version(void **state)
{
    static char out[OUTPUT_SIZE];

    assert_int_equal(run(out, "version --json", stdout_only), 0);
    check_contains(out, "{\"cleave\": \"" CLV_VERSION "\"");
    check_contains(out, "\"cores\": ");
    assert_int_equal(run(out, "version", stdout_only), 0);
    check_contains(out, "cores");
    assert_null(strchr(out, '{'));
}

static void test_full_disk(void **state)
{
    static char out[OUTPUT_SIZE];

    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(run(out, "version", "2>&1 >/dev/full"), 1);
    check_contains(out, "could not be written");
}

/* ---- the parser ---- */

typedef struct values {
    bool flag;
    int64_t n, room;
    double temperature;
    const char *model, *dtype, *equation;
    clv_strings in, text;
    clv_sizes sizes;
} values;

/* Parses the words; returns the parser's answer. */
static int parse(values *v, int argc, const char *const *words)
{
    const clv_option options[] = {
        {.names = "EQUATION", .kind = CLV_OPTION_STRING, .out = &v->equation, .help = "the product"},
        {.names = "--flag", .kind = CLV_OPTION_FLAG, .out = &v->flag, .help = "a flag"},
        {.names = "-n, --count", .kind = CLV_OPTION_INT, .out = &v->n, .min = 1, .max = 10, .value = "N", .help = "n"},
        {.names = "--temp",
         .kind = CLV_OPTION_REAL,
         .out = &v->temperature,
         .real_min = 0,
         .real_max = 2,
         .value = "T",
         .help = "temperature"},
        {.names = "-m, --model", .kind = CLV_OPTION_STRING, .out = &v->model, .value = "DIR", .help = "model"},
        {.names = "--dtype", .kind = CLV_OPTION_CHOICE, .out = &v->dtype, .value = "f32|bf16", .help = "dtype"},
        {.names = "--in", .kind = CLV_OPTION_STRINGS, .out = &v->in, .value = "LAYOUT", .help = "layout"},
        {.names = "--text", .kind = CLV_OPTION_FILES, .out = &v->text, .value = "FILE", .help = "files"},
        {.names = "--bytes", .kind = CLV_OPTION_SIZES, .out = &v->sizes, .value = "LIST", .help = "sizes"},
        {.names = "--room", .kind = CLV_OPTION_SIZE, .out = &v->room, .value = "BYTES", .help = "a size"},
    };
    char *argv[32] = {"cleave test"};

    for (int i = 0; i < argc; i++)
        argv[i + 1] = (char *)words[i];
    return clv_options_parse(options, sizeof options / sizeof options[0], argc + 1, argv);
}

#define PARSE(v, ...) parse(v, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static void test_values(void **state)
{
    values v = {0};

    assert_int_equal(PARSE(&v, "ik,kj->ij", "--flag", "-n", "3", "--temp=0.5", "--model", "a=b", "--dtype", "bf16"),
                     CLV_OPTIONS_RUN);
    assert_string_equal(v.equation, "ik,kj->ij");
    assert_true(v.flag);
    assert_int_equal(v.n, 3);
    assert_true(v.temperature == 0.5);
    assert_string_equal(v.model, "a=b");
    assert_string_equal(v.dtype, "bf16");
    assert_int_equal(PARSE(&v, "-count=10", "-m=x=y"), CLV_OPTIONS_RUN);
    assert_int_equal(v.n, 10);
    assert_string_equal(v.model, "x=y");
    assert_int_equal(PARSE(&v, "-m", "-dashed"), CLV_OPTIONS_RUN);
    assert_string_equal(v.model, "-dashed");
}

/* As getopt: a value attached to a name of one dash, and only arguments after "--". */
static void test_attached(void **state)
{
    values v = {0};

    assert_int_equal(PARSE(&v, "-n5", "-mfolder/x=y"), CLV_OPTIONS_RUN);
    assert_int_equal(v.n, 5);
    assert_string_equal(v.model, "folder/x=y");
    assert_int_equal(PARSE(&v, "-m", "-n5"), CLV_OPTIONS_RUN); /* it is the value of -m */
    assert_string_equal(v.model, "-n5");
    assert_int_equal(PARSE(&v, "--flag", "--", "-n"), CLV_OPTIONS_RUN);
    assert_string_equal(v.equation, "-n");
    assert_int_equal(PARSE(&v, "--text", "a", "--", "--"), CLV_OPTIONS_RUN);
    assert_string_equal(v.equation, "--");
    assert_int_equal(PARSE(&v, "-m", "--", "--", "--help"), CLV_OPTIONS_RUN);
    assert_string_equal(v.model, "--");
    assert_string_equal(v.equation, "--help");
}

static void test_lists(void **state)
{
    values v = {0};

    assert_int_equal(PARSE(&v, "--in", "_,X", "--text", "a", "b", "c", "--in", "X,_", "--text=d", "-"),
                     CLV_OPTIONS_RUN);
    assert_int_equal(v.in.n, 2);
    assert_string_equal(v.in.item[1], "X,_");
    assert_int_equal(v.text.n, 5);
    assert_string_equal(v.text.item[4], "-"); /* standard input */
    assert_string_equal(v.text.item[3], "d");
    assert_null(v.equation);
    assert_int_equal(PARSE(&v, "--bytes", "7,16K,2MiB,1G"), CLV_OPTIONS_RUN);
    assert_int_equal(v.sizes.n, 4);
    assert_int_equal(v.sizes.item[0], 7);
    assert_int_equal(v.sizes.item[1], 16384);
    assert_int_equal(v.sizes.item[2], 2097152);
    assert_int_equal(v.sizes.item[3], 1073741824);
    assert_int_equal(PARSE(&v, "--room", "24GiB"), CLV_OPTIONS_RUN);
    assert_int_equal(v.room, INT64_C(24) << 30);
}

/* A second value is refused, under each of an option's names; lists take it, and a flag says the same again. */
static void test_given_twice(void **state)
{
    values v = {0};

    assert_int_equal(PARSE(&v, "-n", "3", "--count=4"), 2);
    assert_int_equal(PARSE(&v, "-n5", "-n6"), 2);
    assert_int_equal(PARSE(&v, "--temp", "1", "--temp", "1"), 2);
    assert_int_equal(PARSE(&v, "-m", "a", "-model", "b"), 2);
    assert_int_equal(PARSE(&v, "--dtype", "f32", "--dtype", "f32"), 2);
    assert_int_equal(PARSE(&v, "--bytes", "1", "--bytes", "2"), 2);
    assert_int_equal(PARSE(&v, "--flag", "--flag", "--in", "a", "--in", "b"), CLV_OPTIONS_RUN);
}

/* Each must be rejected with exit code 2, and set no value. */
static void test_refusals(void **state)
{
    static const char *const bad[][2] = {
        {"--flag=1", NULL},
        {"-n", "0"},
        {"-n", "11"},
        {"-n", "x"},
        {"-n", "1.5"},
        {"-n", ""},
        {"-n", "3x"},
        {"-n", "99999999999999999999"},
        {"-n", NULL},
        {"-n", "--flag"},
        {"--temp", "nan"},
        {"--temp", "inf"},
        {"--temp", "2.5"},
        {"--temp", "-0.1"},
        {"--temp", ""},
        {"--dtype", "f"},
        {"--dtype", "f32|bf16"},
        {"--dtype", ""},
        {"--bytes", "0"},
        {"--bytes", "1,,2"},
        {"--bytes", "1P"},
        {"--bytes", "1GBB"},
        {"--bytes", "1iB"},
        {"--bytes", "9000000T"},
        {"--bytes", "-4"},
        {"--bytes", "1,"},
        {"--bytes", "9999999999G"},
        {"--room", "1K,2K"},
        {"--room", "1e9"},
        {"--room", ""},
        {"--modle", "x"},
        {"---n", "3"},
        {"-nx", NULL},
        {"-n11", NULL},
        {"-modle", "x"},
        {"-x5", NULL},
        {"one", "two"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        values v = {0};
        int code = parse(&v, bad[i][1] != NULL ? 2 : 1, bad[i]);
        if (code != 2)
            fail_msg("'%s' '%s' gave %d", bad[i][0], bad[i][1] != NULL ? bad[i][1] : "", code);
        assert_int_equal(v.n, 0);
        assert_false(v.flag);
        assert_null(v.dtype);
        assert_int_equal(v.sizes.n, 0);
        assert_int_equal(v.room, 0);
    }
}

static void test_required(void **state)
{
    const char *model = NULL;
    const clv_option options[] = {{.names = "-m, --model",
                                   .kind = CLV_OPTION_STRING,
                                   .out = &model,
                                   .value = "DIR",
                                   .help = "model",
                                   .required = true}};
    char *nothing[] = {"cleave test"}, *given[] = {"cleave test", "-m", "x"};

    assert_int_equal(clv_options_parse(options, 1, 1, nothing), 2);
    assert_int_equal(clv_options_parse(options, 1, 3, given), CLV_OPTIONS_RUN);
}

static void test_nearest(void **state)
{
    static const char *const names[] = {"--model", "--mesh", "--top-k", "--top-p"};

    assert_string_equal(clv_did_you_mean("--modle", names, 4), "--model");
    assert_string_equal(clv_did_you_mean("--messh", names, 4), "--mesh");
    assert_string_equal(clv_did_you_mean("--topk", names, 4), "--top-k");
    assert_null(clv_did_you_mean("--something-else", names, 4));
}

int main(void)
{
    const char *build = getenv("CLV_BUILD_DIR");
    const struct CMUnitTest parser_tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_lists),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_given_twice), cmocka_unit_test(test_required), cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_attached),
    };
    const struct CMUnitTest binary_tests[] = {
        cmocka_unit_test(test_help_of_every_command),
        cmocka_unit_test(test_help_by_name),
        cmocka_unit_test(test_no_command),
        cmocka_unit_test(test_unknown_command),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_full_disk),
    };
    int failures = cmocka_run_group_tests(parser_tests, NULL, NULL);

    snprintf(binary, sizeof binary, "%s/cleave", build != NULL ? build : "build");
    if (access(binary, X_OK) != 0) {
        print_error("%s does not exist (CLV_BUILD_DIR names its folder)\n", binary);
        return 1;
    }
    return failures + cmocka_run_group_tests(binary_tests, NULL, NULL);
}
