/* text_stream.h - text that streams out as tokens come. */
#ifndef CLEAVE_INFER_TEXT_STREAM_H
#define CLEAVE_INFER_TEXT_STREAM_H

#include "cleave/tokenizer.h"

/* What tokens spell, as they come. A window of the last ones is decoded: those from `from` on, of which the ones before
 * `shown` were given out. Zero-initialised: nothing yet. */
typedef struct clv_text_stream {
    int64_t n, capacity;
    int64_t *ids;
    int64_t from, shown;
} clv_text_stream;

/* Takes a token, and gives the text that is new and will not change with the next token: a character's bytes are held
 * back until it is whole (last: no more). *text is the caller's to free. */
clv_status clv_text_stream_add(clv_text_stream *stream, const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n,
                               bool last, char **text, size_t *size, clv_error *err);
void clv_text_stream_free(clv_text_stream *stream);

#endif
