/* error.h - setting a caller-owned clv_error where the fault is found. */
#ifndef CLEAVE_BASE_ERROR_H
#define CLEAVE_BASE_ERROR_H

#include <stddef.h>

#include "cleave/status.h"

/* Records code and message in err (which may be NULL, and keeps an earlier failure if it holds one) and returns
 * code, so that a check reads `return clv_fail(err, CLV_ESHAPE, "...", ...)`. rank is set to -1, op to "". */
clv_status clv_fail(clv_error *err, clv_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failure met while running `op` on `rank`. */
clv_status clv_fail_at(clv_error *err, clv_status code, int rank, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* For an error that is filled by hand: op and message as clv_fail would have them (printable.h). */
void clv_error_make_printable(clv_error *err);

/* CLV_EINVAL unless `given`: that call's arguments `what` are not NULL. For the public edge, status.h says. */
clv_status clv_require(int given, const char *call, const char *what, clv_error *err);

/* Out of memory while allocating `bytes` for `what`. */
clv_status clv_fail_memory(clv_error *err, const char *what, size_t bytes);

#ifdef __clang_analyzer__
/* What the analyzer cannot see from another file: a failure is never CLV_OK. */
static inline void clv_fail_uses(const char *format, ...)
{
    (void)format;
}
#define clv_fail(err, code, ...)          ((void)(err), clv_fail_uses(__VA_ARGS__), (code))
#define clv_fail_memory(err, what, bytes) ((void)(err), (void)(what), (void)(bytes), CLV_ENOMEM)
#endif

/* Returns from the enclosing function when the call fails. The only macro that hides control flow. */
#define CLV_TRY(call)                                                                                                  \
    do {                                                                                                               \
        clv_status try_status_ = (call);                                                                               \
        if (try_status_ != CLV_OK)                                                                                     \
            return try_status_;                                                                                        \
    } while (0)

#endif
