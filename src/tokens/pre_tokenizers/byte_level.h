/* byte_level.h - GPT-2's bytes_to_unicode: the printable character that stands for each byte. */
#ifndef CLEAVE_TOKENS_PRE_TOKENIZERS_BYTE_LEVEL_H
#define CLEAVE_TOKENS_PRE_TOKENIZERS_BYTE_LEVEL_H

#include <stdint.h>

/* The character that stands for a byte: printable Latin-1 stands for itself, the others for U+0100 on, in order. */
uint32_t clv_byte_to_unicode(unsigned char byte);

#endif
