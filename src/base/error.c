/* error.c - error reporting: fills the caller's clv_error, keeps the first failure, checks arguments. Messages
 * contain untrusted names and paths, so all of them are escaped here.
 */
#include "base/error.h"
#include "base/text/c_locale.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/text.h"

#undef clv_fail /* error.h defines macros for the analyzer */
#undef clv_fail_memory

/* Shortens a text in the middle, where long paths and names are: the reason is often at its end. */
static void elide(char *text, size_t length, size_t size)
{
    static const char gap[] = " ... ";
    size_t kept = (size - sizeof gap) / 2;
    if (length < size)
        return;
    memcpy(text + kept, gap, sizeof gap - 1);
    memmove(text + kept + sizeof gap - 1, text + length - kept, kept + 1);
}

static void record(clv_error *err, clv_status code, int rank, const char *op, const char *format, va_list args)
{
    if (err == NULL || err->code != CLV_OK)
        return;
    char message[8192]; /* fits the longest path and more */
    err->code = code;
    err->rank = rank;
    clv_printable(err->op, sizeof err->op, op, strlen(op));
    if (!format || clv_vsnprintf(message, sizeof message, format, args) < 0)
        snprintf(message, sizeof message, "%s", clv_status_text(code));
    elide(message, strlen(message), sizeof err->message);
    clv_printable(err->message, sizeof err->message, message, strlen(message));
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
    record(err, code, rank, op != NULL ? op : "", format, args);
    va_end(args);
    return code;
}

void clv_error_make_printable(clv_error *err)
{
    clv_error raw = *err;

    clv_printable(err->op, sizeof err->op, raw.op, strlen(raw.op));
    clv_printable(err->message, sizeof err->message, raw.message, strlen(raw.message));
}

clv_status clv_require(int given, const char *call, const char *what, clv_error *err)
{
    return given ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: %s must not be NULL", call, what);
}

clv_status clv_require_count(int64_t n, int64_t least, const char *call, const char *what, clv_error *err)
{
    return n >= least ? CLV_OK
                      : clv_fail(err, CLV_EINVAL, "%s: %lld %s; valid: %lld and above", call, (long long)n, what,
                                 (long long)least);
}

clv_status clv_check_callback_status(clv_error *why, clv_status status, const char *function)
{
#define ONE(code, name, text) +1
    enum { STATUSES = 0 CLV_STATUS_TABLE(ONE) };
#undef ONE
    bool is_known = (unsigned)status < (unsigned)STATUSES;

    if (!is_known || (why->code != CLV_OK && why->code != status))
        *why = (clv_error){.rank = -1};
    return is_known ? status
                    : clv_fail(why, CLV_EINVAL, "%s returned %d, which is no status; valid: 0 to %d", function,
                               (int)status, STATUSES - 1);
}

void clv_free_variable(void *variable)
{
    void *memory;
    memcpy(&memory, variable, sizeof memory);
    free(memory);
}

clv_status clv_fail_memory(clv_error *err, const char *what, size_t bytes)
{
    return clv_fail(err, CLV_ENOMEM, "out of memory: %zu bytes for %s", bytes, what ? what : "something");
}

clv_status clv_fail_errno(clv_error *err, const char *what, const char *path)
{
    int code = errno;
    char buffer[128];

    return clv_fail(err, code == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot %s: %s", path, what,
                    strerror_r(code, buffer, sizeof buffer));
}
