/* fuzz_lines.h - an input as lines of text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Cuts a copy of the input at newlines (and at the first zero byte) into at most `room` lines; those that it does not
 * have are empty. Returns how many it has. *copy is the caller's to free; NULL when there is no memory. */
int fuzz_lines(char **copy, char **line, int room, const uint8_t *data, size_t size);
