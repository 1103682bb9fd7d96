#include "io/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/utf8.h"

/* ---- tables ---- */

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ p[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

static int64_t slots_for(int64_t n)
{
    int64_t slots = 64;
    while (slots < 2 * n + 2)
        slots *= 2;
    return slots;
}

clv_status clv_vocab_reserve(clv_vocab *vocab, clv_arena *arena, int64_t n, clv_error *err)
{
    vocab->n_slots = slots_for(n);
    vocab->slot = clv_arena_alloc(arena, (size_t)vocab->n_slots, sizeof *vocab->slot);
    return vocab->slot ? CLV_OK : clv_fail_memory(err, "a vocabulary", (size_t)vocab->n_slots * sizeof *vocab->slot);
}

struct clv_vocab_entry *clv_vocab_slot(const clv_vocab *vocab, const char *text, size_t size)
{
    uint64_t mask = (uint64_t)vocab->n_slots - 1;
    for (uint64_t at = hash_bytes(text, size) & mask;; at = (at + 1) & mask) {
        struct clv_vocab_entry *e = &vocab->slot[at];
        if (!e->text || (e->size == size && memcmp(e->text, text, size) == 0))
            return e;
    }
}

int64_t clv_vocab_find(const clv_vocab *vocab, const char *text, size_t size)
{
    const struct clv_vocab_entry *e = clv_vocab_slot(vocab, text, size);
    return e->text ? e->id : -1;
}

clv_status clv_bpe_reserve_merges(clv_bpe *bpe, clv_arena *arena, int64_t n, clv_error *err)
{
    bpe->n_slots = slots_for(n);
    bpe->merge = clv_arena_alloc(arena, (size_t)bpe->n_slots, sizeof *bpe->merge);
    if (!bpe->merge)
        return clv_fail_memory(err, "merges", (size_t)bpe->n_slots * sizeof *bpe->merge);
    for (int64_t i = 0; i < bpe->n_slots; i++)
        bpe->merge[i].left = -1;
    return CLV_OK;
}

clv_merge *clv_bpe_merge_slot(const clv_bpe *bpe, int64_t left, int64_t right)
{
    const int64_t key[] = {left, right};
    uint64_t mask = (uint64_t)bpe->n_slots - 1;
    for (uint64_t at = hash_bytes(key, sizeof key) & mask;; at = (at + 1) & mask) {
        clv_merge *m = &bpe->merge[at];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

clv_status clv_ids_add(clv_ids *ids, int64_t id, clv_error *err)
{
    if (ids->n == ids->capacity) {
        int64_t capacity = ids->capacity ? 2 * ids->capacity : 64;
        int64_t *grown = realloc(ids->id, (size_t)capacity * sizeof *grown);
        if (!grown)
            return clv_fail_memory(err, "token ids", (size_t)capacity * sizeof *grown);
        ids->id = grown;
        ids->capacity = capacity;
    }
    ids->id[ids->n++] = id;
    return CLV_OK;
}

/* ---- merging ---- */

/* A symbol of a piece; those merged away have id -1. */
typedef struct symbol {
    int64_t id;
    int64_t previous, next; /* -1: none */
} symbol;

/* Two neighbours that may be merged: lower ranks first, then from left to right. */
typedef struct candidate {
    int64_t rank, at, left, right, made;
} candidate;

typedef struct work {
    int64_t n, n_heap;
    symbol *symbol;
    candidate *heap; /* at most three a symbol */
} work;

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(work *w, candidate c)
{
    int64_t i = w->n_heap++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate pop(work *w)
{
    candidate top = w->heap[0], last = w->heap[--w->n_heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (child >= w->n_heap || !before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static void consider(work *w, const clv_bpe *bpe, int64_t at)
{
    int64_t next = at >= 0 ? w->symbol[at].next : -1;
    if (next < 0)
        return;
    const clv_merge *m = clv_bpe_merge_slot(bpe, w->symbol[at].id, w->symbol[next].id);
    if (m->left >= 0)
        push(w, (candidate){m->rank, at, m->left, m->right, m->id});
}

static void merge_all(work *w, const clv_bpe *bpe)
{
    for (int64_t i = 0; i + 1 < w->n; i++)
        consider(w, bpe, i);
    while (w->n_heap > 0) {
        candidate c = pop(w);
        symbol *left = &w->symbol[c.at];
        int64_t next = left->next;
        if (left->id != c.left || next < 0 || w->symbol[next].id != c.right)
            continue; /* one of them was merged since */
        left->id = c.made;
        left->next = w->symbol[next].next;
        w->symbol[next].id = -1;
        if (left->next >= 0)
            w->symbol[left->next].previous = c.at;
        consider(w, bpe, left->previous);
        consider(w, bpe, c.at);
    }
}

/* ---- a piece ---- */

static void add_symbol(work *w, int64_t id)
{
    w->symbol[w->n] = (symbol){.id = id, .previous = w->n - 1, .next = -1};
    if (w->n > 0)
        w->symbol[w->n - 1].next = w->n;
    w->n++;
}

/* A character's id, or its bytes', or that of unknown ones (one for a run of them where they are fused). */
static void add_character(work *w, const clv_bpe *bpe, const char *c, size_t size)
{
    int64_t id = clv_vocab_find(&bpe->vocab, c, size);
    bool has_bytes = bpe->byte_fallback;
    for (size_t i = 0; i < size; i++)
        has_bytes = has_bytes && bpe->byte_id[(unsigned char)c[i]] >= 0;
    if (id >= 0) {
        add_symbol(w, id);
    } else if (has_bytes) {
        for (size_t i = 0; i < size; i++)
            add_symbol(w, bpe->byte_id[(unsigned char)c[i]]);
    } else if (bpe->unknown >= 0 && !(bpe->fuse_unknown && w->n > 0 && w->symbol[w->n - 1].id == bpe->unknown)) {
        add_symbol(w, bpe->unknown);
    }
}

clv_status clv_bpe_encode(const clv_bpe *bpe, const char *piece, size_t size, clv_ids *out, clv_error *err)
{
    int64_t whole = bpe->ignore_merges ? clv_vocab_find(&bpe->vocab, piece, size) : -1;
    if (whole >= 0)
        return clv_ids_add(out, whole, err);
    work w = {.symbol = malloc((size + 1) * sizeof *w.symbol), .heap = malloc(3 * (size + 1) * sizeof *w.heap)};
    clv_status status =
        w.symbol && w.heap ? CLV_OK : clv_fail_memory(err, "a piece of text", (size + 1) * sizeof *w.symbol);
    if (status == CLV_OK) {
        for (size_t at = 0; at < size;) {
            size_t n = clv_utf8_length(piece + at, size - at);
            add_character(&w, bpe, piece + at, n);
            at += n;
        }
        merge_all(&w, bpe);
    }
    for (int64_t i = 0; status == CLV_OK && w.n > 0 && i >= 0; i = w.symbol[i].next)
        status = clv_ids_add(out, w.symbol[i].id, err);
    free(w.symbol);
    free(w.heap);
    return status;
}
