/* unit_test.h - cmocka, after the headers that it needs and does not include. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
