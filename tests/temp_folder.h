/* temp_folder.h - a folder of a test program's own, there from its group's set-up to its tear-down. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/cleave_test_XXXXXX";

static inline int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* A path in it, good until the eighth call after this one. */
static inline const char *in_folder(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *in_folder(const char *format, ...)
{
    enum { PATHS = 8, SIZE = 512 };
    static char paths[PATHS][SIZE];
    static int next;
    char *path = paths[next++ % PATHS];
    va_list args;
    int n = snprintf(path, SIZE, "%s/", folder);
    va_start(args, format);
    vsnprintf(path + n, SIZE - (size_t)n, format, args);
    va_end(args);
    return path;
}
