/* utf8.h - UTF-8: decode, encode, validate and repair (RFC 3629). */
#ifndef CLEAVE_BASE_TEXT_UTF8_H
#define CLEAVE_BASE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/text.h"

/* Bytes of the character at p of text known to be valid: from the first byte alone, within size. */
size_t clv_utf8_length(const char *p, size_t size);
/* The character of valid text at p, and its bytes. */
uint32_t clv_utf8_decode(size_t *n, const char *p, size_t size);
/* Writes a character, which is no surrogate, and returns its bytes. */
size_t clv_utf8_encode(char out[4], uint32_t character);
bool clv_utf8_valid(const char *text, size_t size);

#endif
