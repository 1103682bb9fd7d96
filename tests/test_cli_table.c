/* test_cli_table.c - what commands print: the same table as text and as JSON, and progress that stays silent for
 * quick work. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/messages.c"
#include "cli/output/progress.c"
#include "cli/output/table.c"
#include "cli/output/table_print.c"
#include "cli/output/table_text.c"
#include "cli/output/terminal.c"
#include "cli/output/word_wrap.c"
#include "cli/timing/suspensions.c"
#include "unit_test.h"

/* Collects what is written to a descriptor between begin and end. */
typedef struct capture {
    int fd, saved;
    FILE *file;
} capture;

static capture capture_begin(int fd)
{
    capture c = {.fd = fd, .file = tmpfile()};

    fflush(NULL);
    assert_non_null(c.file);
    c.saved = dup(fd);
    dup2(fileno(c.file), fd);
    return c;
}

static void capture_end(capture *c, char *out, size_t size)
{
    fflush(NULL);
    dup2(c->saved, c->fd);
    close(c->saved);
    rewind(c->file);
    out[fread(out, 1, size - 1, c->file)] = '\0';
    fclose(c->file);
}

static clv_table *make_table(void)
{
    static const char *const axes[] = {"x", "y"};
    clv_table *t = clv_table_new("steps");

    clv_table_begin_row(t);
    clv_table_text(t, "op", "all_gather");
    clv_table_text_list(t, "axes", axes, 2);
    clv_table_int(t, "bytes", 6144);
    clv_table_begin_row(t);
    clv_table_text(t, "op", "slice");
    clv_table_text_list(t, "axes", axes, 1);
    clv_table_int(t, "bytes", 0);
    clv_table_real(t, "ms", 0.25);
    clv_table_begin_top_level(t);
    clv_table_int(t, "bytes", 6144);
    clv_table_null(t, "lower_bound");
    clv_table_bool(t, "checked", true);
    clv_table_real(t, "share", 0.0 / 0.0);
    return t;
}

static void test_json(void **state)
{
    char out[1024];
    capture c = capture_begin(STDOUT_FILENO);
    int code = clv_table_finish(make_table(), &(clv_table_format){.json = true});

    capture_end(&c, out, sizeof out);
    assert_int_equal(code, 0);
    assert_string_equal(out,
                        "{\"steps\": [{\"op\": \"all_gather\", \"axes\": [\"x\", \"y\"], \"bytes\": 6144}, {\"op\": "
                        "\"slice\", \"axes\": [\"x\"], \"bytes\": 0, \"ms\": 0.25}], \"bytes\": 6144, "
                        "\"lower_bound\": null, \"checked\": true, \"share\": null}\n");
}

static void test_text(void **state)
{
    char out[1024];
    capture c = capture_begin(STDOUT_FILENO);
    int code = clv_table_finish(make_table(), &(clv_table_format){.wide = true});

    capture_end(&c, out, sizeof out);
    assert_int_equal(code, 0);
    assert_string_equal(out, "op          axes  bytes    ms\n"
                             "all_gather  x,y    6144     -\n"
                             "slice       x         0  0.25\n"
                             "bytes        6144\n"
                             "lower_bound  -\n"
                             "checked      yes\n"
                             "share        -\n");
}

/* ---- within a width ---- */

static const char cause[] = "the residual stream is stated as whole on every rank, by the rules megatron";

static clv_table *make_wide_table(void)
{
    static const char *const options[] = {"--mesh data=16,model=8", "--rules fsdp+megatron-sp", "--dtype bf16"};
    clv_table *t = clv_table_new("collectives");

    clv_table_optional_column(t, "layouts");
    for (int i = 0; i < 2; i++) {
        clv_table_begin_row(t);
        clv_table_text(t, "op", i == 0 ? "layers.*.attention.constraint" : "\xe6\xbc\xa2\xe5\xad\x97.constraint");
        clv_table_int(t, "count", 80);
        clv_table_bytes(t, "bytes", 3670016);
        clv_table_fraction(t, "share", i == 0 ? 0.12345 : 4e-05);
        clv_table_text(t, "layouts", "{_,model,_} -> {_,_,_}");
        clv_table_text(t, "cause", i == 0 ? cause : "none");
    }
    clv_table_begin_header(t, "plan");
    clv_table_text(t, "step", "training");
    clv_table_int(t, "layers", 80);
    clv_table_null(t, "rules");
    clv_table_begin_top_level(t);
    clv_table_bytes(t, "bytes", 7340032);
    clv_table_text_list(t, "enough", options, 3);
    clv_table_text_list(t, "missing", NULL, 0);
    clv_table_text(t, "peak_at", "");
    return t;
}

