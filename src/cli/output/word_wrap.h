/* word_wrap.h - word-wrapping of help text. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Prints the words of a text of n bytes, apart by a blank, behind `at` columns that are used; no line is longer than
 * `width`, and others than the first begin at `indent`. A word that is longer than a line is parted behind a comma of
 * it, where there is one. A newline ends the last. */
void clv_print_wrapped(FILE *to, const char *text, size_t n, int at, int indent, int width);

/* The help of a command: paragraphs, apart by an empty line, are filled; from "Example" on, lines are kept. */
void clv_print_help(FILE *to, const char *help);
