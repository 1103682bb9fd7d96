/* error.c - filling a clv_error: the first failure is kept, whatever follows it on the way up. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef clv_fail /* what the analyzer is given instead */
#undef clv_fail_memory

static void record(clv_error *err, clv_status code, int rank, const char *op, const char *format, va_list args)
{
    if (err == NULL || err->code != CLV_OK)
        return;
    err->code = code;
    err->rank = rank;
    snprintf(err->op, sizeof err->op, "%s", op != NULL ? op : "");
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
        snprintf(err->message, sizeof err->message, "%s", clv_status_text(code));
}

clv_status clv_fail(clv_error *err, clv_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record(err, code, -1, "", format, args);
    va_end(args);
    return code;
}

clv_status clv_fail_at(clv_error *err, clv_status code, int rank, const char *op, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record(err, code, rank, op, format, args);
    va_end(args);
    return code;
}

clv_status clv_fail_memory(clv_error *err, const char *what, size_t bytes)
{
    return clv_fail(err, CLV_ENOMEM, "out of memory: %zu bytes for %s", bytes, what);
}
