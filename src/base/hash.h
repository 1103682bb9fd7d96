/* hash.h - FNV-1a hashes: a stable one of text (random keys) and a fast one of bytes (in-memory tables). */
#ifndef CLEAVE_BASE_HASH_H
#define CLEAVE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of a text, byte by byte: the same everywhere and for ever, as random values are keyed by it. */
uint32_t clv_hash_text(const char *text);

/* Of bytes, eight at a time: for what is in memory alone, of processes that run together. */
uint64_t clv_hash_bytes(const void *bytes, size_t size);

#endif
