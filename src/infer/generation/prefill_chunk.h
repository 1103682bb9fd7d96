/* prefill_chunk.h - chunk size of chunked prefill: a power of two up to 512 tokens.
 *
 * Chunks are powers of two up to CLV_PREFILL_CHUNK_MAX: a handful of programs serves any length.
 */
#ifndef CLEAVE_INFER_GENERATION_PREFILL_CHUNK_H
#define CLEAVE_INFER_GENERATION_PREFILL_CHUNK_H

#include <stdint.h>

enum { CLV_PREFILL_CHUNK_MAX = 512, CLV_PREFILL_CHUNK_SIZES = 10 };

/* The next chunk has 2^power tokens of each sequence; -1: there is none. rest: most that a sequence has to be computed,
 * of `shortest` in all or more. It is the power of two that holds the rest, or the one below, with more chunks to come:
 * where a sequence has fewer tokens, computed ones with them, than the chunk. Those that lack are then filled up, if
 * they fit into `room` positions, where that takes no longer than another chunk: room is 0 where nothing may be. */
int clv_prefill_chunk_log2(int64_t rest, int64_t shortest, int64_t room);

#endif