/* What it prints with so many columns; 0: with --wide. */
static void print_table(char *out, size_t size, clv_table *t, int width)
{
    char columns[16];

    snprintf(columns, sizeof columns, "%d", width);
    setenv("COLUMNS", width > 0 ? columns : "10", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    capture c = capture_begin(STDOUT_FILENO);
    int code = clv_table_finish(t, &(clv_table_format){.wide = width == 0});
    capture_end(&c, out, size);
    assert_int_equal(code, 0);
    unsetenv("COLUMNS");
    unsetenv("LC_ALL");
}

#define HEAD "step training, layers 80\n\n"
#define HAN  "\xe6\xbc\xa2\xe5\xad\x97"
#define DOTS "\xe2\x80\xa6"

static void test_wide(void **state)
{
    char out[4096];

    print_table(out, sizeof out, make_wide_table(), 0);
    assert_string_equal(
        out, HEAD "op                             count              bytes    share  layouts                 cause\n"
                  "layers.*.attention.constraint     80  3.5 MiB (3670016)   12.3 %  {_,model,_} -> {_,_,_}  "
                  "the residual stream is stated as whole on every rank, by the rules megatron\n" HAN
                  ".constraint                   80  3.5 MiB (3670016)  <0.01 %  {_,model,_} -> {_,_,_}  none\n"
                  "bytes    7.0 MiB (7340032)\n"
                  "enough   --mesh data=16,model=8; --rules fsdp+megatron-sp; --dtype bf16\n"
                  "missing  none\n"
                  "peak_at  -\n");
}

/* Bytes are not exact, the column that may be is left out, the cause is cut; then rows take several lines. */
static void test_narrow(void **state)
{
    char out[4096];

    print_table(out, sizeof out, make_wide_table(), 100);
    assert_non_null(strstr(out,
                           "op                             count    bytes    share  cause\n"
                           "layers.*.attention.constraint     80  3.5 MiB   12.3 %  the residual stream is stated "
                           "as whole on e" DOTS "\n" HAN ".constraint                   80  3.5 MiB  <0.01 %  none\n"));
    print_table(out, sizeof out, make_wide_table(), 50);
    assert_string_equal(out, HEAD "op                             count    bytes\n"
                                  "    share\n"
                                  "  cause\n"
                                  "layers.*.attention.constraint     80  3.5 MiB\n"
                                  "   12.3 %\n"
                                  "  the residual stream is stated as whole on every" DOTS "\n" HAN
                                  ".constraint                   80  3.5 MiB\n"
                                  "  <0.01 %\n"
                                  "  none\n"
                                  "bytes    7.0 MiB (7340032)\n"
                                  "enough   --mesh data=16,model=8; --rules\n"
                                  "         fsdp+megatron-sp; --dtype bf16\n"
                                  "missing  none\n"
                                  "peak_at  -\n");
    print_table(out, sizeof out, make_wide_table(), 20);
    assert_non_null(strstr(out, "\nlayers.*." DOTS "constraint\n"));
}

/* No line is longer than the width; numbers are whole. */
static void test_any_width(void **state)
{
    char out[8192];

    for (int width = 26; width < 220; width++) {
        int bytes = 0, shares = 0;
        print_table(out, sizeof out, make_wide_table(), width);
        for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
            if (clv_text_width(line) > width)
                fail_msg("at %d columns: %s", width, line);
            bytes += strstr(line, "3.5 MiB") != NULL;
            shares += strstr(line, "12.3 %") != NULL;
        }
        assert_int_equal(bytes, 2);
        assert_int_equal(shares, 1);
    }
}

/* A list of names without blanks is broken after commas; a name that is longer than a line is not broken. */
static void test_long_field(void **state)
{
    static const char *const names[] = {"layers.0.weight", "layers.1.weight", "layers.2.weight"};
    char out[1024];
    clv_table *t = clv_table_new(NULL);

    clv_table_text_list(t, "extra", names, 3);
    clv_table_text(t, "path", "/a/very/long/path/that/is/one/word");
    print_table(out, sizeof out, t, 30);
    assert_string_equal(out, "extra  layers.0.weight,\n"
                             "       layers.1.weight,\n"
                             "       layers.2.weight\n"
                             "path   /a/very/long/path/that/is/one/word\n");
}

static void test_shares(void **state)
{
    static const struct {
        double share;
        const char *text;
    } cases[] = {{0, "0 %"},          {1, "100 %"},       {0.5, "50.0 %"},      {0.099949, "9.99 %"},
                 {0.09996, "10.0 %"}, {0.0001, "0.01 %"}, {0.00004, "<0.01 %"}, {1e-300, "<0.01 %"}};
    char cell[CELL_SIZE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cell_of_share(cell, cases[i].share);
        assert_string_equal(cell, cases[i].text);
    }
}

/* What has no place in JSON, or would speak to a terminal, is spelled. */
static void test_foreign_text(void **state)
{
    static const char *const names[] = {"x\x1b[31m", "\xff"};
    char out[512];

    for (int form = 0; form < 3; form++) {
        clv_table *t = clv_table_new("rows");
        clv_table_begin_row(t);
        clv_table_text(t, "name", "a\n\x1b[2J\"");
        clv_table_text_list(t, "names", names, 2);
        clv_table_begin_top_level(t);
        clv_table_text(t, "path", "\xff\x1b");
        capture c = capture_begin(STDOUT_FILENO);
        int code = clv_table_finish(t, &(clv_table_format){.json = form == 1, .csv = form == 2});
        capture_end(&c, out, sizeof out);
        assert_int_equal(code, 0);
        assert_null(strchr(out, '\x1b'));
        assert_non_null(strstr(out, form == 0   ? "a\\n\\x1b[2J\""
                                    : form == 1 ? "a\\n\\u001B[2J\\\""
                                                : "\"a\\n\\x1b[2J\"\"\""));
        if (form < 2) {
            assert_non_null(strstr(out, form == 0 ? "x\\x1b[31m,\\xff" : "\"\\\\xff\""));
            assert_non_null(strstr(out, form == 0 ? "\\xff\\x1b\n" : "\"\\\\xff\\\\x1b\""));
        }
    }
}

