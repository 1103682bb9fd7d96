/* cache_line.c - cache-line aligned memory: avoids false sharing between threads. */
#include "base/memory/cache_line.h"

#include <stdlib.h>
#include <string.h>

void *clv_cache_line_alloc(size_t count, size_t size)
{
    size_t bytes = (count * size + CLV_CACHE_LINE - 1) / CLV_CACHE_LINE * CLV_CACHE_LINE;
    void *p = aligned_alloc(CLV_CACHE_LINE, bytes);

    return p ? memset(p, 0, bytes) : NULL;
}
