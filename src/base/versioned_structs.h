/* versioned_structs.h - versioned structs: copies public option and result structs by their leading size field, old
 * and new versions.
 */
#ifndef CLEAVE_BASE_VERSIONED_STRUCTS_H
#define CLEAVE_BASE_VERSIONED_STRUCTS_H

#include <stddef.h>

#include "cleave/status.h"

enum { CLV_STRUCT_SIZE_MAX = 1 << 16 /* bytes: no struct is ever larger, so a larger size is corrupt */ };

/* Copies a caller's options struct (NULL: all defaults) into `out`, our version of it, of `size` bytes. Missing fields
 * become 0. A stated size of 0 means `first`, the size of the struct in 1.0 (until then sizeof; the offset of the first
 * field that a later version adds).
 * @return CLV_EINVAL for a size that no version had; CLV_EUNSUPPORTED when a field beyond `size`, of a later version,
 *         is set */
clv_status clv_options_copy_in(void *out, size_t size, size_t first, const void *given, const char *call,
                               clv_error *err);

/* Fills a caller's result struct from `from`, our version of it: the first *(size_t *)out bytes (0: `first`), except
 * the size field. */
clv_status clv_struct_copy_out(void *out, size_t size, size_t first, const void *from, const char *call,
                               clv_error *err);

#endif
