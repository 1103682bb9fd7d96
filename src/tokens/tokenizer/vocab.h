/* vocab.h - vocabulary hash table, byte trie with longest match, byte-fallback ids, growable id list. */
#pragma once

#include "base/memory/arena.h"
#include "cleave/status.h"
#include "tokens/tokenizer/text_buffer.h"

/* Slots of an open-addressing table for n entries: a power of two, at most half full. */
int64_t clv_hash_table_slots(int64_t n);

/* Map from text to id. */
typedef struct clv_vocab {
    int64_t n, n_slots;
    struct clv_vocab_entry {
        clv_text_span text; /* text NULL: empty slot */
        int64_t id;
    } * slot;
} clv_vocab;

/* Reserves slots for n texts in the arena; once. */
clv_status clv_vocab_reserve(clv_vocab *vocab, clv_arena *arena, int64_t n, clv_error *err);
/* Entry of a text, or the empty slot for it. */
struct clv_vocab_entry *clv_vocab_slot(const clv_vocab *vocab, clv_text_span text);
/* Id of a text; -1: not found. */
int64_t clv_vocab_find(const clv_vocab *vocab, clv_text_span text);

/* Byte trie: node 0 is the root. */
typedef struct clv_trie {
    int64_t n_nodes, n_slots;
    struct clv_trie_edge {
        int64_t key; /* (node << 8 | byte) + 1; 0: empty slot */
        int64_t node;
    } * edge;
    int64_t *value; /* [n_nodes] -1: no text ends here */
} clv_trie;

/* Reserves nodes for texts of `bytes` bytes in total in the arena; once. */
clv_status clv_trie_reserve(clv_trie *trie, clv_arena *arena, size_t bytes, clv_error *err);
/* Adds a text; returns the place of its value (-1: new). */
int64_t *clv_trie_add(clv_trie *trie, clv_text_span text);
/* Trie of all texts of a vocabulary; values are ids. */
clv_status clv_trie_of_vocab(clv_trie *trie, clv_arena *arena, const clv_vocab *vocab, clv_error *err);
/* Child of a node by a byte; -1: none. */
int64_t clv_trie_child(const clv_trie *trie, int64_t node, char byte);
/* Node of a prefix; -1: none. */
int64_t clv_trie_find_prefix(const clv_trie *trie, clv_text_span text);
/* Longest match from a node along the text, at least a byte: returns its size, 0 for none. */
size_t clv_trie_longest_match(int64_t *value, const clv_trie *trie, int64_t node, clv_text_span text);

/* Ids of the tokens "<0x00>" to "<0xFF>" by byte; -1: none. */
typedef struct clv_byte_fallback_ids {
    int64_t id[256];
} clv_byte_fallback_ids;
void clv_byte_fallback_ids_find(clv_byte_fallback_ids *out, const clv_vocab *vocab);
/* Whether each byte of a text has an id. */
bool clv_byte_fallback_ids_cover(const clv_byte_fallback_ids *bytes, clv_text_span text);

/* A growing list of ids. */
typedef struct clv_token_ids {
    int64_t n, capacity;
    int64_t *id;
} clv_token_ids;
clv_status clv_token_ids_append(clv_token_ids *ids, int64_t id, clv_error *err);
