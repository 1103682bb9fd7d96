/* test_base.c - statuses, errors and arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleave/status.h"

static void status_has_a_name_and_text(void **state)
{
    (void)state;
    assert_string_equal(clv_status_name(CLV_OK), "ok");
    assert_string_equal(clv_status_name(CLV_ESHAPE), "shape");
    assert_string_equal(clv_status_name(CLV_ETIMEOUT), "timeout");
    assert_string_equal(clv_status_text(CLV_EAXIS), "a mesh axis is unknown or used twice");
    assert_string_equal(clv_status_name((clv_status)99), "unknown");
    assert_string_equal(clv_status_name((clv_status)-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_has_a_name_and_text),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
