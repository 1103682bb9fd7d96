/* printable.h - text from outside (names in files, arguments, tensors) on its way to a terminal or into a message. */
#ifndef CLEAVE_BASE_PRINTABLE_H
#define CLEAVE_BASE_PRINTABLE_H

#include <stddef.h>

/* Copies text so that it stays on its line and tells a terminal nothing: control characters, those that turn the direction of
 * writing, and bytes that are no UTF-8 are spelled \n, \x1b, \u202e. Text without any is as it was, backslashes too, so to do it
 * again changes nothing. By snprintf's convention, but no character or escape is cut: returns the length of the whole. */
size_t clv_printable(char *out, size_t size, const char *text, size_t length);
/* The same in memory that the caller frees; NULL when there is none. */
char *clv_printable_copy(const char *text);

#endif
