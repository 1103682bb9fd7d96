/* messages.h - messages on stderr and untrusted text on stdout, control characters escaped.
 *
 * Text of a model is data: clv_print_untrusted writes its bytes, with control characters escaped on a terminal. Any
 * other text that is not the program's own is printed by these functions, a table (table.h) or a clv_error.
 */
#pragma once

#include "cleave/status.h"

/* Prints a line on stderr; the newline is added. */
void clv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "cleave train: message (op sum)" */
enum { CLV_FAILURE_LINE = 4 * sizeof(clv_error) };
void clv_format_failure(char out[CLV_FAILURE_LINE], const char *who, const clv_error *err);
/* Prints a name on stdout. */
void clv_print_name(const char *name);

/* Text on stdout that comes in pieces, which may end within a character. Zero-initialise. */
typedef struct clv_untrusted_text {
    size_t n;
    char open[4]; /* bytes of an incomplete character */
} clv_untrusted_text;

/* Prints the next piece. On a terminal, control characters other than newline and tab are escaped: they could move the
 * cursor, rename the window or answer for the user. */
void clv_print_untrusted(clv_untrusted_text *shown, const char *text, size_t size);
/* Ends the text. */
void clv_print_untrusted_end(clv_untrusted_text *shown);
