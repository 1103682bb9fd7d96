/* test_cli_terminal.c - what a model wrote on its way to a terminal: control characters are spelled; a pipe gets the
 * bytes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_run.h"

static char out[CLI_OUTPUT];

/* A terminal's two ends: whoever writes to `name` is read at the result. -1: there are none here. */
static int open_terminal(char *name, size_t size)
{
    int end = posix_openpt(O_RDWR | O_NOCTTY);
    if (end >= 0 && grantpt(end) == 0 && unlockpt(end) == 0 && ptsname_r(end, name, size) == 0)
        return end;
    if (end >= 0)
        close(end);
    return -1;
}

/* `cleave ARGUMENTS` with a terminal for stdout; what that showed, whose lines end in \r\n. */
static void run_on_terminal(char shown[CLI_OUTPUT], const char *arguments)
{
    char name[64], rest[CLI_OUTPUT];
    size_t n = 0;
    ssize_t got = 0;
    int end = open_terminal(name, sizeof name);
    if (end < 0)
        skip();
    int held = open(name, O_RDWR | O_NOCTTY); /* what is written stays until it is read */
    assert_true(held >= 0);
    assert_int_equal(cli_run(rest, "%s >%s 2>{d}/said", arguments, name), 0);
    assert_int_equal(fcntl(end, F_SETFL, O_NONBLOCK), 0);
    while (n < CLI_OUTPUT - 1 && (got = read(end, shown + n, CLI_OUTPUT - 1 - n)) > 0)
        n += (size_t)got;
    shown[n] = '\0';
    close(held);
    close(end);
}

static int make_model(void **state)
{
    (void)state;
    cli_shell(
        "seq 1000 >{d}/text; $CLV_BUILD_DIR/cleave train --check --text {d}/text --out {d}/bytes --layers 1 --hidden 8 "
        "--heads 1 --seq 8 --batch 1 --steps 1 2>{d}/said >{d}/said");
    cli_shell("cp -r {d}/bytes {d}/plain && rm {d}/plain/tokenizer* && " /* which spells a byte at a time */
              "sed -i '/eos_token_id/d' {d}/plain/config.json");         /* and goes on behind a zero */
    cli_shell("printf 'z\\303\\274\\033[31m\\302\\233\\tx\\n' >{d}/prompt");
    return 0;
}

static const char decode[] = "tokenize -m {d}/bytes --decode -p '27 91 51 49 109 10 122 195 188 9 7 194 155 255'";

static void test_decoded_ids(void **state)
{
    (void)state;
    run_on_terminal(out, decode);
    assert_string_equal(out, "\\x1b[31m\r\nz\xc3\xbc\t\\x07\\u009b\xef\xbf\xbd\r\n");
    assert_int_equal(cli_run(out, "%s", decode), 0);
    assert_string_equal(out, "\x1b[31m\nz\xc3\xbc\t\x07\xc2\x9b\xef\xbf\xbd\n");
}

/* Streamed, and of a file of prompts. */
static void test_generated_text(void **state)
{
    static const char *const models[] = {"bytes", "plain"};
    char arguments[256];
    (void)state;
    for (int m = 0; m < 2; m++) {
        snprintf(arguments, sizeof arguments, "generate -m {d}/%s -p \"$(cat {d}/prompt)\" -n 0", models[m]);
        run_on_terminal(out, arguments);
        assert_string_equal(out, "z\xc3\xbc\\x1b[31m\\u009b\tx\r\n");
        assert_int_equal(cli_run(out, "%s 2>{d}/said", arguments), 0);
        assert_string_equal(out, "z\xc3\xbc\x1b[31m\xc2\x9b\tx\n");
        snprintf(arguments, sizeof arguments, "generate -m {d}/%s -f {d}/prompt -n 0", models[m]);
        run_on_terminal(out, arguments);
        assert_string_equal(out, "z\xc3\xbc\\x1b[31m\\u009b\tx\r\n");
        assert_int_equal(cli_run(out, "%s 2>{d}/said", arguments), 0);
        assert_string_equal(out, "z\xc3\xbc\x1b[31m\xc2\x9b\tx\n");
    }
}

/* What the model makes of it, whatever that is: as many bytes in a pipe as tokens, no control character on a terminal.
 */
static void test_noise(void **state)
{
    static const char noise[] = "generate -m {d}/plain -p x -n 200 -c 201 --temp 100 --top-k 0 --top-p 1";
    (void)state;
    run_on_terminal(out, noise);
    for (const char *at = out; *at; at++)
        assert_true((unsigned char)*at >= 0x20 || strchr("\r\n\t", *at));
    assert_non_null(strstr(out, "\\x"));
    cli_shell("$CLV_BUILD_DIR/cleave %s 2>{d}/said | wc -c | grep -qx 202", noise);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoded_ids),
        cmocka_unit_test(test_generated_text),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, make_model, cli_remove_folder);
}
