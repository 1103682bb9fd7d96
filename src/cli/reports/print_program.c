/* print_program.c - prints a compiled program as text or Graphviz on stdout. */
#include "cli/reports/print_program.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/command.h"

int clv_print_program(const clv_program *program, size_t (*print)(char *, size_t, const clv_program *))
{
    size_t n = print(NULL, 0, program);
    char *text = malloc(n + 1);
    if (!text)
        return CLV_EXIT_FAILED;
    print(text, n + 1, program);
    fputs(text, stdout);
    free(text);
    return CLV_EXIT_OK;
}
