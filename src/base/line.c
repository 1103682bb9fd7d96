#include "base/line.h"

#include <stdlib.h>
#include <string.h>

void *clv_line_alloc(size_t count, size_t size)
{
    size_t bytes = (count * size + CLV_LINE - 1) / CLV_LINE * CLV_LINE;
    void *p = aligned_alloc(CLV_LINE, bytes);

    return p ? memset(p, 0, bytes) : NULL;
}
