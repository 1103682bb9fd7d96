/* c_locale.c - locale-independent printf and strtod: numbers always have a decimal point. */
#include "base/text/c_locale.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* The C locale, and the thread's locale that it replaces; without memory for the former, the thread keeps its own. */
typedef struct locale_switch {
    locale_t c, previous;
} locale_switch;

static locale_switch use_c_locale(void)
{
    locale_switch l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    l.previous = uselocale(l.c);
    return l;
}

static void restore_locale(locale_switch l)
{
    uselocale(l.previous);
    if (l.c)
        freelocale(l.c);
}

int clv_vsnprintf(char *out, size_t size, const char *format, va_list list)
{
    locale_switch l = use_c_locale();
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
    locale_switch l = use_c_locale();
    double value = strtod(text, NULL);
    restore_locale(l);
    return value;
}
