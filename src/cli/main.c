/* main.c - cleave: the table of commands. */
#include <stdio.h>

#include "cli/command.h"

static const struct clv_command commands[] = {
    {"bench", "time the parts and the whole", NULL, NULL, clv_bench_commands},
    {"version", "print versions, CPU features and the ranks possible", "Example:\n  cleave version --json\n",
     command_version, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    static char name[] = "cleave";
    int code;

    if (argc > 0)
        argv[0] = name;
    code = clv_command_dispatch(commands, argc, argv);
    /* A full disk or a closed pipe shows only here. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "cleave: standard output could not be written\n");
        return code == CLV_EXIT_OK ? CLV_EXIT_FAILED : code;
    }
    return code;
}
