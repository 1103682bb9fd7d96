/* character_classes.h - Unicode character classes as Hugging Face's `tokenizers` has them: space, punctuation,
 * letter, mark, ...
 *
 * Parts of `tokenizers` have Unicode tables of different versions (8 for punctuation and accents, 16 and 17 for words
 * and patterns), so scripts/make_character_table.py generates our table from the library.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CLV_IS_SPACE = 1 << 0,       /* White_Space */
    CLV_IS_CONTROL = 1 << 1,     /* dropped by BERT: control, format, private use, U+FFFD; not tab and line ends */
    CLV_IS_PUNCTUATION = 1 << 2, /* and all of ASCII but letters and digits, as in BERT */
    CLV_IS_DIGIT = 1 << 3,
    CLV_IS_ACCENT = 1 << 4,      /* nonspacing marks */
    CLV_IS_MARK = 1 << 5,        /* all marks */
    CLV_IS_WORD = 1 << 6,        /* \w */
    CLV_IS_LETTER = 1 << 7,      /* \p{L} */
    CLV_IS_NUMBER = 1 << 8,      /* \p{N} */
    CLV_IS_UNNORMALIZED = 1 << 9 /* unknown to the normalization forms: kept, and nothing is reordered across it */
};

/* Bit set of the classes of a character. */
unsigned clv_character_classes(uint32_t character);
/* Writes the lower case of a character, 1 or 2 characters; returns their number. */
int clv_character_to_lower(uint32_t out[2], uint32_t character);

/* ---- character_class_table.c, generated ---- */

extern const uint16_t clv_ascii_classes[128];
/* Runs of characters with the same classes, ascending: first character | classes << 21. */
extern const size_t clv_n_character_class_runs;
extern const uint32_t clv_character_class_runs[];
/* Runs whose lower cases are consecutive, too: first, last, lower case of the first. */
extern const size_t clv_n_lower_runs;
extern const uint32_t clv_lower_runs[][3];
