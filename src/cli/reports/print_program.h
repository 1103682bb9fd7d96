/* print_program.h - prints a compiled program as text or Graphviz on stdout. */
#ifndef CLEAVE_CLI_REPORTS_PRINT_PROGRAM_H
#define CLEAVE_CLI_REPORTS_PRINT_PROGRAM_H

#include "cleave/program.h"

/* print: clv_program_print, clv_program_print_dot. Returns the exit code. */
int clv_print_program(const clv_program *program, size_t (*print)(char *, size_t, const clv_program *));

#endif
