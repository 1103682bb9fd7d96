/* pages.h - memory for large buffers, on huge pages where the system grants them: fewer page faults when it is filled
 * and fewer TLB misses when it is streamed. */
#ifndef CLEAVE_BASE_PAGES_H
#define CLEAVE_BASE_PAGES_H

#include <stddef.h>

/* `bytes` > 0, a multiple of `align`, a power of two. Pages go where the thread that touches them first runs. Free with
 * free(). NULL when out of memory. */
void *clv_pages_alloc(size_t align, size_t bytes);

#endif
