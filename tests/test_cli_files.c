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
    };
    return cmocka_run_group_tests_name("cli_files", tests, NULL, tear_down);
}
