/* test_cli_terminal.c - what goes to a terminal: of a model's text control characters are spelled, and a pipe gets the
 * bytes; how wide it is, and text on it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/output/terminal.c"
#include "cli_run.h"
#include "unit_test.h"

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
    cli_shell(
        "seq 1000 >{d}/text; $CLV_BUILD_DIR/cleave train --check --text {d}/text --out {d}/bytes --layers 1 --hidden 8 "
        "--heads 1 --seq 8 --batch 1 --steps 1 2>{d}/said >{d}/said");
    cli_shell("cp -r {d}/bytes {d}/plain && rm {d}/plain/tokenizer* && " /* which spells a byte at a time */
              "sed -i '/eos_token_id/d' {d}/plain/config.json");         /* and decoding continues after a zero */
    cli_shell("printf 'z\\303\\274\\033[31m\\302\\233\\tx\\n' >{d}/prompt");
    return 0;
}

static const char decode[] = "tokenize -m {d}/bytes --decode -p '27 91 51 49 109 10 122 195 188 9 7 194 155 255'";

static void test_decoded_ids(void **state)
{
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
    run_on_terminal(out, noise);
    for (const char *at = out; *at; at++)
        assert_true((unsigned char)*at >= 0x20 || strchr("\r\n\t", *at));
    assert_non_null(strstr(out, "\\x"));
    cli_shell("$CLV_BUILD_DIR/cleave %s 2>{d}/said | wc -c | grep -qx 202", noise);
}

/* ---- tables ---- */

/* What text is longer than `width`; NULL: no line is. */
static const char *find_longer(char *text, int width)
{
    for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
        if (clv_text_width(line) > width)
            return line;
    return NULL;
}

/* No line of a table has more columns than there are; --wide has. */
static void test_tables(void **state)
{
    static const char *const commands[] = {
        "plan --block llama -tp 4 --sp --grad",
        "plan --block llama -tp 4 --sp --grad --hardware h100-nvlink-ib",
        "plan --block llama -tp 4 --sp --grad --collectives",
        "plan --block llama -tp 4 --sp --grad --all",
        "plan --hardware list",
        "plan -m {g}/llama --mesh data=2,model=2 --rules fsdp+megatron-sp --seq 8 --memory-limit 1K",
        "plan -m {g}/llama --mesh data=2,model=2 --rules fsdp+megatron-sp --seq 8 --memory-limit 1K --all",
        "explain -m {g}/llama --seq 8 -tp 2",
        "explain --block gpt -tp 2 --grad --op mlp.down",
        "info -m {g}/llama",
        "info -m {d}/bytes --tensors",
        "trace {d}/trace",
        "bench block --train -tp 2 --layers 1 --hidden 16 --heads 2 --ffn 16 --seq 16 --iterations 1",
        "bench -m {d}/bytes -p 16 -n 16 -r 1",
        "bench gemm --m 16 --n 16 --k 16",
        "verify -m {g}/llama --tp 1,2",
        "einsum 'ik,kj->ij' --shape i=8,k=8,j=8 --mesh X=2,Y=2 --in '_,X' --in X,_ --out '_,_' --explain",
        "reshard --shape 64x64 --mesh x=2,y=4 --from '(x,y),_' --to '_,(x,y)'",
        "version"};
    static const int widths[] = {75, 80, 120};
    char columns[16], text[CLI_OUTPUT];
    cli_shell("$CLV_BUILD_DIR/cleave bench block --train -tp 2 --layers 1 --hidden 16 --heads 2 --ffn 16 --seq 16 "
              "--iterations 1 --trace-out {d}/trace >{d}/said 2>&1");
    for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++)
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            snprintf(columns, sizeof columns, "%d", widths[w]);
            setenv("COLUMNS", columns, 1);
            cli_run(out, "%s 2>{d}/said", commands[c]);
            snprintf(text, sizeof text, "%s", out);
            const char *longer = find_longer(text, widths[w]);
            if (longer || out[0] == '\0')
                fail_msg("cleave %s at %d columns: %s", commands[c], widths[w], longer ? longer : "nothing");
        }
    unsetenv("COLUMNS");
    assert_int_equal(cli_run(out, "explain -m {g}/llama --seq 8 -tp 2 --wide"), 0);
    assert_non_null(find_longer(out, 140));
    run_on_terminal(out, "trace {d}/trace"); /* a terminal without a window size */
    assert_null(find_longer(out, 80));
}

