/** @file status.h - what a call returns, and the message that goes with a failure.
 *
 * Every fallible function returns a clv_status and takes, as its last parameter, a clv_error owned by the caller
 * (NULL where the message is not wanted). The message names the constraint that was broken, what would be valid
 * and, where there is one, a suggestion. Out-parameters are untouched on failure. There is no global or
 * thread-local last error: ranks are threads. The library never exits, aborts or prints.
 *
 * A NULL where something is needed is CLV_EINVAL. What returns no status returns nothing then: 0, NULL, CLV_NONE, an
 * empty text; a builder of a graph fails the graph.
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

/** X(code, name, text): one row a status. */
#define CLV_STATUS_TABLE(X)                                                                                            \
    X(CLV_OK, "ok", "no error")                                                                                        \
    X(CLV_EINVAL, "invalid", "an argument is out of its range")                                                        \
    X(CLV_ESHAPE, "shape", "shapes do not fit together")                                                               \
    X(CLV_EDTYPE, "dtype", "a dtype is unknown or not accepted here")                                                  \
    X(CLV_ESYNTAX, "syntax", "a text form could not be parsed")                                                        \
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
    X(CLV_ECHECK, "check", "an op does not do what it says, or touched memory that is not its own")                    \
    X(CLV_ECANCELLED, "cancelled", "the caller asked to end")

/** CLV_OK, which is 0, or what went wrong. */
typedef enum clv_status {
#define CLV_STATUS_ENUM(code, name, text) code,
    CLV_STATUS_TABLE(CLV_STATUS_ENUM)
#undef CLV_STATUS_ENUM
} clv_status;

/** A failure, described for a person. Zero-initialise it; set once, where the fault is found, never overwritten. */
typedef struct clv_error {
    clv_status code;
    int rank;          /**< the rank that failed, -1 when it concerns no rank */
    char op[96];       /**< the op (and layer) that failed, "" when it concerns none */
    char message[512]; /**< one line, no newline at its end; of a longer text the two ends */
} clv_error;

/** The short name ("shape") and the one-line meaning of a status; "unknown" for a value outside the enum. */
CLV_API const char *clv_status_name(clv_status status);
/** See clv_status_name. */
CLV_API const char *clv_status_text(clv_status status);

/** Records a failure in err, which may be NULL and keeps an earlier one if it holds one, and returns `code`, so that a
 *  check reads `return clv_fail(err, CLV_ESHAPE, "...", ...)`: for callbacks (clv_state_source) and for programs that
 *  report as the library does. `format` is printf's; control characters in the text are spelled out. rank becomes -1,
 *  op "". */
CLV_API clv_status clv_fail(clv_error *err, clv_status code, const char *format, ...) CLV_PRINTF(3, 4);
/** The same for memory that could not be had: CLV_ENOMEM, `bytes` for `what`. */
CLV_API clv_status clv_fail_memory(clv_error *err, const char *what, size_t bytes);

/** Called now and then, on the caller's thread, with what is done so far, of all (bytes, blocks). */
typedef void clv_progress_callback(void *arg, int64_t done, int64_t total);

/** Returns from the enclosing function, whose result is a clv_status, when the call fails. */
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
