/* aligned_memory.h - aligned memory: cache-line aligned against false sharing, huge pages for large buffers. */
#pragma once

#include <stddef.h>

enum { CLV_CACHE_LINE = 128 /* two cache lines: the adjacent-line prefetcher takes pairs */ };

/* Returns zeroed memory for count objects of `size` bytes, both above 0, that starts at and fills whole cache lines.
 * Freed with free(). NULL when out of memory. */
void *clv_cache_line_alloc(size_t count, size_t size);

/* Returns memory of `bytes` > 0, a multiple of `align`, which is a power of two; on transparent huge pages where it is
 * large. A page is placed on the NUMA node of the thread that first touches it. Freed with free(). NULL when out of
 * memory. */
void *clv_huge_pages_alloc(size_t align, size_t bytes);
