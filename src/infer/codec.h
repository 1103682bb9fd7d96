/* codec.h - text for a model: its tokenizer, or bytes where the vocabulary is the 256 of them; and text that streams out as tokens
 * come. */
#ifndef CLEAVE_INFER_CODEC_H
#define CLEAVE_INFER_CODEC_H

#include "io/tokenizer.h"

typedef struct clv_codec {
    clv_tokenizer *tokenizer; /* NULL: a token is a byte */
} clv_codec;

/* tokenizer.json of the folder; without one, bytes, which only a vocabulary of 256 has. */
clv_status clv_codec_open(clv_codec *out, const char *folder, int64_t vocabulary, clv_error *err);
void clv_codec_close(clv_codec *codec);
/* With what the tokenizer's template adds. *ids is the caller's to free. */
clv_status clv_codec_encode(const clv_codec *codec, const char *text, size_t size, int64_t **ids, int64_t *n,
                            clv_error *err);

/* What tokens spell, as they come. A window of the last ones is decoded: those from `from` on, of which the ones before `shown`
 * were given out. Zero-initialised: nothing yet. */
typedef struct clv_text_stream {
    int64_t n, capacity;
    int64_t *ids;
    int64_t from, shown;
} clv_text_stream;

/* Takes a token, and gives the text that is new and will not change with the next token: a character's bytes are held
 * back until it is whole (last: no more). *text is the caller's to free. */
clv_status clv_text_stream_add(clv_text_stream *stream, const clv_codec *codec, const int64_t *ids, int64_t n,
                               bool last, char **text, size_t *size, clv_error *err);
void clv_text_stream_free(clv_text_stream *stream);

#endif
