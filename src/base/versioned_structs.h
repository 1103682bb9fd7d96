/* versioned_structs.h - versioned structs: copies public option and result structs by their leading size field, old
 * and new versions.
 */
#ifndef CLEAVE_BASE_VERSIONED_STRUCTS_H
#define CLEAVE_BASE_VERSIONED_STRUCTS_H

#include <stddef.h>

#include "cleave/status.h"

enum { CLV_STRUCT_SIZE_MAX = 1 << 16 /* bytes: no struct is ever larger, so a larger size is damage */ };

/* Copies what was given (NULL: nothing) into `out` of `size` bytes, zeros for the rest. A size of 0 is that of the
 * first version of the struct, `first`. @return CLV_EINVAL for a size that no version had; CLV_EUNSUPPORTED when a
 * field beyond `size`, which a later version knows, is set */
clv_status clv_options_copy_in(void *out, size_t size, size_t first, const void *given, const char *call,
                               clv_error *err);

/* The same for a struct that is handed out: fills the first *(size_t *)out bytes (0: `first`) from `from`, but for the
 * size. */
clv_status clv_struct_copy_out(void *out, size_t size, size_t first, const void *from, const char *call,
                               clv_error *err);

#endif
