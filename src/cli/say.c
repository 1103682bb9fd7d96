#include "cli/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

void clv_say(const char *format, ...)
{
    enum { LINE = 8192 };
    char raw[LINE], line[LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    clv_printable(line, sizeof line, raw, strlen(raw));
    fprintf(stderr, "%s\n", line);
}

void clv_print_name(const char *name)
{
    char *printable = clv_printable_copy(name);

    if (printable != NULL)
        fputs(printable, stdout);
    free(printable);
}
