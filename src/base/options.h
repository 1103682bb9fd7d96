/* options.h - option structs of the public interface that begin with their size, so that they may grow: a program built
 * against an older header hands in a shorter one. */
#ifndef CLEAVE_BASE_OPTIONS_H
#define CLEAVE_BASE_OPTIONS_H

#include <stddef.h>

#include "cleave/status.h"

enum { CLV_STRUCT_MOST = 1 << 16 /* bytes: no struct is ever larger, so a larger size is damage */ };

/* Copies what was given (NULL: nothing) into `out` of `size` bytes, zeros for the rest. A size of 0 is that of the
 * first version of the struct, `first`. @return CLV_EINVAL for a size that no version had; CLV_EUNSUPPORTED when a
 * field beyond `size`, which a later version knows, is set */
clv_status clv_take_options(void *out, size_t size, size_t first, const void *given, const char *call, clv_error *err);

/* The same for a struct that is handed out: fills the first *(size_t *)out bytes (0: `first`) from `from`, but for the
 * size. */
clv_status clv_give_struct(void *out, size_t size, size_t first, const void *from, const char *call, clv_error *err);

#endif
