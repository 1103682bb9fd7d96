/* aligned_memory.c - aligned memory: cache-line aligned against false sharing, huge pages for large buffers. */
#include "base/memory/aligned_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *clv_cache_line_alloc(size_t count, size_t size)
{
    size_t bytes = (count * size + CLV_CACHE_LINE - 1) / CLV_CACHE_LINE * CLV_CACHE_LINE;
    void *p = aligned_alloc(CLV_CACHE_LINE, bytes);

    return p ? memset(p, 0, bytes) : NULL;
}

/* The huge page of x86-64, and of arm64 with base pages of 4 KiB. */
static const size_t huge = (size_t)2 << 20;

void *clv_huge_pages_alloc(size_t align, size_t bytes)
{
    if (bytes < huge)
        return aligned_alloc(align, bytes);
    void *p;
    if (posix_memalign(&p, align > huge ? align : huge, bytes) != 0) /* aligned_alloc needs a multiple of align */
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Only for whole huge pages, so that nothing beyond the buffer becomes resident. A refusal is harmless. */
    (void)madvise(p, bytes / huge * huge, MADV_HUGEPAGE);
#endif
    return p;
}
