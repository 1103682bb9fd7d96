/* character_classes.h - Unicode character classes as Hugging Face's `tokenizers` has them: space, punctuation,
 * letter, mark, ...
 *
 * Its parts were made with Unicode tables of different years (8 for punctuation and accents, 16 and 17 for words and
 * patterns), so that no table of one year gives its results; ours is asked of it (scripts/make_character_table.py).
 */
#ifndef CLEAVE_TOKENS_UNICODE_CHARACTER_CLASSES_H
#define CLEAVE_TOKENS_UNICODE_CHARACTER_CLASSES_H

#include <stddef.h>
#include <stdint.h>

enum {
    CLV_IS_SPACE = 1 << 0,       /* White_Space */
    CLV_IS_CONTROL = 1 << 1,     /* what BERT drops: control, format, private use, U+FFFD; not tab and line ends */
    CLV_IS_PUNCTUATION = 1 << 2, /* with all of ASCII's that is no letter or digit, as BERT has it */
    CLV_IS_DIGIT = 1 << 3,
    CLV_IS_ACCENT = 1 << 4,      /* marks that take no room */
    CLV_IS_MARK = 1 << 5,        /* all marks */
    CLV_IS_WORD = 1 << 6,        /* \w */
    CLV_IS_LETTER = 1 << 7,      /* \p{L} */
    CLV_IS_NUMBER = 1 << 8,      /* \p{N} */
    CLV_IS_UNNORMALIZED = 1 << 9 /* unknown to the normalization forms: taken as it stands, nothing moves past it */
};

/* Bit set of the classes of a character. */
unsigned clv_character_classes(uint32_t character);
/* Writes the lower case of a character, which may be two, and returns how many. */
int clv_character_to_lower(uint32_t out[2], uint32_t character);

/* ---- character_class_table.c, generated ---- */

extern const uint16_t clv_ascii_classes[128];
/* Runs of characters with the same classes, ascending: first character | classes << 21. */
extern const size_t clv_n_character_class_runs;
extern const uint32_t clv_character_class_runs[];
/* Runs whose lower cases are consecutive, too: first, last, lower case of the first. */
extern const size_t clv_n_lower_runs;
extern const uint32_t clv_lower_runs[][3];

#endif
