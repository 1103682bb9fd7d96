/* utf8.h - UTF-8: decode, encode, validate and repair (RFC 3629). */
#pragma once

#include <stdint.h>

#include "cleave/text.h"

/* Returns the bytes of the character at p of valid text, by its first byte; at most size. */
size_t clv_utf8_length(const char *p, size_t size);
/* Returns the character at p of valid text, and its bytes in *n. */
uint32_t clv_utf8_decode(size_t *n, const char *p, size_t size);
/* Writes a character, which must not be a surrogate, and returns its bytes. */
size_t clv_utf8_encode(char out[4], uint32_t character);
/* Returns whether the text is well-formed UTF-8. */
bool clv_utf8_valid(const char *text, size_t size);
