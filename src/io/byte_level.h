/* byte_level.h - GPT-2's way of spelling bytes as printable characters, and pieces of text by a regular expression. */
#ifndef CLEAVE_IO_BYTE_LEVEL_H
#define CLEAVE_IO_BYTE_LEVEL_H

#include <stddef.h>

#include "cleave/status.h"

/* The character that stands for a byte, UTF-8: printable Latin-1 stands for itself, the others for U+0100 on, in order. Returns its
 * bytes, 1 or 2. */
size_t clv_byte_character(char out[2], unsigned char byte);
/* The byte that a character of one or two bytes stands for; -1: none. */
int clv_character_byte(const char *character, size_t size);

/* How GPT-2 splits text. */
extern const char clv_gpt2_pattern[];

typedef struct clv_pattern clv_pattern;
/* @return CLV_EUNSUPPORTED with the expression and where it fails; CLV_ENOMEM */
clv_status clv_pattern_new(clv_pattern **out, const char *expression, size_t size, clv_error *err);
void clv_pattern_free(clv_pattern *pattern);
/* The end of the piece that begins at `from` < size: a match that begins there, or the text up to the next match. A pattern may be shared
 * by threads. CLV_ELIMIT when matching takes too much memory or time. */
clv_status clv_pattern_piece(size_t *end, const clv_pattern *pattern, const char *text, size_t size, size_t from,
                             clv_error *err);

#endif
