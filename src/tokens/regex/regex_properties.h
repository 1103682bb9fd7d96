/* regex_properties.h - lookup of named character sets: \p{name} and [:name:] of Oniguruma in PCRE2 syntax. */
#pragma once

#include "tokens/tokenizer/text_buffer.h"

/* Contents of the brackets of \s, \w and \h. */
#define CLV_REGEX_SPACES                                                                                               \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define CLV_REGEX_WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define CLV_REGEX_HEX   "0-9A-Fa-f"

enum { CLV_REGEX_CHAR_SET_SIZE = 64 };

/* A set [content], or its complement. */
typedef struct clv_regex_char_set {
    const char *content;
    bool negated;
} clv_regex_char_set;

/* Finds the set \p{name} or, if `posix`, [:name:]: a general category, a script or a binary property. buffer may hold
 * the content. False: unknown name. */
bool clv_regex_char_set_find(clv_regex_char_set *out, char buffer[CLV_REGEX_CHAR_SET_SIZE], clv_text_span name,
                             bool posix);