/* Of a model explain has a row for what all layers have alike. */
static void test_folded(void **state)
{
    assert_int_equal(cli_run(out, "explain -m {g}/llama --seq 8 -tp 2 --wide"), 0);
    assert_non_null(strstr(out, "\nlayers.*.mlp.gated "));
    assert_null(strstr(out, "layers.0."));
    cli_expect(0, "\"op\": \"layers.0.mlp.gated\"", "explain -m {g}/llama --seq 8 -tp 2 --json");
}

/* ---- width ---- */

static void test_width(void **state)
{
    static const char *const nothing[] = {"0", "-3", "80x", "", "99999999999"};
    char name[64];
    int end = open_terminal(name, sizeof name);
    if (end < 0)
        skip();
    FILE *terminal = fopen(name, "r+"), *file = tmpfile();
    assert_non_null(terminal);
    assert_non_null(file);
    unsetenv("COLUMNS");
    assert_int_equal(clv_terminal_width(file), 80);
    assert_int_equal(clv_terminal_width(terminal), 80);          /* its window has no size yet */
    for (unsigned short width = 40; width <= 200; width += 80) { /* as it is at each call */
        assert_int_equal(ioctl(end, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = width}), 0);
        assert_int_equal(clv_terminal_width(terminal), width);
    }
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        setenv("COLUMNS", nothing[i], 1);
        assert_int_equal(clv_terminal_width(terminal), 200);
        assert_int_equal(clv_terminal_width(file), 80);
    }
    setenv("COLUMNS", "33", 1);
    assert_int_equal(clv_terminal_width(terminal), 33);
    assert_int_equal(clv_terminal_width(file), 33);
    unsetenv("COLUMNS");
    fclose(file);
    fclose(terminal);
    close(end);
}

static void test_text_width(void **state)
{
    assert_int_equal(clv_text_width(""), 0);
    assert_int_equal(clv_text_width("z\xc3\xbc"), 2);
    assert_int_equal(clv_text_width("\xe6\xbc\xa2\xe5\xad\x97"), 4);     /* two Han characters */
    assert_int_equal(clv_text_width("e\xcc\x81"), 1);                    /* with a mark put on it */
    assert_int_equal(clv_text_width("\xf0\x9f\x98\x80"), 2);             /* a face */
    assert_int_equal(clv_text_width("\xed\x95\x9c\xef\xbc\xa1\xff"), 5); /* Hangul, a wide A, no character */
}

static void expect_cut(const char *text, int width, bool middle, const char *want)
{
    char cut[64];
    snprintf(cut, sizeof cut, "%s", text);
    (middle ? clv_text_truncate_middle : clv_text_truncate)(cut, sizeof cut, width);
    assert_string_equal(cut, want);
    assert_true(clv_text_width(cut) <= width);
}

static void test_cut(void **state)
{
    setenv("LC_ALL", "C.UTF-8", 1);
    expect_cut("abcdef", 6, false, "abcdef");
    expect_cut("abcdef", 5, false, "abcd\xe2\x80\xa6");
    expect_cut("abcdef", 5, true,
               "ab\xe2\x80\xa6"
               "ef");
    expect_cut("abcdef", 1, false, "\xe2\x80\xa6");
    expect_cut("abcdef", 0, false, "");
    expect_cut("\xe6\xbc\xa2\xe5\xad\x97", 3, false, "\xe6\xbc\xa2\xe2\x80\xa6");
    expect_cut("\xe6\xbc\xa2\xe5\xad\x97", 2, false, "\xe2\x80\xa6"); /* half of one is none */
    expect_cut("\xe6\xbc\xa2\xe5\xad\x97", 2, true, "\xe2\x80\xa6");
    setenv("LC_ALL", "C", 1);
    expect_cut("abcdef", 5, false, "ab...");
    expect_cut("abcdef", 5, true, "a...f");
    expect_cut("abcdef", 2, false, "");
    setenv("LC_ALL", "", 1);
    setenv("LC_CTYPE", "en_US.utf8", 1);
    expect_cut("abcdef", 5, false, "abcd\xe2\x80\xa6");
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoded_ids), cmocka_unit_test(test_generated_text),
        cmocka_unit_test(test_noise),       cmocka_unit_test(test_tables),
        cmocka_unit_test(test_folded),      cmocka_unit_test(test_width),
        cmocka_unit_test(test_text_width),  cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, make_model, cli_remove_folder);
}
