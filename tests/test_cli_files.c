/* test_cli_files.c - what commands do to files: what is in the way of --out, limits and what killed runs leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli_run.h"

static const char tiny[] = "--layers 1 --hidden 8 --heads 1 --seq 8 --batch 1 --steps 1";

/* A file at the limit of its size is a failure of the command with a reason, and nothing unfinished stays. */
static void test_limit_on_sizes(void **state)
{
    (void)state;
    cli_shell(
        "seq 1000 >{d}/text; ulimit -f 4; $CLV_BUILD_DIR/cleave train --text {d}/text --out {d}/limited %s 2>{d}/said; "
        "test $? = 1 && grep -q 'File too large' {d}/said && ! ls {d}/limited | grep -F .tmp",
        tiny);
}

/* What train writes is a folder with a tokenizer, whose ids are the bytes of a text. */
static void test_tokenizer_of_bytes(void **state)
{
    (void)state;
    cli_shell("seq 1000 >{d}/text; $CLV_BUILD_DIR/cleave train --text {d}/text --out {d}/bytes %s 2>&1 >{d}/said",
              tiny);
    cli_expect(0, "122 195 188 32 60 115 62 10 9 127 226 130 172\n", "tokenize -m {d}/bytes -p '%s'",
               "z\xc3\xbc <s>\n\t\x7f\xe2\x82\xac");
    cli_expect(0, "z\xc3\xbc <s>\n\t\x7f\xe2\x82\xac", "tokenize -m {d}/bytes --decode -p '%s'",
               "122 195 188 32 60 115 62 10 9 127 226 130 172");
    cli_shell("grep -q '\"tokenizer_class\": \"PreTrainedTokenizerFast\"' {d}/bytes/tokenizer_config.json");
    cli_shell("cp -r {d}/bytes {d}/plain && rm {d}/plain/tokenizer*");
    for (int i = 0; i < 2; i++)
        cli_shell("$CLV_BUILD_DIR/cleave generate -m {d}/%s -p 'one \xc3\xbc' -n 8 --temp 0 --json >{d}/said.%d",
                  i ? "plain" : "bytes", i);
    cli_shell("grep -q '\"tokens\": 8' {d}/said.0 && cmp {d}/said.0 {d}/said.1");
}

static int tear_down(void **state)
{
    (void)state;
    cli_remove_folder();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_on_sizes),
        cmocka_unit_test(test_tokenizer_of_bytes),
    };
    return cmocka_run_group_tests_name("cli_files", tests, NULL, tear_down);
}
