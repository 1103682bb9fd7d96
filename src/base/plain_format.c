/* plain_format.c - see plain_format.h. */
#include "base/plain_format.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* This thread's locale, in place of which "C" is used; where there is no memory for that, it stays. */
typedef struct own_locale {
    locale_t plain, own;
} own_locale;

static own_locale leave_locale(void)
{
    own_locale l = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    l.own = uselocale(l.plain);
    return l;
}

static void return_to_locale(own_locale l)
{
    uselocale(l.own);
    if (l.plain)
        freelocale(l.plain);
}

int clv_format_list(char *out, size_t size, const char *format, va_list list)
{
    own_locale l = leave_locale();
    int n = vsnprintf(out, size, format, list);
    return_to_locale(l);
    return n;
}

int clv_format(char *out, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = clv_format_list(out, size, format, list);
    va_end(list);
    return n;
}

double clv_read_real(const char *text)
{
    own_locale l = leave_locale();
    double value = strtod(text, NULL);
    return_to_locale(l);
    return value;
}
