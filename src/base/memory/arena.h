/* arena.h - arena allocator: objects of one graph or program, all freed at once.
 *
 * In debug builds (CLV_ARENA_DEBUG) every object is a separate allocation, so that valgrind and ASan see its bounds.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

typedef struct clv_arena clv_arena;

/* NULL when out of memory. */
clv_arena *clv_arena_new(void);
/* Frees the arena and all objects in it; does nothing for NULL. */
void clv_arena_free(clv_arena *arena);

/* Returns zeroed memory for count objects of size bytes, aligned to 16; NULL when out of memory or when count * size
 * overflows. A request of 0 bytes returns a unique pointer. */
void *clv_arena_alloc(clv_arena *arena, size_t count, size_t size);
/* Return a copy of bytes, or of a string; NULL when out of memory. */
void *clv_arena_copy(clv_arena *arena, const void *bytes, size_t size);
char *clv_arena_string(clv_arena *arena, const char *text);
/* Return a formatted string; NULL when out of memory. */
char *clv_arena_format(clv_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *clv_arena_vformat(clv_arena *arena, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* Grows the arena array *items of size-byte objects to at least count + 1, by doubling. The array moves: keep indices,
 * not pointers. Returns 0, or -1 when out of memory, with *items and *capacity unchanged. */
int clv_arena_grow(clv_arena *arena, void *items, int *capacity, int count, size_t size);
