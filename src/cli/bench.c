/* bench.c - cleave bench: the table of benchmarks, one file each (bench_*.c). */
#include <stddef.h>

#include "cli/command.h"

const struct clv_command clv_bench_commands[] = {
    {"allreduce", "time the sum of a buffer over ranks",
     "Times all_reduce of f32 buffers in place over N ranks (threads), from a barrier until rank 0 has the\n"
     "sum; GB/s is the buffer's bytes by the median time. The result is checked.\n\n"
     "Example: cleave bench allreduce -tp 2 --bytes 16K,64M\n",
     bench_allreduce, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
