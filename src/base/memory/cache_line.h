/* cache_line.h - cache-line aligned memory: avoids false sharing between threads. */
#ifndef CLEAVE_BASE_MEMORY_CACHE_LINE_H
#define CLEAVE_BASE_MEMORY_CACHE_LINE_H

#include <stddef.h>

enum { CLV_CACHE_LINE = 128 /* two cache lines: the adjacent-line prefetcher takes pairs */ };

/* Zeroed memory for count objects of `size` bytes, both above 0, that begins and ends a line. Free with free(). NULL
 * when out of memory. */
void *clv_cache_line_alloc(size_t count, size_t size);

#endif
