/* grow.h - growable malloc'd arrays: reserves capacity, doubling it. */
#pragma once

#include "cleave/status.h"

/* Reallocates the array that `array`, a T **, points to, for 2 n elements. */
clv_status clv_grow_reallocate(void *array, int64_t *capacity, int64_t n, size_t element_size, const char *what,
                               clv_error *err);

/* Makes room for n elements of a malloc'd array: array is a T **, *capacity its number of elements. `what` names it in
 * CLV_ENOMEM, after which the array is as before. */
static inline clv_status clv_grow(void *array, int64_t *capacity, int64_t n, size_t element_size, const char *what,
                                  clv_error *err)
{
    return n <= *capacity ? CLV_OK : clv_grow_reallocate(array, capacity, n, element_size, what, err);
}
