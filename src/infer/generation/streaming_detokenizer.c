/* streaming_detokenizer.c - decodes tokens into text incrementally; incomplete UTF-8 characters wait for the next
 * token.
 */
#include "infer/generation/streaming_detokenizer.h"

#include "base/memory/grow.h"
#include "tokens/tokenizer/tokenizer_components.h"

static clv_status take(clv_streaming_detokenizer *s, const int64_t *ids, int64_t n, clv_error *err)
{
    CLV_TRY(clv_grow(&s->ids, &s->capacity, s->n + n, sizeof *ids, "token ids", err));
    if (n > 0)
        memcpy(s->ids + s->n, ids, (size_t)n * sizeof *ids);
    s->n += n;
    return CLV_OK;
}

/* Bytes of a character that is not whole yet read as U+FFFD at the end; where tokens are bytes, each is shown as it
 * comes. */
static bool is_whole(const clv_tokenizer *tokenizer, const char *text, size_t size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    return tokenizer->bytes || size < 3 || memcmp(text + size - 3, replacement, 3) != 0;
}

/* Where a text goes on behind what was given out of it: as many bytes, or, where it has become another (bytes that are
 * no character together read as U+FFFD each), as many characters. */
static size_t behind(const char *text, size_t size, const char *given, size_t n)
{
    if (n <= size && memcmp(text, given, n) == 0)
        return n;
    size_t at = 0;
    for (size_t i = 0; i < n && at < size; i += clv_utf8_length(given + i, n - i))
        at += clv_utf8_length(text + at, size - at);
    return at;
}

/* The window's text less that of its first part: what a token spells may depend on the one before it. */
clv_status clv_streaming_detokenizer_add(clv_streaming_detokenizer *s, const clv_tokenizer *tokenizer,
                                         const int64_t *ids, int64_t n, bool last, char **text, size_t *size,
                                         clv_error *err)
{
    char *before;
    size_t given = 0, n_before;
    CLV_TRY(take(s, ids, n, err));
    CLV_TRY(clv_tokenizer_decode(tokenizer, s->ids + s->from, s->shown - s->from, &before, &n_before, err));
    clv_status status = clv_tokenizer_decode(tokenizer, s->ids + s->from, s->n - s->from, text, size, err);
    if (status == CLV_OK)
        given = last || is_whole(tokenizer, *text, *size) ? behind(*text, *size, before, n_before) : *size;
    free(before);
    CLV_TRY(status);
    memmove(*text, *text + given, *size - given);
    *size -= given;
    (*text)[*size] = '\0';
    if (*size > 0) {
        s->from = s->shown;
        s->shown = s->n;
    }
    return CLV_OK;
}

void clv_streaming_detokenizer_free(clv_streaming_detokenizer *s)
{
    free(s->ids);
    *s = (clv_streaming_detokenizer){0};
}
