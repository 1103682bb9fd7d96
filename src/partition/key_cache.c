/* key_cache.c - hash table from keys, which are built field by field, to values; keys and values live in an arena. */
#include "partition/key_cache.h"

#include <string.h>

#include "base/hash.h"

typedef struct clv_key_entry {
    uint64_t hash;
    size_t key_size;
    const void *key;
    void *value;
} entry;

void clv_key_begin(clv_key_cache *cache)
{
    cache->key_size = 0;
    cache->failed = false;
}

void clv_key_add(clv_key_cache *cache, const void *bytes, size_t size)
{
    if (cache->key_size + size > cache->key_capacity) {
        size_t capacity = 2 * (cache->key_size + size) + 4096;
        unsigned char *grown = clv_arena_alloc(cache->arena, capacity, 1);
        cache->failed = cache->failed || !grown;
        if (!grown)
            return;
        if (cache->key_size > 0)
            memcpy(grown, cache->key, cache->key_size);
        cache->key = grown;
        cache->key_capacity = capacity;
    }
    if (size > 0)
        memcpy(cache->key + cache->key_size, bytes, size);
    cache->key_size += size;
}

void clv_key_add_layout(clv_key_cache *cache, const clv_layout *layout)
{
    clv_key_add(cache, &layout->rank, sizeof layout->rank);
    clv_key_add(cache, &layout->reduction, sizeof layout->reduction);
    clv_key_add(cache, layout->begin, (size_t)layout->rank + 2);
    clv_key_add(cache, layout->alignment, (size_t)layout->rank * sizeof *layout->alignment);
    clv_key_add(cache, layout->axes, layout->begin[layout->rank + 1] * sizeof *layout->axes);
}

/* The slot that holds the key, or the empty one where it belongs. */
static entry **slot_of(const clv_key_cache *cache, const void *key, size_t size, uint64_t hash)
{
    size_t i = hash & (cache->capacity - 1);
    for (const entry *e; (e = cache->entries[i]) != NULL; i = (i + 1) & (cache->capacity - 1))
        if (e->hash == hash && e->key_size == size && memcmp(e->key, key, size) == 0)
            break;
    return &cache->entries[i];
}

void *clv_key_find(const clv_key_cache *cache)
{
    if (cache->n == 0 || cache->failed)
        return NULL;
    const entry *e = *slot_of(cache, cache->key, cache->key_size, clv_hash_bytes(cache->key, cache->key_size));
    return e ? e->value : NULL;
}

static bool grow(clv_key_cache *cache)
{
    size_t old_capacity = cache->capacity, capacity = old_capacity > 0 ? 2 * old_capacity : 256;
    entry **old = cache->entries, **entries = clv_arena_alloc(cache->arena, capacity, sizeof *entries);
    if (!entries)
        return false;
    cache->entries = entries;
    cache->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i])
            *slot_of(cache, old[i]->key, old[i]->key_size, old[i]->hash) = old[i];
    return true;
}

void *clv_key_insert(clv_key_cache *cache, const void *value, size_t size)
{
    entry made = {.hash = clv_hash_bytes(cache->key, cache->key_size),
                  .key_size = cache->key_size,
                  .key = clv_arena_copy(cache->arena, cache->key, cache->key_size),
                  .value = clv_arena_copy(cache->arena, value, size)};
    entry *kept = clv_arena_copy(cache->arena, &made, sizeof made);
    if (cache->failed || !made.key || !made.value || !kept || (cache->n >= cache->capacity / 2 && !grow(cache)))
        return NULL;
    *slot_of(cache, made.key, made.key_size, made.hash) = kept;
    cache->n++;
    return made.value;
}
