/* error.h - error reporting: fills the caller's clv_error, keeps the first failure, checks arguments. */
#ifndef CLEAVE_BASE_ERROR_H
#define CLEAVE_BASE_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

/* As clv_fail, for a failure met while running `op` on `rank`. */
clv_status clv_fail_at(clv_error *err, clv_status code, int rank, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* CLV_EIO (CLV_ENOTFOUND when it does not exist) for errno, met while trying to `what` ("read") path. */
clv_status clv_fail_errno(clv_error *err, const char *what, const char *path);

/* For an error that is filled by hand: op and message as clv_fail would have them (printable.c). */
void clv_error_make_printable(clv_error *err);

/* CLV_EINVAL unless `given`: that call's arguments `what` are not NULL. For the public edge, status.h says. */
clv_status clv_require(int given, const char *call, const char *what, clv_error *err);

/* CLV_EINVAL unless n >= least: that call's number of `what` ("prompts"). */
clv_status clv_require_count(int64_t n, int64_t least, const char *call, const char *what, clv_error *err);

/* What a function of the caller's reported by its status and *why: the status, or CLV_EINVAL for one that there is not.
 * A message that came with another failure, which the function went on from, is taken out. */
clv_status clv_check_callback_status(clv_error *why, clv_status status, const char *function);

#ifdef __clang_analyzer__
/* What the analyzer cannot see from another file: a failure is never CLV_OK. */
static inline void clv_fail_uses(const char *format, ...)
{
    (void)format;
}
#define clv_fail(err, code, ...)          ((void)(err), clv_fail_uses(__VA_ARGS__), (code))
#define clv_fail_memory(err, what, bytes) ((void)(err), (void)(what), (void)(bytes), CLV_ENOMEM)
#endif

#endif
