/* grow.c - growable malloc'd arrays: reserves capacity, doubling it. */
#include "base/memory/grow.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

clv_status clv_grow_reallocate(void *array, int64_t *capacity, int64_t n, size_t element_size, const char *what,
                               clv_error *err)
{
    enum { LEAST = 16 };
    void *items;
    size_t count = 2 * (size_t)n + LEAST;
    memcpy(&items, array, sizeof items);
    void *grown = count <= PTRDIFF_MAX / element_size ? realloc(items, count * element_size) : NULL;
    if (!grown)
        return clv_fail_memory(err, what, count * element_size);
    memcpy(array, &grown, sizeof grown);
    *capacity = (int64_t)count;
    return CLV_OK;
}
