/* prefill_chunk.h - chunk size of chunked prefill: a power of two up to 512 tokens, so that few programs serve any
 * length.
 */
#pragma once

#include <stdint.h>

enum { CLV_PREFILL_CHUNK_MAX = 512, CLV_PREFILL_CHUNK_SIZES = 10 };

/* log2 of the number of tokens of the next chunk; -1: all tokens are computed. rest: the largest number of tokens that
 * a sequence has left to compute. shortest: the length of the shortest sequence, computed tokens included. room:
 * positions that padding may use; 0: no padding.
 *
 * The chunk is the smallest power of two that holds the rest, if no sequence is shorter than the chunk. Otherwise it is
 * padded if it fits `room`, and if that takes no longer than another chunk; else a smaller chunk comes first. */
int clv_prefill_chunk_log2_or_negative(int64_t rest, int64_t shortest, int64_t room);
