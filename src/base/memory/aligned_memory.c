/* huge_pages.c - huge-page memory: large buffers on transparent huge pages, first-touch placement. */
#include "base/memory/huge_pages.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Of x86-64 and of arm64 with pages of 4 KiB. */
static const size_t huge = (size_t)2 << 20;

void *clv_huge_pages_alloc(size_t align, size_t bytes)
{
    if (bytes < huge)
        return aligned_alloc(align, bytes);
    void *p;
    if (posix_memalign(&p, align > huge ? align : huge, bytes) != 0) /* aligned_alloc wants whole multiples */
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Whole huge pages alone, so that nothing beyond the buffer becomes resident. Advice: a refusal is no failure. */
    (void)madvise(p, bytes / huge * huge, MADV_HUGEPAGE);
#endif
    return p;
}
