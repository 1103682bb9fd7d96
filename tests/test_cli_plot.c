/* test_cli_plot.c - pictures of metrics: XML that is well formed, whatever the lines are, in which gaps are gaps and
 * many steps are few points; and what train shows of a run: its picture, its trace, its metrics. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/output/metrics_plot.h"
#include "cli_run.h"
#include "must.h"
#include "unit_test.h"

static const char *in_folder(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", cli_folder(), name);
    return path[turn];
}

static char *text_of(const char *name)
{
    FILE *f = fopen(in_folder(name), "r");
    char *text = calloc(1, 1 << 20);
    assert_true(f && text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
    fclose(f);
    return text;
}

/* ---- XML ---- */

/* Past an attribute, name="value"; NULL: it is none. */
static const char *skip_attribute(const char *at)
{
    const char *name = at;
    while (isalnum((unsigned char)*at) || *at == '-')
        at++;
    if (at == name || at[0] != '=' || at[1] != '"')
        return NULL;
    for (at += 2; *at != '"'; at++)
        if (*at == '\0' || *at == '<' || *at == '&')
            return NULL;
    return at + 1;
}

/* Elements that end in the order in which they began, attributes, and text without marks. */
static void check_xml(const char *text)
{
    enum { DEPTH = 16, NAME = 32 };
    char open[DEPTH][NAME];
    int depth = 0, roots = 0;
    static const char head[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    assert_memory_equal(text, head, sizeof head - 1);
    for (const char *at = text + sizeof head - 1; *at;) {
        if (*at != '<') {
            assert_true((*at != '&' || strncmp(at, "&amp;", 5) == 0) && *at != '>' &&
                        (depth > 0 || isspace((unsigned char)*at)));
            at++;
            continue;
        }
        bool ends = at[1] == '/';
        char name[NAME];
        size_t n = 0;
        for (at += 1 + ends; isalpha((unsigned char)*at); at++)
            name[n++ < NAME - 1 ? n - 1 : NAME - 2] = *at;
        name[n] = '\0';
        assert_true(n > 0);
        while (*at == ' ') {
            at = skip_attribute(at + 1);
            assert_non_null(at);
        }
        bool empty = *at == '/';
        at += empty;
        assert_int_equal(*at++, '>');
        if (ends) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (!empty) {
            roots += depth == 0;
            assert_in_range(depth, 0, DEPTH - 1);
            strcpy(open[depth++], name);
        }
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* All coordinates lie in the picture. */
static void check_points(const char *text)
{
    for (const char *at = text; (at = strstr(at, "points=\"")) != NULL;) {
        for (at += 8; *at != '"';) {
            char *end;
            double x = strtod(at, &end), y;
            assert_int_equal(*end, ',');
            y = strtod(end + 1, &end);
            assert_true(x >= 78 && x <= 876 && y >= 34 && y <= 570);
            at = end + (*end == ' ');
        }
    }
}

static clv_status plot(const char *lines, const char *out, clv_error *err)
{
    const char *path = in_folder(lines);
    return clv_plot_metrics(&path, 1, in_folder(out), err);
}

/* Draws lines that `print` makes, and returns the picture. */
static char *drawn(int steps, void (*print)(FILE *f, int step))
{
    clv_error err = {0};
    FILE *f = fopen(in_folder("lines"), "w");
    assert_non_null(f);
    for (int i = 0; i < steps; i++)
        print(f, i);
    fclose(f);
    must(plot("lines", "p.svg", &err), &err);
    char *text = text_of("p.svg");
    check_xml(text);
    check_points(text);
    return text;
}

static void falling(FILE *f, int step)
{
    fprintf(f, "{\"step\":%d,\"loss\":%.9g,\"tokens_per_s\":%d%s}\n", step, 2 + 1.0 / (1 + step), 1000 + step % 10,
            step % 100 == 0 ? ",\"val_loss\":2.5" : "");
}

static void steep(FILE *f, int step)
{
    fprintf(f, "{\"step\":%d,\"loss\":%.9g,\"tokens_per_s\":null}\n", step, exp(-0.1 * step));
}

static void with_gaps(FILE *f, int step)
{
    static const char *const none[] = {"null", "NaN", "1e999", "\"x\""};
    if (step % 5 == 4)
        fprintf(f, "{\"step\":%d,\"loss\":%s,\"tokens_per_s\":10}\n", step, none[step / 5 % 4]);
    else
        falling(f, step);
}

static void nonsense(FILE *f, int step)
{
    static const char *const lines[] = {"",
                                        "x",
                                        "{}",
                                        "{\"step\":1}",
                                        "{\"step\":-1e300,\"loss\":1e38}",
                                        "{\"step\":2,\"loss\":-3,\"val_loss\":0}",
                                        "{\"step\":2,\"loss\":-3,"};
    fprintf(f, "%s\n", lines[step % 7]);
}

static void test_lines(void **state)
{
    char *text = drawn(100, falling);
    assert_int_equal(count(text, "<polyline"), 2); /* of losses and rates; one validation is a dot */
    assert_int_equal(count(text, "<circle class=\"val\""), 1);
    assert_non_null(strstr(text, ">2.2</text>"));
    assert_null(strstr(text, "(log)"));
    free(text);
    text = drawn(100, steep);
    assert_non_null(strstr(text, "(log)"));
    assert_non_null(strstr(text, ">0.01</text>"));
    assert_int_equal(count(text, "<polyline"), 1);
    free(text);
}

static void test_gaps(void **state)
{
    char *text = drawn(40, with_gaps);
    assert_int_equal(count(text, "<polyline class=\"train\""), 8);
    assert_int_equal(count(text, "<polyline class=\"rate\""), 1);
    free(text);
}

static void test_few(void **state)
{
    char *text = drawn(0, falling);
    assert_int_equal(count(text, "<polyline") + count(text, "<circle"), 0);
    free(text);
    text = drawn(1, falling);
    assert_int_equal(count(text, "<circle"), 3);
    free(text);
    free(drawn(14, nonsense));
}

/* As many points as can be seen, of which the first and the last are those of the first and last steps. */
static void test_many(void **state)
{
    char *text = drawn(1000000, falling);
    assert_in_range(strlen(text), 1000, 60000);
    const char *line = strstr(text, "<polyline class=\"train\"");
    assert_non_null(line);
    int points = 0;
    for (const char *at = strstr(line, "points="); *at != '/'; at++)
        points += *at == ',';
    assert_in_range(points, 512, 1024);
    assert_non_null(strstr(text, ">200k</text>"));
    assert_non_null(strstr(text, ">2.2</text>")); /* means are between 2 and 2.5 */
    free(text);
}

static void test_files(void **state)
{
    clv_error err = {0};
    assert_int_equal(plot("nothing", "p.svg", &err), CLV_ENOTFOUND);
    free(drawn(2, falling));
    err = (clv_error){0};
    assert_int_equal(plot("lines", "no/p.svg", &err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "no/p.svg"));
    cli_shell("ln -sf {d}/led {d}/link");
    must(plot("lines", "link", &err), &err);
    cli_shell("test -L {d}/link && cmp {d}/led {d}/p.svg && ! ls {d}/*.tmp-* 2>/dev/null");
}

/* Each run by a colour and its name; at most eight. */
static void test_several(void **state)
{
    enum { RUNS = 9 };
    clv_error err = {0};
    const char *of[RUNS];
    free(drawn(20, falling));
    cli_shell("cp {d}/lines '{d}/a&b' && head -n 5 {d}/lines >{d}/short");
    cli_expect(0, "", "plot '{d}/a&b' {d}/short --out {d}/two.svg");
    char *text = text_of("two.svg");
    check_xml(text);
    check_points(text);
    assert_int_equal(count(text, "<polyline class=\"run0\""), 2);
    assert_int_equal(count(text, "<polyline class=\"run1\""), 2);
    assert_int_equal(count(text, "class=\"run0 val\"") > 0, 1);
    assert_non_null(strstr(text, "/a&amp;b</text>"));
    assert_non_null(strstr(text, "/short</text>"));
    assert_null(strstr(text, "training"));
    free(text);
    cli_expect(0, "", "plot {d}/lines --out {d}/one.svg");
    assert_int_equal(clv_plot_metrics((const char *[]){in_folder("lines")}, 1, in_folder("same.svg"), &err), CLV_OK);
    cli_shell("cmp {d}/one.svg {d}/same.svg && grep -q training {d}/one.svg");
    for (int i = 0; i < RUNS; i++)
        of[i] = in_folder("lines");
    assert_int_equal(clv_plot_metrics(of, RUNS, in_folder("many.svg"), &err), CLV_EINVAL);
    cli_expect(2, "1 to 8",
               "plot {d}/lines {d}/lines {d}/lines {d}/lines {d}/lines {d}/lines {d}/lines {d}/lines "
               "{d}/lines --out {d}/many.svg");
    cli_expect(2, "FILE", "plot --out {d}/many.svg");
    cli_shell("echo '{}' >{d}/none");
    cli_expect(2, "none: has no line of a step", "plot {d}/lines {d}/none --out {d}/many.svg");
    cli_expect(2, "nothere: no such file", "plot {d}/nothere --out {d}/many.svg");
    cli_shell("! ls {d}/many.svg* 2>/dev/null");
}

/* ---- what train shows ---- */

#define SIZES "--hidden 16 --layers 1 --heads 2 --seq 8 --batch 2 "
#define SMALL "train --text {d}/text " SIZES

/* Of a run that goes on the whole is seen; every line has every field. */
static void test_run(void **state)
{
    static const char *const fields[] = {
        "step", "loss", "grad_norm", "lr", "tokens_per_s", "comm_share", "overlapped_share", "seconds", "mfu"};
    cli_expect(0, "", SMALL "--steps 6 --save-every 3 --out {d}/run --plot {d}/run.svg --val {d}/text --eval-every 2");
    cli_expect(0, "resuming after step 6",
               SMALL
               "--steps 9 --save-every 3 --out {d}/run --plot {d}/run.svg --val {d}/text --eval-every 2 --resume");
    char *text = text_of("run.svg");
    check_xml(text);
    check_points(text);
    assert_non_null(strstr(text, ">8</text>")); /* the last step */
    assert_int_equal(count(text, "<circle class=\"val\""), 5);
    free(text);
    char *lines = text_of("run/metrics.jsonl");
    int n = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            assert_non_null(json_object_get(o, fields[i]));
        assert_int_equal(json_integer_value(json_object_get(o, "step")), n);
        assert_true(json_number_value(json_object_get(o, "seconds")) > 0);
        assert_true(json_is_null(json_object_get(o, "mfu"))); /* times of --check mean nothing */
        assert_int_equal(json_object_get(o, "val_loss") != NULL, n % 2 == 1 || n == 8);
        json_decref(o);
    }
    assert_int_equal(n, 9);
    free(lines);
}

/* Interrupts a run without an end, whose folder is `out`, once it made some steps, however long that takes; its words
 * go to {d}/said. */
static void interrupt_run(const char *out, const char *options)
{
    enum { SOME = 3 };
    const struct timespec pause = {.tv_nsec = 10000000};
    char command[4096], metrics[512];
    int status = 0;
    snprintf(metrics, sizeof metrics, "%s/%s/metrics.unfinished.jsonl", cli_folder(), out);
    snprintf(command, sizeof command,
             "cd '%s' && exec \"$CLV_BUILD_DIR/cleave\" train --text text " SIZES
             "--steps 100000000 --out %s %s >said 2>&1",
             cli_folder(), out, options);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL); /* a shell's job in the background ignores it, and so would the run */
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    pid_t ended = 0;
    while (cli_lines(metrics) < SOME && (ended = waitpid(child, &status, WNOHANG)) == 0)
        nanosleep(&pause, NULL);
    if (ended == 0) {
        kill(child, SIGINT);
        waitpid(child, &status, 0);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 130)
        fail_msg("%s: status %d", command, status);
}

/* When it ends, and when it is interrupted. */
static void test_when(void **state)
{
    cli_expect(0, "", SMALL "--steps 2 --out {d}/end --plot {d}/end.svg");
    interrupt_run("int", "--plot int.svg");
    char *text = text_of("end.svg");
    check_xml(text);
    assert_int_equal(count(text, "<polyline"), 2);
    free(text);
    text = text_of("int.svg");
    check_xml(text);
    assert_in_range(count(text, "<polyline"), 2, 100);
    free(text);
}

/* Of the peak that was measured, and of a machine's. */
static void test_mfu(void **state)
{
    cli_shell("b=\"$CLV_BUILD_DIR/cleave\"; for how in '' '--hardware tpu-v2-8'; do rm -rf {d}/mfu; \"$b\" " SMALL
              "--steps 3 -tp 2 --out {d}/mfu $how --json >{d}/mfu.json 2>/dev/null && "
              "grep -q '\"mfu\": [0-9.e-]*[1-9]' {d}/mfu.json && "
              "[ \"$(grep -c '\"mfu\":[01]\\.[0-9]*' {d}/mfu/metrics.jsonl)\" = 3 ] || exit 1; done");
}

/* MFU counts the model's flops, without recomputation, however it is sharded. */
static void test_mfu_is_of_the_model(void **state)
{
    static const struct {
        const char *how;
        int ranks;
    } runs[] = {
        {"", 1},           {"--recompute selective", 1}, {"--recompute full", 1}, {"--accumulate 2", 1}, {"-tp 2", 2},
        {"-tp 3 --sp", 3}, {"-tp 2 --recompute full", 2}};
    double first = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cli_shell("rm -rf {d}/mfu; \"$CLV_BUILD_DIR/cleave\" " SMALL
                  "--steps 2 --out {d}/mfu --hardware tpu-v2-8 --json %s >{d}/mfu.json 2>/dev/null",
                  runs[i].how);
        json_t *o = json_load_file(in_folder("mfu.json"), 0, NULL);
        double of = json_number_value(json_object_get(o, "mfu")) * json_number_value(json_object_get(o, "seconds")) *
                    runs[i].ranks;
        first = i == 0 ? of : first;
        assert_true(first > 0);
        if (!(fabs(of / first - 1) <= 1e-4))
            fail_msg("%s: %g seconds at the peak, without %g", runs[i].how, of, first);
        json_decref(o);
    }
}

