/* bpe.h - byte-pair encoding by merge ranks (Sennrich et al. 2016, arXiv:1508.07909, as the `tokenizers` library has it). */
#ifndef CLEAVE_IO_BPE_H
#define CLEAVE_IO_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "cleave/status.h"

/* Texts to numbers; open addressing, at most half full. */
typedef struct clv_vocab {
    int64_t n, n_slots;
    struct clv_vocab_entry {
        const char *text; /* NULL: empty */
        size_t size;
        int64_t id;
    } * slot;
} clv_vocab;

/* The entry of a text, or the empty one where it belongs. Room must have been reserved. */
struct clv_vocab_entry *clv_vocab_slot(const clv_vocab *vocab, const char *text, size_t size);
/* Room for n texts, from the arena; once. */
clv_status clv_vocab_reserve(clv_vocab *vocab, clv_arena *arena, int64_t n, clv_error *err);
/* -1: not in it. */
int64_t clv_vocab_find(const clv_vocab *vocab, const char *text, size_t size);

typedef struct clv_merge {
    int64_t left, right; /* ids; left < 0: empty */
    int64_t rank, id;    /* of what they make */
} clv_merge;

typedef struct clv_bpe {
    clv_vocab vocab;
    int64_t n_merges, n_slots;
    clv_merge *merge;     /* by (left, right) */
    int64_t byte_id[256]; /* of "<0x00>" ...; -1 */
    bool byte_fallback, fuse_unknown, ignore_merges;
    int64_t unknown; /* -1 */
} clv_bpe;

clv_status clv_bpe_reserve_merges(clv_bpe *bpe, clv_arena *arena, int64_t n, clv_error *err);
/* The merge of two ids, or the empty slot where it belongs. */
clv_merge *clv_bpe_merge_slot(const clv_bpe *bpe, int64_t left, int64_t right);

/* A growing list of ids, malloc'd. */
typedef struct clv_ids {
    int64_t n, capacity;
    int64_t *id;
} clv_ids;
clv_status clv_ids_add(clv_ids *ids, int64_t id, clv_error *err);

/* Adds the ids of one piece of valid UTF-8. Time n log n in its length. */
clv_status clv_bpe_encode(const clv_bpe *bpe, const char *piece, size_t size, clv_ids *out, clv_error *err);

#endif
