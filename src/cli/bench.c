/* bench.c - cleave bench: the table of benchmarks, one file each (bench_*.c). */
#include <stddef.h>

#include "cli/command.h"

const struct clv_command clv_bench_commands[] = {
    {NULL, NULL, NULL, NULL, NULL},
};
