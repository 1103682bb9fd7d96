/* fuzz_einsum.c - cleave einsum without --run: a line each of equation, shape, mesh, layouts of both operands and of
 * the result, and dtype. It plans, or says what is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/command.h"
#include "fuzz.h"
#include "fuzz_command.h"
#include "fuzz_lines.h"

enum { LINES = 7 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[LINES] = {"", "--shape=", "--mesh=", "--in=", "--in=", "--out=", "--dtype="};
    char *text, *line[LINES], *argv[LINES + 2] = {(char[]){"cleave"}, (char[]){"einsum"}};
    int n = fuzz_lines(&text, line, LINES, data, size), made = 0;
    if (n > 0 && line[0][0] != '-') /* no option: not --run */
        for (; made < (n < LINES ? LINES - 1 : LINES); made++)
            if (asprintf(&argv[made + 2], "%s%s", names[made], line[made]) < 0)
                abort();
    int code = made ? fuzz_command(made + 2, argv) : CLV_EXIT_OK;
    for (int i = 0; i < made; i++)
        free(argv[i + 2]);
    free(text);
    if (code != CLV_EXIT_OK && code != CLV_EXIT_USAGE)
        abort();
    return 0;
}
