#include "fuzz_command.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_ARGUMENTS = 64 };

int fuzz_command(int argc, char *const *argv)
{
    static FILE *nowhere;
    FILE *out = stdout, *err = stderr;
    char *own[MAX_ARGUMENTS + 1] = {NULL}; /* commands write the names of sub-commands into it */
    for (int i = 0; i < argc && i < MAX_ARGUMENTS; i++)
        own[i] = argv[i];
    if (!nowhere && !(nowhere = fopen("/dev/null", "w")))
        abort();
    stdout = stderr = nowhere;
    int code = cleave_main(argc < MAX_ARGUMENTS ? argc : MAX_ARGUMENTS, own);
    stdout = out;
    stderr = err;
    return code;
}
