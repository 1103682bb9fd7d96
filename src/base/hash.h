/* hash.h - FNV-1a hashes (a stable one of text, a fast one of bytes), and random ids that identify a run. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Hashes a text byte by byte. Random keys derive from it: it is the same on every machine and must never change. */
uint32_t clv_hash_text(const char *text);

/* Hashes bytes, eight at a time: for tables in memory, and between processes of one run. */
uint64_t clv_hash_bytes(const void *bytes, size_t size);

/* Returns a random id other than 0, unique across processes and calls with near certainty. */
uint64_t clv_unique_id(void);
