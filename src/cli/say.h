/* say.h - lines and names for people: what comes from outside (arguments, files, tensors) is made printable (base/printable.h).
 *
 * Every %s that is neither the program's own nor data goes through these, a table (table.h) or a clv_error.
 */
#ifndef CLEAVE_CLI_SAY_H
#define CLEAVE_CLI_SAY_H

/* A line of talk on stderr, which is given its end here. */
void clv_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A name on stdout. */
void clv_print_name(const char *name);

#endif
