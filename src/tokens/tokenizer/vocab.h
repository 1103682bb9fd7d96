/* vocab.h - vocabulary hash table, byte trie with longest match, byte-fallback ids, growable id list. */
#ifndef CLEAVE_TOKENS_TOKENIZER_VOCAB_H
#define CLEAVE_TOKENS_TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory/arena.h"
#include "cleave/status.h"
#include "tokens/tokenizer/text_buffer.h"

/* Slots of a table for n entries with open addressing: a power of two, at most half full. */
int64_t clv_hash_table_slots(int64_t n);

/* Texts to numbers. */
typedef struct clv_vocab {
    int64_t n, n_slots;
    struct clv_vocab_entry {
        clv_text_span text; /* text NULL: empty */
        int64_t id;
    } * slot;
} clv_vocab;

/* Room for n texts, from the arena; once. */
clv_status clv_vocab_reserve(clv_vocab *vocab, clv_arena *arena, int64_t n, clv_error *err);
/* The entry of a text, or the empty one where it belongs. Room must have been reserved. */
struct clv_vocab_entry *clv_vocab_slot(const clv_vocab *vocab, clv_text_span text);
/* -1: not in it. */
int64_t clv_vocab_find(const clv_vocab *vocab, clv_text_span text);

/* Texts by their bytes: node 0 is the empty text, and each known beginning of a text is a node. */
typedef struct clv_trie {
    int64_t n_nodes, n_slots;
    struct clv_trie_edge {
        int64_t key; /* node << 8 | byte, and 1 added; 0: empty */
        int64_t node;
    } * edge;
    int64_t *value; /* [n_nodes]; -1: no text ends here */
} clv_trie;

/* Room for texts of so many bytes in all, from the arena; once. */
clv_status clv_trie_reserve(clv_trie *trie, clv_arena *arena, size_t bytes, clv_error *err);
/* The value (-1: free) at a text's end. */
int64_t *clv_trie_add(clv_trie *trie, clv_text_span text);
/* Of all texts of a vocabulary, their ids as values. */
clv_status clv_trie_of_vocab(clv_trie *trie, clv_arena *arena, const clv_vocab *vocab, clv_error *err);
/* The node behind another by one byte; -1: no text goes on so. */
int64_t clv_trie_next(const clv_trie *trie, int64_t node, char byte);
/* The node reached by a text; -1: no text begins so. */
int64_t clv_trie_node(const clv_trie *trie, clv_text_span text);
/* The longest way from a node along the text to the end of a known one, of at least a byte: returns its bytes, 0 when
 * there is none. */
size_t clv_trie_longest_match(int64_t *value, const clv_trie *trie, int64_t node, clv_text_span text);

/* The ids of the tokens "<0x00>" to "<0xFF>", by the byte; -1: there is none. */
typedef struct clv_byte_fallback_ids {
    int64_t id[256];
} clv_byte_fallback_ids;
void clv_byte_fallback_ids_find(clv_byte_fallback_ids *out, const clv_vocab *vocab);
/* Whether each byte of a text has one. */
bool clv_byte_fallback_ids_cover(const clv_byte_fallback_ids *bytes, clv_text_span text);

/* A growing list of ids, malloc'd. */
typedef struct clv_token_ids {
    int64_t n, capacity;
    int64_t *id;
} clv_token_ids;
clv_status clv_token_ids_add(clv_token_ids *ids, int64_t id, clv_error *err);

#endif
