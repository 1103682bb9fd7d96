/* error.h - error reporting: fills the caller's clv_error, keeps the first failure, checks arguments and the sizes of
 * structs. */
#pragma once

#include "cleave/status.h"

/* As clv_fail, for a failure of `op` on `rank`. */
clv_status clv_fail_at(clv_error *err, clv_status code, int rank, const char *op, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Fails with the message of errno after an attempt to `what` ("read") path: CLV_ENOTFOUND for ENOENT, else CLV_EIO. */
clv_status clv_fail_errno(clv_error *err, const char *what, const char *path);

/* Escapes op and message of an error that was not filled by clv_fail (printable.c). */
void clv_error_make_printable(clv_error *err);

/* Checks the arguments of a public function: fails with CLV_EINVAL unless `given`, with a message that `call` was given
 * NULL for `what`. */
clv_status clv_require(int given, const char *call, const char *what, clv_error *err);

/* Fails with CLV_EINVAL unless n, the number of `what` ("prompts") given to `call`, is at least `least`. */
clv_status clv_require_count(int64_t n, int64_t least, const char *call, const char *what, clv_error *err);

/* Checks the status that a user's callback returned: returns it, or CLV_EINVAL if it is not in the enum. Clears *why if
 * it holds the message of another failure, from which the callback recovered. */
clv_status clv_check_callback_status(clv_error *why, clv_status status, const char *function);

/* ---- public structs of options and results, which begin with their size (versioned_structs.c) ---- */

enum { CLV_STRUCT_SIZE_MAX = 1 << 16 /* bytes: no struct is ever larger, so a larger size is corrupt */ };

/* Copies a caller's options struct (NULL: all defaults) into `out`, our version of it, of `size` bytes. Missing fields
 * become 0. A stated size of 0 means `first`, the size of the struct's first version.
 * @return CLV_EINVAL for a size that no version had; CLV_EUNSUPPORTED when a field beyond `size`, of a later version,
 *         is set */
clv_status clv_options_copy_in(void *out, size_t size, size_t first, const void *given, const char *call,
                               clv_error *err);

/* Fills a caller's result struct from `from`, our version of it: the first *(size_t *)out bytes (0: `first`), except
 * the size field. */
clv_status clv_struct_copy_out(void *out, size_t size, size_t first, const void *from, const char *call,
                               clv_error *err);

/* A local variable, initialised, for whose address `function` is called when its scope ends, also where CLV_TRY leaves
 * it: `CLV_CLEANUP(clv_text_buffer_free) clv_text_buffer text = {0};`. */
#define CLV_CLEANUP(function) __attribute__((cleanup(function)))
/* The same for malloc'd memory: `CLV_FREED char *text = NULL;`. (jansson's for a document is json_auto_t.) */
#define CLV_FREED             CLV_CLEANUP(clv_free_variable)
void clv_free_variable(void *variable);

#ifdef __clang_analyzer__
/* Tells the analyzer what it cannot see across files: clv_fail never returns CLV_OK. */
static inline void clv_fail_uses(const char *format, ...)
{
}
#define clv_fail(err, code, ...)          ((void)(err), clv_fail_uses(__VA_ARGS__), (code))
#define clv_fail_memory(err, what, bytes) ((void)(err), (void)(what), (void)(bytes), CLV_ENOMEM)
#endif
