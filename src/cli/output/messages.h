/* messages.h - messages on stderr and untrusted text on stdout, control characters escaped.
 *
 * What a model wrote is data: its bytes go out as they are, but to a terminal they are shown (clv_print_untrusted).
 * Every %s that is neither the program's own nor data goes through these, a table (table.h) or a clv_error.
 */
#ifndef CLEAVE_CLI_OUTPUT_MESSAGES_H
#define CLEAVE_CLI_OUTPUT_MESSAGES_H

#include <stddef.h>

#include "cleave/status.h"

/* A line of talk on stderr, which is given its end here. */
void clv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "cleave train: message (op sum)": how a failure is told. */
enum { CLV_FAILURE_LINE = 4 * sizeof(clv_error) };
void clv_format_failure(char out[CLV_FAILURE_LINE], const char *who, const clv_error *err);
/* A name on stdout. */
void clv_print_name(const char *name);

/* A text on stdout that comes in pieces, which may end within a character. Zero-initialised: at its begin. */
typedef struct clv_untrusted_text {
    size_t n;
    char open[4]; /* of a character that is not whole yet */
} clv_untrusted_text;

/* The next piece: the bytes themselves; on a terminal, control characters other than newline and tab are spelled, for
 * they could move the cursor, rename the window or answer for the user. */
void clv_print_untrusted(clv_untrusted_text *shown, const char *text, size_t size);
/* No piece follows. */
void clv_print_untrusted_end(clv_untrusted_text *shown);

#endif
