/* arena.c - arena allocator: objects of one graph or program, all freed at once.
 *
 * A list of blocks, newest first. An object is allocated from the newest block, or from a new block of twice the size
 * of the last one (up to BLOCK_MAX), or of the object's size if that is larger. With CLV_ARENA_DEBUG each object has
 * its own block.
 */
#include "base/memory/arena.h"
#include "base/text/c_locale.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20 };

typedef struct block {
    struct block *next;
    size_t size, used;                    /* bytes of data */
    _Alignas(ALIGN) unsigned char data[]; /* zeroed by calloc, handed out once */
} block;

struct clv_arena {
    block *newest;
};

clv_arena *clv_arena_new(void)
{
    return calloc(1, sizeof(clv_arena));
}

void clv_arena_free(clv_arena *arena)
{
    if (arena == NULL)
        return;
    for (block *b = arena->newest, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(arena);
}

static size_t round_up(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t block_size(const clv_arena *arena, size_t size)
{
#ifdef CLV_ARENA_DEBUG
    return size;
#else
    size_t next = arena->newest != NULL ? 2 * arena->newest->size : BLOCK_MIN;

    if (next > BLOCK_MAX)
        next = BLOCK_MAX;
    return size > next ? round_up(size) : next;
#endif
}

static block *block_new(clv_arena *arena, size_t size)
{
    size_t bytes = block_size(arena, size);
    block *b = bytes <= SIZE_MAX - sizeof(block) ? calloc(1, sizeof(block) + bytes) : NULL;

    if (b == NULL)
        return NULL;
    b->size = bytes;
    b->next = arena->newest;
    arena->newest = b;
    return b;
}

/* Free bytes of a block; none in debug builds. */
static size_t block_free(const block *b)
{
#ifdef CLV_ARENA_DEBUG
    return 0;
#else
    return b != NULL ? b->size - b->used : 0;
#endif
}

void *clv_arena_alloc(clv_arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > (SIZE_MAX - ALIGN) / size)
        return NULL;

    size_t bytes = count * size;
    /* an empty object still has a unique address */
    size_t taken = bytes == 0 ? ALIGN : round_up(bytes);
    block *b = arena->newest;

    if (taken > block_free(b)) {
        b = block_new(arena, bytes);
        if (b == NULL)
            return NULL;
    }
    void *object = b->data + b->used;
    b->used += taken;
    return object;
}

void *clv_arena_copy(clv_arena *arena, const void *bytes, size_t size)
{
    void *copy = clv_arena_alloc(arena, 1, size);

    if (copy != NULL && size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

char *clv_arena_string(clv_arena *arena, const char *text)
{
    return clv_arena_copy(arena, text, strlen(text) + 1);
}

char *clv_arena_vformat(clv_arena *arena, const char *format, va_list args)
{
    va_list again;

    va_copy(again, args);
    int length = clv_vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = length < 0 ? NULL : clv_arena_alloc(arena, (size_t)length + 1, 1);
    if (text != NULL)
        clv_vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

char *clv_arena_format(clv_arena *arena, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    char *text = clv_arena_vformat(arena, format, args);
    va_end(args);
    return text;
}

/* Returns the link to the block that holds only this object of `bytes`, as for large objects; NULL: it shares a block.
 * */
static block **find_own_block(clv_arena *arena, const void *object, size_t bytes)
{
    for (block **at = &arena->newest; *at != NULL; at = &(*at)->next)
        if ((*at)->data == object)
            return (*at)->used == round_up(bytes) && (*at)->size - (*at)->used < ALIGN ? at : NULL;
    return NULL;
}

/* Grows an object that has its own block, with realloc; NULL when it shares a block, or out of memory. */
static void *grow_in_place(clv_arena *arena, const void *object, size_t bytes, size_t larger)
{
    block **at = bytes >= BLOCK_MAX ? find_own_block(arena, object, bytes) : NULL;
    block *b = at != NULL ? realloc(*at, sizeof(block) + round_up(larger)) : NULL;

    if (b == NULL)
        return NULL;
    *at = b;
    memset(b->data + bytes, 0, round_up(larger) - bytes);
    b->size = b->used = round_up(larger);
    return b->data;
}

int clv_arena_grow(clv_arena *arena, void *items, int *capacity, int count, size_t size)
{
    enum { FIRST = 8 };
    void *old;

    if (count < *capacity)
        return 0;
    if (count > INT32_MAX / 2 - 1)
        return -1;

    int larger = count < FIRST / 2 ? FIRST : 2 * (count + 1);
    memcpy(&old, items, sizeof old); /* items is a T **, whatever T is */
    void *grown = *capacity > 0 ? grow_in_place(arena, old, (size_t)*capacity * size, (size_t)larger * size) : NULL;
    if (grown == NULL) {
        grown = clv_arena_alloc(arena, (size_t)larger, size);
        if (grown == NULL)
            return -1;
        if (*capacity > 0)
            memcpy(grown, old, (size_t)*capacity * size);
    }
    memcpy(items, &grown, sizeof grown);
    *capacity = larger;
    return 0;
}
