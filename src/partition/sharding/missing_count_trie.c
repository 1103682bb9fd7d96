/* missing_count_trie.c - memo of how many elements the neediest rank lacks, keyed by how a tensor is cut. */
#include "partition/sharding/missing_count_trie.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_NODES = 64 };

void clv_missing_counts_init(clv_missing_counts *out, int width, int n_roots)
{
    *out = (clv_missing_counts){.width = width, .n = (size_t)n_roots};
}

void clv_missing_counts_free(clv_missing_counts *counts)
{
    free(counts->slot);
}

static bool reserve(clv_missing_counts *c, size_t nodes)
{
    size_t bytes = (size_t)c->width * sizeof *c->slot;
    if (c->slot != NULL && c->capacity >= nodes)
        return true;
    size_t capacity = 2 * nodes + FIRST_NODES;
    int64_t *grown = realloc(c->slot, capacity * bytes);
    if (grown == NULL)
        return false;
    memset((char *)grown + c->capacity * bytes, 0, (capacity - c->capacity) * bytes);
    c->slot = grown;
    c->capacity = capacity;
    return true;
}

int64_t *clv_missing_counts_at(clv_missing_counts *c, int root, const uint8_t *cut, int n)
{
    size_t node = (size_t)root, width = (size_t)c->width;
    if (!reserve(c, c->n + (size_t)n)) /* before slots are pointed to */
        return NULL;
    for (int a = 0; a + 1 < n; a++) {
        int64_t *next = &c->slot[node * width + cut[a]];
        if (*next == 0)
            *next = (int64_t)c->n++;
        node = (size_t)*next;
    }
    return &c->slot[node * width + cut[n - 1]];
}
