/* c_locale.c - locale-independent printf and strtod: numbers always have a decimal point. */
#include "base/text/c_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* This thread's locale, in place of which "C" is used; where there is no memory for that, it stays. */
typedef struct own_locale {
    locale_t plain, own;
} own_locale;

static own_locale use_c_locale(void)
{
    own_locale l = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    l.own = uselocale(l.plain);
    return l;
}

static void restore_locale(own_locale l)
{
    uselocale(l.own);
    if (l.plain)
        freelocale(l.plain);
}

int clv_vsnprintf(char *out, size_t size, const char *format, va_list list)
{
    own_locale l = use_c_locale();
    int n = vsnprintf(out, size, format, list);
    restore_locale(l);
    return n;
}

int clv_snprintf(char *out, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = clv_vsnprintf(out, size, format, list);
    va_end(list);
    return n;
}

double clv_strtod(const char *text)
{
    own_locale l = use_c_locale();
    double value = strtod(text, NULL);
    restore_locale(l);
    return value;
}