/* The steps that were named, and of several processes all ranks. */
static void test_trace(void **state)
{
    cli_expect(0, "wrote the trace of steps 2 to 3 to",
               SMALL
               "--steps 5 -tp 2 --val {d}/text --eval-every 1 --out {d}/traced --trace 2:3 --trace-out {d}/t.json");
    cli_shell("for s in 2 3; do [ \"$(grep -c '\"cat\":\"step\".*\"step\":'$s'}' {d}/t.json)\" = 2 ] || exit 1; done; "
              "[ \"$(grep -c '\"cat\":\"step\"' {d}/t.json)\" = 4 ] && grep -q '\"kind\":\"adamw\"' {d}/t.json");
    cli_expect(0, "\"steps\": 2", "trace {d}/t.json --json");
    cli_expect(0, "the trace of steps 4 to 4", SMALL "--steps 5 --out {d}/last --trace 4:90 {d}/l.json");
    cli_expect(0, "\"op\": \"dot_general\"", SMALL "--steps 5 --out {d}/ops --ops --json");
    cli_expect(0, "the trace of steps 1 to 2", SMALL "--steps 5 --out {d}/both --ops --trace 1:2 {d}/o.json");
    cli_expect(0, "waiting_ms", SMALL "--steps 1 --out {d}/one --ops -tp 2 --trace 0:0");
    cli_expect(2, "--trace '5:6': the last step is 4", SMALL "--steps 5 --out {d}/no --trace 5:6 --trace-out {d}/n");
    /* a run that fails, or is stopped, within them, or never came to them */
    cli_expect(2, "is not a number at step",
               "train --text {d}/text --layers 1 --hidden 32 --heads 2 --seq 16 --batch 1 --steps 500 --lr 10 "
               "--weight-decay 1 --warmup 0 -tp 2 --out {d}/nan --trace 0:498 --trace-out {d}/f.json >{d}/said 2>&1; "
               "code=$?; cat {d}/said; exit $code");
    cli_shell("n=$(sed -n 's/.*not a number at step \\([0-9]*\\).*/\\1/p' {d}/said | tail -n 1) && "
              "grep -q \"wrote the trace of steps 0 to $n, where the run failed, to\" {d}/said && "
              "\"$CLV_BUILD_DIR/cleave\" trace {d}/f.json --json | grep -q \"\\\"steps\\\": $((n + 1))\"");
    interrupt_run("stopped", "--trace 1:99999999 --trace-out s.json");
    cli_shell("grep -q 'wrote the trace of steps 1 to [0-9]*, where the run ended, to' {d}/said && "
              "\"$CLV_BUILD_DIR/cleave\" trace {d}/s.json >/dev/null");
    cli_expect(0, "", SMALL "--steps 3 --save-every 3 --out {d}/past");
    cli_expect(0, "note: no trace: steps 1 to 2 did not run",
               SMALL "--steps 4 --save-every 3 --out {d}/past --resume --trace 1:2 --trace-out {d}/none.json");
    static const char *const bad[] = {"3", "4:3", "-1:3", "1:2x", "1:", ":", "1.5:2", "99999999999:99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cli_expect(2, "--trace", SMALL "--steps 5 --out {d}/no --trace=%s --trace-out {d}/n", bad[i]);
    cli_expect(2, "l' is a second file", SMALL "--out {d}/no --trace 1:2 {d}/n {d}/l");
    cli_expect(2, "n' is a second file", SMALL "--out {d}/no --trace 1:2 {d}/n --trace-out {d}/l");
    cli_expect(2, "cannot create", SMALL "--out {d}/no --trace 1:2 {d}/nowhere/n");
    cli_expect(0, "", SMALL "--steps 5 --out {d}/alone --trace {d}/alone.json");
    cli_expect(0, "\"steps\": 3", "trace {d}/alone.json --json");
    cli_expect(0, "", SMALL "--steps 2 --out {d}/alone2 --trace-out {d}/alone.json");
    cli_expect(0, "\"steps\": 2", "trace {d}/alone.json --json");
    cli_expect(2, "--trace needs a file; valid: --trace FROM:TO FILE", SMALL "--out {d}/no --trace 1:2");
    cli_shell("test ! -e {d}/no && test ! -e {d}/n");
}

static int set_up(void **state)
{
    cli_shell("for i in 1 2 3 4 5 6 7 8; do echo 'once upon a time a tensor was split'; done >{d}/text");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_few),   cmocka_unit_test(test_several),
        cmocka_unit_test(test_many),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_run),   cmocka_unit_test(test_when),
        cmocka_unit_test(test_mfu),   cmocka_unit_test(test_mfu_is_of_the_model),
        cmocka_unit_test(test_trace),
    };
    return cmocka_run_group_tests(tests, set_up, cli_remove_folder);
}
