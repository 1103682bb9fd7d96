/* utf8.h - characters of UTF-8 (RFC 3629). */
#ifndef CLEAVE_BASE_UTF8_H
#define CLEAVE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at p (overlong forms, surrogates and values above U+10FFFF are not); 0: there is none. */
size_t clv_utf8_character(const char *p, size_t size);
/* The same for text known to be valid: from the first byte alone, within size. */
size_t clv_utf8_length(const char *p, size_t size);
/* The character of valid text at p, and its bytes. */
uint32_t clv_utf8_decode(size_t *n, const char *p, size_t size);
/* Writes a character, which is no surrogate, and returns its bytes. */
size_t clv_utf8_encode(char out[4], uint32_t character);
bool clv_utf8_valid(const char *text, size_t size);
/* Whether the text ends within a character that further bytes may complete. */
bool clv_utf8_ends_open(const char *text, size_t size);

/* A copy in which each maximal part of a character that is not one is U+FFFD, as Python's errors="replace" does (Unicode 15,
 * section 3.9). The caller's to free, with a zero byte behind; NULL when out of memory. */
char *clv_utf8_repair(size_t *out_size, const char *text, size_t size);

#endif
