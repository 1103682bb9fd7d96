/* key_cache.h - hash table from keys, which are built field by field, to values; keys and values live in an arena. */
#pragma once

#include "base/memory/arena.h"
#include "cleave/layout.h"

typedef struct clv_key_cache {
    clv_arena *arena;
    size_t n, capacity; /* a power of two, more than n */
    struct clv_key_entry **entries;
    unsigned char *key; /* the key being built */
    size_t key_size, key_capacity;
    bool failed; /* out of memory for the key */
} clv_key_cache;

/* Begins a key, and appends bytes, or the significant parts of a layout, to it. */
void clv_key_begin(clv_key_cache *cache);
void clv_key_add(clv_key_cache *cache, const void *bytes, size_t size);
void clv_key_add_layout(clv_key_cache *cache, const clv_layout *layout);

/* The value of the key that was built; NULL: none. It stays valid. */
void *clv_key_find(const clv_key_cache *cache);
/* Stores a copy of a value, of `size` bytes, under the key that was built, which has none; NULL: out of memory. */
void *clv_key_insert(clv_key_cache *cache, const void *value, size_t size);
