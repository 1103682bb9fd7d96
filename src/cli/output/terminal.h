/* terminal.h - terminal width, display width of UTF-8 text, and truncation to it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What is taken where neither the environment nor the stream says how wide its terminal is. */
enum { CLV_TERMINAL_WIDTH = 80 };

/* The columns that a line on this stream may have: COLUMNS of the environment, else those of the terminal's window now,
 * else CLV_TERMINAL_WIDTH. At least 1. */
int clv_terminal_width(FILE *stream);

/* Whether text may have characters beyond ASCII: the environment names no other encoding than UTF-8. */
bool clv_terminal_is_utf8(void);

/* The columns of printable UTF-8: 2 of a wide (East Asian) character, 0 of one that is put on the one before. */
int clv_text_width(const char *text);

/* Shortens text in place to at most `width` columns: its end gives way to "…", which is "..." where the environment
 * names an encoding other than UTF-8. A width that is too small for that leaves nothing. */
void clv_text_truncate(char *text, size_t size, int width);
/* The same, but the middle gives way: of a name, the end tells more than the middle. */
void clv_text_truncate_middle(char *text, size_t size, int width);
