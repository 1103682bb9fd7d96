/* streaming_detokenizer.h - decodes tokens into text incrementally; incomplete UTF-8 characters wait for the next
 * token.
 */
#ifndef CLEAVE_INFER_GENERATION_STREAMING_DETOKENIZER_H
#define CLEAVE_INFER_GENERATION_STREAMING_DETOKENIZER_H

#include "cleave/tokenizer.h"

/* What tokens spell, as they come. A window of the last ones is decoded: those from `from` on, of which the ones before
 * `shown` were given out. Zero-initialised: nothing yet. */
typedef struct clv_streaming_detokenizer {
    int64_t n, capacity;
    int64_t *ids;
    int64_t from, shown;
} clv_streaming_detokenizer;

/* Takes a token, and gives the text that is new and will not change with the next token: a character's bytes are held
 * back until it is whole (last: no more). *text is the caller's to free. */
clv_status clv_streaming_detokenizer_add(clv_streaming_detokenizer *stream, const clv_tokenizer *tokenizer,
                                         const int64_t *ids, int64_t n, bool last, char **text, size_t *size,
                                         clv_error *err);
void clv_streaming_detokenizer_free(clv_streaming_detokenizer *stream);

#endif
