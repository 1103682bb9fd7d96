/* streaming_detokenizer.h - decodes tokens into text incrementally; incomplete UTF-8 characters wait for the next
 * token.
 */
#pragma once

#include "cleave/tokenizer.h"

/* Decodes a window of the last tokens: those from `from` on. The text of those before `shown` was returned already.
 * Zero-initialised at first. */
typedef struct clv_streaming_detokenizer {
    int64_t n, capacity;
    int64_t *ids;
    int64_t from, shown;
} clv_streaming_detokenizer;

/* Adds tokens, and returns the new text that later tokens cannot change: the bytes of an incomplete character are held
 * back, unless `last`. The caller frees *text. */
clv_status clv_streaming_detokenizer_add(clv_streaming_detokenizer *stream, const clv_tokenizer *tokenizer,
                                         const int64_t *ids, int64_t n, bool last, char **text, size_t *size,
                                         clv_error *err);
void clv_streaming_detokenizer_free(clv_streaming_detokenizer *stream);
