/* messages.c - messages on stderr and untrusted text on stdout, control characters escaped. */
#include "cli/output/messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/text.h"
#include "cli/output/progress.h"

void clv_log(const char *format, ...)
{
    enum { LINE = 8192 };
    char raw[LINE], line[LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    clv_printable(line, sizeof line, raw, strlen(raw));
    clv_progress_clear_bar();
    fprintf(stderr, "%s\n", line);
}

void clv_format_failure(char out[CLV_FAILURE_LINE], const char *who, const clv_error *err)
{
    char raw[CLV_FAILURE_LINE];
    const char *message = err->message[0] != '\0' ? err->message : clv_status_text(err->code);
    bool has_op = err->op[0] != '\0';
    snprintf(raw, sizeof raw, "%s: %s%s%s%s", who, message, has_op ? " (op " : "", err->op, has_op ? ")" : "");
    clv_printable(out, CLV_FAILURE_LINE, raw, strlen(raw));
}

void clv_print_name(const char *name)
{
    char *printable = clv_printable_copy(name);

    if (printable != NULL)
        fputs(printable, stdout);
    free(printable);
}

void clv_print_untrusted_end(clv_untrusted_text *shown)
{
    for (size_t at = 0, n; at < shown->n; at += n) {
        char spelled[16];
        n = clv_utf8_character(shown->open + at, shown->n - at);
        n = n > 0 ? n : 1;
        clv_printable(spelled, sizeof spelled, shown->open + at, n);
        if (shown->open[at] == '\n' || shown->open[at] == '\t')
            putchar(shown->open[at]);
        else
            fputs(spelled, stdout);
    }
    shown->n = 0;
}

void clv_print_untrusted(clv_untrusted_text *shown, const char *text, size_t size)
{
    if (isatty(STDOUT_FILENO) != 1) {
        fwrite(text, 1, size, stdout);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        shown->open[shown->n++] = text[i];
        if (!clv_utf8_ends_inside_character(shown->open, shown->n))
            clv_print_untrusted_end(shown);
    }
}
