/* unit_test.h - cmocka, after the headers that it needs and does not include. */
#ifndef CLEAVE_TESTS_UNIT_TEST_H
#define CLEAVE_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
