/* huge_pages.h - huge-page memory: large buffers on transparent huge pages, first-touch placement. */
#ifndef CLEAVE_BASE_MEMORY_HUGE_PAGES_H
#define CLEAVE_BASE_MEMORY_HUGE_PAGES_H

#include <stddef.h>

/* `bytes` > 0, a multiple of `align`, a power of two. Pages go where the thread that touches them first runs. Free with
 * free(). NULL when out of memory. */
void *clv_huge_pages_alloc(size_t align, size_t bytes);

#endif
