/** @file status.h - error handling: status codes, and the error struct with the message of a failure.
 *
 * Every function that can fail returns a clv_status and takes a clv_error as its last parameter. The caller owns the
 * clv_error; NULL means that the message is not needed. The message names the constraint that was violated, the valid
 * values and, if there is one, a suggestion. On failure out-parameters are not modified. There is no global or
 * thread-local last error, since ranks are threads. The library never exits, aborts or prints.
 *
 * A NULL argument that must not be NULL is CLV_EINVAL. A function that returns no status then returns 0, NULL, CLV_NONE
 * or an empty string; a graph builder puts the graph into its error state.
 */
#ifndef CLEAVE_STATUS_H
#define CLEAVE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CLV_API                  __attribute__((visibility("default")))
#define CLV_PRINTF(text, values) __attribute__((__format__(__printf__, text, values)))
#else
#define CLV_API
#define CLV_PRINTF(text, values)
#endif
/** A function of the library like CLV_API, which may still change in any release; from 1.0 on CLV_API ones do not. */
#define CLV_EXPERIMENTAL CLV_API

/** X(code, name, text): one row per status. */
#define CLV_STATUS_TABLE(X)                                                                                            \
    X(CLV_OK, "ok", "no error")                                                                                        \
    X(CLV_EINVAL, "invalid", "an argument is out of its range")                                                        \
    X(CLV_ESHAPE, "shape", "shapes do not fit together")                                                               \
    X(CLV_EDTYPE, "dtype", "a dtype is unknown or not accepted here")                                                  \
    X(CLV_ESYNTAX, "syntax", "a text could not be parsed")                                                             \
    X(CLV_EAXIS, "axis", "a mesh axis is unknown or used twice")                                                       \
    X(CLV_ELIMIT, "limit", "a documented limit is exceeded")                                                           \
    X(CLV_ENOMEM, "memory", "memory could not be allocated")                                                           \
    X(CLV_EIO, "io", "a file could not be read or written")                                                            \
    X(CLV_EFORMAT, "format", "a file does not follow its format")                                                      \
    X(CLV_ENOTFOUND, "not-found", "a name does not exist")                                                             \
    X(CLV_EEXIST, "exists", "a name exists already")                                                                   \
    X(CLV_EUNSUPPORTED, "unsupported", "valid, but not supported")                                                     \
    X(CLV_EPEER, "peer", "another rank failed")                                                                        \
    X(CLV_ETIMEOUT, "timeout", "a deadline passed")                                                                    \
    X(CLV_ENONFINITE, "not-finite", "a value is infinite or not a number")                                             \
    X(CLV_ECHECK, "check", "an op violates its contract, or accessed memory that it does not own")                     \
    X(CLV_ECANCELLED, "cancelled", "the caller cancelled the call")

/** CLV_OK (0), or the kind of failure. */
typedef enum clv_status {
#define CLV_STATUS_ENUM(code, name, text) code,
    CLV_STATUS_TABLE(CLV_STATUS_ENUM)
#undef CLV_STATUS_ENUM
} clv_status;

/** A failure, described for people. Zero-initialize it. The first failure is kept and never overwritten. */
typedef struct clv_error {
    clv_status code;
    int rank;          /**< the rank that failed; -1: no particular rank */
    char op[96];       /**< the op (and layer) that failed; "": no particular op */
    char message[512]; /**< one line without a newline; a longer text is shortened in the middle */
} clv_error;

/** The short name of a status, "shape"; "unknown" for a value outside the enum. */
CLV_API const char *clv_status_name(clv_status status);
/** The meaning of a status in one line; "not a status of this library" for a value outside the enum. */
CLV_API const char *clv_status_text(clv_status status);

/** Records a failure in *err and returns `code`, so that a check reads `return clv_fail(err, CLV_ESHAPE, "...", ...)`.
 *  err may be NULL; if it already holds a failure, it keeps that one. For callbacks (clv_state_source) and programs
 *  that report errors as the library does. `format` is as for printf; control characters in the result are escaped.
 *  Sets rank to -1 and op to "". */
CLV_API clv_status clv_fail(clv_error *err, clv_status code, const char *format, ...) CLV_PRINTF(3, 4);
/** Records a failed allocation of `bytes` for `what`, and returns CLV_ENOMEM. */
CLV_API clv_status clv_fail_memory(clv_error *err, const char *what, size_t bytes);

/** Progress callback: called from time to time on the caller's thread; `done` of `total` units (bytes, blocks)
 *  are done. */
typedef void clv_progress_callback(void *arg, int64_t done, int64_t total);

/** Evaluates a call that returns a clv_status; if it fails, returns its status from the enclosing function. */
#define CLV_TRY(call)                                                                                                  \
    do {                                                                                                               \
        clv_status try_status_ = (call);                                                                               \
        if (try_status_ != CLV_OK)                                                                                     \
            return try_status_;                                                                                        \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
