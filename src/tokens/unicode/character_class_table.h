/* character_class_table.h - declarations of the generated character class table. */
#ifndef CLEAVE_TOKENS_UNICODE_CHARACTER_CLASS_TABLE_H
#define CLEAVE_TOKENS_UNICODE_CHARACTER_CLASS_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* The classes of ASCII's characters. */
extern const uint16_t clv_ascii_classes[128];
/* Runs of characters of the same classes, rising: the first one, and the classes << 21. */
extern const size_t clv_n_character_class_runs;
extern const uint32_t clv_character_class_runs[];
/* First and last of characters whose lower cases follow each other too, and the first of those. */
extern const size_t clv_n_lower_runs;
extern const uint32_t clv_lower_runs[][3];

#endif
