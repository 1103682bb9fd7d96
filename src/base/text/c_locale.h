/* c_locale.h - locale-independent printf and strtod: numbers always have a decimal point. The
 * library formats all its text with these functions.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* snprintf and vsnprintf in the C locale. */
int clv_snprintf(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int clv_vsnprintf(char *out, size_t size, const char *format, va_list list) __attribute__((format(printf, 3, 0)));
/* Returns the value of strtod in the C locale. */
double clv_strtod(const char *text);
