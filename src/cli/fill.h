/* fill.h - text of help, its lines filled with words. */
#ifndef CLEAVE_CLI_FILL_H
#define CLEAVE_CLI_FILL_H

#include <stddef.h>
#include <stdio.h>

enum { CLV_FILL_COLUMNS = 100 };

/* Prints the words of a text of n bytes, apart by a blank, behind `at` columns that are used; no line is longer than
 * CLV_FILL_COLUMNS unless a word is, and others than the first begin at `indent`. A newline ends the last. */
void clv_print_filled(FILE *to, const char *text, size_t n, int at, int indent);

/* The help of a command: paragraphs, apart by an empty line, are filled; from "Example" on it is as it stands. */
void clv_print_help(FILE *to, const char *help);

#endif
