/* plain_format.h - numbers in text as the locale "C" has them, with a point, whatever locale the program has set: texts
 * are read by others, and read back. Of this library's formatted text all is made here. */
#ifndef CLEAVE_BASE_PLAIN_FORMAT_H
#define CLEAVE_BASE_PLAIN_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/* snprintf, vsnprintf. */
int clv_format(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int clv_format_list(char *out, size_t size, const char *format, va_list list) __attribute__((format(printf, 3, 0)));
/* strtod's value. */
double clv_read_real(const char *text);

#endif
