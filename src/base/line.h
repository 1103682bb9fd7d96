/* line.h - memory that threads share without disturbing each other: what they write lies lines apart. */
#ifndef CLEAVE_BASE_LINE_H
#define CLEAVE_BASE_LINE_H

#include <stddef.h>

enum { CLV_LINE = 128 /* two cache lines: the adjacent-line prefetcher takes pairs */ };

/* Zeroed memory for count objects of `size` bytes, both above 0, that begins and ends a line. Free with free(). NULL
 * when out of memory. */
void *clv_line_alloc(size_t count, size_t size);

#endif
