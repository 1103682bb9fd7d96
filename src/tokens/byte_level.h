/* byte_level.h - GPT-2's way of spelling bytes as printable characters. */
#ifndef CLEAVE_TOKENS_BYTE_LEVEL_H
#define CLEAVE_TOKENS_BYTE_LEVEL_H

#include <stdint.h>

/* The character that stands for a byte: printable Latin-1 stands for itself, the others for U+0100 on, in order. */
uint32_t clv_byte_character(unsigned char byte);

#endif
