/* vocab.c - vocabulary hash table, byte trie, byte-fallback ids and growable id list. */
#include "tokens/tokenizer/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/error.h"
#include "base/memory/grow.h"

int64_t clv_hash_table_slots(int64_t n)
{
    int64_t slots = 64;
    while (slots < 2 * n + 2)
        slots *= 2;
    return slots;
}

/* ---- vocabulary ---- */

clv_status clv_vocab_reserve(clv_vocab *vocab, clv_arena *arena, int64_t n, clv_error *err)
{
    vocab->n_slots = clv_hash_table_slots(n);
    vocab->slot = clv_arena_alloc(arena, (size_t)vocab->n_slots, sizeof *vocab->slot);
    return vocab->slot ? CLV_OK : clv_fail_memory(err, "a vocabulary", (size_t)vocab->n_slots * sizeof *vocab->slot);
}

struct clv_vocab_entry *clv_vocab_slot(const clv_vocab *vocab, clv_text_span text)
{
    uint64_t mask = (uint64_t)vocab->n_slots - 1;
    for (uint64_t at = clv_hash_bytes(text.text, text.size) & mask;; at = (at + 1) & mask) {
        struct clv_vocab_entry *e = &vocab->slot[at];
        if (!e->text.text || (e->text.size == text.size && memcmp(e->text.text, text.text, text.size) == 0))
            return e;
    }
}

int64_t clv_vocab_find(const clv_vocab *vocab, clv_text_span text)
{
    const struct clv_vocab_entry *e = clv_vocab_slot(vocab, text);
    return e->text.text ? e->id : -1;
}

/* ---- trie ---- */

clv_status clv_trie_reserve(clv_trie *trie, clv_arena *arena, size_t bytes, clv_error *err)
{
    trie->n_slots = clv_hash_table_slots((int64_t)bytes);
    trie->edge = clv_arena_alloc(arena, (size_t)trie->n_slots, sizeof *trie->edge);
    trie->value = clv_arena_alloc(arena, bytes + 1, sizeof *trie->value);
    if (!trie->edge || !trie->value)
        return clv_fail_memory(err, "a vocabulary", (size_t)trie->n_slots * sizeof *trie->edge);
    trie->n_nodes = 1;
    trie->value[0] = -1;
    return CLV_OK;
}

static struct clv_trie_edge *edge_of(const clv_trie *trie, int64_t node, char byte)
{
    int64_t key = (node << 8 | (unsigned char)byte) + 1;
    uint64_t mask = (uint64_t)trie->n_slots - 1, hash = (uint64_t)key * 0x9e3779b97f4a7c15u;
    for (uint64_t at = (hash >> 20) & mask;; at = (at + 1) & mask)
        if (trie->edge[at].key == key || trie->edge[at].key == 0)
            return &trie->edge[at];
}

int64_t *clv_trie_add(clv_trie *trie, clv_text_span text)
{
    int64_t node = 0;
    for (size_t i = 0; i < text.size; i++) {
        struct clv_trie_edge *edge = edge_of(trie, node, text.text[i]);
        if (edge->key == 0) {
            edge->key = (node << 8 | (unsigned char)text.text[i]) + 1;
            edge->node = trie->n_nodes++;
            trie->value[edge->node] = -1;
        }
        node = edge->node;
    }
    return &trie->value[node];
}

clv_status clv_trie_of_vocab(clv_trie *trie, clv_arena *arena, const clv_vocab *vocab, clv_error *err)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < vocab->n_slots; i++)
        bytes += vocab->slot[i].text.size;
    CLV_TRY(clv_trie_reserve(trie, arena, bytes, err));
    for (int64_t i = 0; i < vocab->n_slots; i++)
        if (vocab->slot[i].text.text)
            *clv_trie_add(trie, vocab->slot[i].text) = vocab->slot[i].id;
    return CLV_OK;
}

int64_t clv_trie_child(const clv_trie *trie, int64_t node, char byte)
{
    const struct clv_trie_edge *edge = edge_of(trie, node, byte);
    return edge->key != 0 ? edge->node : -1;
}

int64_t clv_trie_find_prefix(const clv_trie *trie, clv_text_span text)
{
    int64_t node = 0;
    for (size_t i = 0; node >= 0 && i < text.size; i++)
        node = clv_trie_child(trie, node, text.text[i]);
    return node;
}

size_t clv_trie_longest_match(int64_t *value, const clv_trie *trie, int64_t node, clv_text_span text)
{
    size_t longest = 0;
    for (size_t i = 0; i < text.size && (node = clv_trie_child(trie, node, text.text[i])) >= 0; i++) {
        if (trie->value[node] >= 0) {
            longest = i + 1;
            *value = trie->value[node];
        }
    }
    return longest;
}

/* ---- ids ---- */

void clv_byte_fallback_ids_find(clv_byte_fallback_ids *out, const clv_vocab *vocab)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        out->id[b] = clv_vocab_find(vocab, clv_text_span_of(name, strlen(name)));
    }
}

bool clv_byte_fallback_ids_cover(const clv_byte_fallback_ids *bytes, clv_text_span text)
{
    bool all = true;
    for (size_t i = 0; i < text.size; i++)
        all = all && bytes->id[(unsigned char)text.text[i]] >= 0;
    return all;
}

clv_status clv_token_ids_append(clv_token_ids *ids, int64_t id, clv_error *err)
{
    CLV_TRY(clv_grow(&ids->id, &ids->capacity, ids->n + 1, sizeof *ids->id, "token ids", err));
    ids->id[ids->n++] = id;
    return CLV_OK;
}
