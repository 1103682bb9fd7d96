/* test_cli_output.c - what commands print: the same table as text and as JSON, and progress that stays silent for
 * quick work. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/progress.c"
#include "cli/stops.c"
#include "cli/table.c"
#include "cli/terminal.c"

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

    clv_table_row(t);
    clv_table_text(t, "op", "all_gather");
    clv_table_texts(t, "axes", axes, 2);
    clv_table_int(t, "bytes", 6144);
    clv_table_row(t);
    clv_table_text(t, "op", "slice");
    clv_table_texts(t, "axes", axes, 1);
    clv_table_int(t, "bytes", 0);
    clv_table_real(t, "ms", 0.25);
    clv_table_top(t);
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
    int code = clv_table_finish(make_table(), true);

    (void)state;
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
    int code = clv_table_finish(make_table(), false);

    (void)state;
    capture_end(&c, out, sizeof out);
    assert_int_equal(code, 0);
    assert_string_equal(out, "op          axes  bytes  ms\n"
                             "all_gather  x,y    6144  \n"
                             "slice       x         0  0.25\n"
                             "bytes        6144\n"
                             "lower_bound  -\n"
                             "checked      yes\n"
                             "share        -\n");
}

/* What has no place in JSON, or would speak to a terminal, is spelled. */
static void test_foreign_text(void **state)
{
    static const char *const names[] = {"x\x1b[31m", "\xff"};
    char out[512];

    (void)state;
    for (int form = 0; form < 3; form++) {
        clv_table *t = clv_table_new("rows");
        clv_table_row(t);
        clv_table_text(t, "name", "a\n\x1b[2J\"");
        clv_table_texts(t, "names", names, 2);
        clv_table_top(t);
        clv_table_text(t, "path", "\xff\x1b");
        capture c = capture_begin(STDOUT_FILENO);
        int code = form == 2 ? clv_table_finish_csv(t) : clv_table_finish(t, form == 1);
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

    (void)state;
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

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),     cmocka_unit_test(test_text),          cmocka_unit_test(test_foreign_text),
        cmocka_unit_test(test_progress), cmocka_unit_test(test_progress_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
