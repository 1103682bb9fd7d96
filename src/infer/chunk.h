/* chunk.h - how many tokens of prompts are computed at once.
 *
 * Chunks are powers of two up to CLV_CHUNK: a handful of programs serves any length. */
#ifndef CLEAVE_INFER_CHUNK_H
#define CLEAVE_INFER_CHUNK_H

#include <stdint.h>

enum { CLV_CHUNK = 512, CLV_CHUNK_POWERS = 10 };

/* The next chunk has 2^power tokens of each sequence; -1: there is none. rest: most that a sequence has to be computed,
 * of `shortest` in all or more. It is the power of two that holds the rest, or the one below, with more chunks to come:
 * where a sequence has fewer tokens, computed ones with them, than the chunk. Those that lack are then filled up, if
 * they fit into `room` positions, where that takes no longer than another chunk: room is 0 where nothing may be. */
int clv_chunk_power(int64_t rest, int64_t shortest, int64_t room);

#endif
