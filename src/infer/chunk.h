/* chunk.h - how many tokens of prompts are computed at once.
 *
 * Chunks are powers of two up to CLV_CHUNK: a handful of programs serves any length. */
#ifndef CLEAVE_INFER_CHUNK_H
#define CLEAVE_INFER_CHUNK_H

#include <stdint.h>

enum { CLV_CHUNK = 512, CLV_CHUNK_POWERS = 10 };

/* The next chunk has 2^power tokens of each sequence, for sequences of `shortest` tokens or more, of which one has
 * `rest` left: as many as that, or the power of two above it where every sequence is that long, and can feed its last
 * ones again; or `room` is, and a few are added. room: 0, or the positions of a sequence that is alone. -1: no rest. */
int clv_chunk_power(int64_t rest, int64_t shortest, int64_t room);

#endif
