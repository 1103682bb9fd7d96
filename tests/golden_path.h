/* golden_path.h - where the models and values of tests/golden are. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A path below tests/golden, formatted as by printf; good until the eighth call after this one. */
static inline const char *golden_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *golden_path(const char *format, ...)
{
    enum { PATHS = 8, SIZE = 4096 };
    static char paths[PATHS][SIZE];
    static int next;
    const char *source = getenv("CLV_SOURCE_DIR");
    char *path = paths[next++ % PATHS];
    va_list args;
    int n = snprintf(path, SIZE, "%s/tests/golden/", source ? source : ".");
    va_start(args, format);
    vsnprintf(path + n, SIZE - (size_t)n, format, args);
    va_end(args);
    return path;
}