/* Runs 20 steps as if each had taken `step_ns`; returns what was printed. */
static void run_noted_steps(char *out, size_t size, int64_t step_ns, bool terminal, const char *note)
{
    clv_progress p;
    capture c = capture_begin(STDERR_FILENO);

    clv_progress_begin(&p, "train", 20);
    p.terminal = terminal;
    for (int i = 1; i <= 20; i++) {
        p.start_ns -= step_ns;
        p.last_ns -= step_ns;
        clv_progress_update(&p, i, note);
    }
    clv_progress_end(&p);
    capture_end(&c, out, size);
}

static void run_steps(char *out, size_t size, int64_t step_ns, bool terminal)
{
    run_noted_steps(out, size, step_ns, terminal, "loss 1.5");
}

static int count(const char *text, char wanted)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == wanted;
    return n;
}

static void test_progress(void **state)
{
    static char out[16384];

    run_steps(out, sizeof out, 1000000, false);
    assert_string_equal(out, "");
    run_steps(out, sizeof out, 1000000, true);
    assert_string_equal(out, "");
    run_steps(out, sizeof out, second_ns, false);
    assert_int_equal(count(out, '\n'), 10);
    assert_non_null(strstr(out, "train 20/20  loss 1.5  0 s left\n"));
    run_steps(out, sizeof out, second_ns, true);
    assert_int_equal(count(out, '\n'), 1);
    assert_int_equal(count(out, '\r'), 20);
    assert_non_null(strstr(out, "] 20/20  loss 1.5  0 s left"));
}

/* What each redraw shows, as many columns as it takes, fits whatever the width; the numbers that it has are whole. */
static void test_progress_fits(void **state)
{
    static const char note[] = "loss 1.234 (mean 1.345), 52000 tokens/s, lr 0.003, gradient 1.23, 12 % communication";
    static char out[65536];
    char columns[16], last[256] = "";

    for (int width = 1; width <= 160; width++) {
        snprintf(columns, sizeof columns, "%d", width);
        setenv("COLUMNS", columns, 1);
        run_noted_steps(out, sizeof out, second_ns, true, note);
        assert_int_equal(count(out, '\r'), 20);
        assert_int_equal(count(out, '\n'), 1);
        for (char *line = strtok(out, "\r"); line; line = strtok(NULL, "\r")) {
            char *end = strstr(line, "\033[K");
            assert_non_null(end);
            *end = '\0';
            if (clv_text_width(line) >= width)
                fail_msg("%s takes %d of %d columns", line, clv_text_width(line), width);
            snprintf(last, sizeof last, "%s", line);
        }
        assert_int_equal(strstr(last, "20/20") != NULL, width > 5);
        assert_int_equal(strstr(last, "0 s left") != NULL, width > 15);
        assert_true(strstr(last, "loss") == NULL || strstr(last, "loss 1.234 (mean 1.345)") != NULL);
        assert_true(width < 60 || strstr(last, "train [########") != NULL);
    }
    setenv("COLUMNS", "80", 1);
    run_noted_steps(out, sizeof out, second_ns, true, note);
    assert_non_null(
        strstr(out, "\rtrain [##############] 20/20  loss 1.234 (mean 1.345), 52000 tokens/s  0 s left\033[K"));
    unsetenv("COLUMNS");
}

/* What is said meanwhile has a line of its own, before the bar; a bar that is gone has no line to end. */
static void test_progress_gives_way(void **state)
{
    static char out[4096];
    clv_progress p;
    for (int last = 1; last >= 0; last--) {
        capture c = capture_begin(STDERR_FILENO);
        clv_log("before");
        clv_progress_begin(&p, "train", 2);
        p.terminal = true;
        for (int i = 1; i <= 1 + last; i++) {
            p.start_ns -= 3 * second_ns;
            p.last_ns -= 3 * second_ns;
            clv_progress_update(&p, i, "loss 1.5");
            if (i == 1)
                clv_log("note: %s", "one");
        }
        clv_progress_end(&p);
        clv_log("after");
        capture_end(&c, out, sizeof out);
        assert_memory_equal(out, "before\n\rtrain [", 15);
        assert_non_null(
            strstr(out, last ? "\033[K\r\033[Knote: one\n\rtrain [####" : "\033[K\r\033[Knote: one\nafter\n"));
        assert_true(!last || strstr(out, " 2/2  loss 1.5  0 s left\033[K\nafter\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_any_width),
        cmocka_unit_test(test_long_field),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_foreign_text),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_progress_fits),
        cmocka_unit_test(test_progress_gives_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
