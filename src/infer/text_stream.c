/* text_stream.c - see text_stream.h. */
#include "infer/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokens/tokenizer_parts.h"

static clv_status take(clv_text_stream *s, const int64_t *ids, int64_t n, clv_error *err)
{
    if (s->n + n > s->capacity) {
        int64_t capacity = 2 * (s->n + n) + 64;
        int64_t *grown = realloc(s->ids, (size_t)capacity * sizeof *grown);
        if (!grown)
            return clv_fail_memory(err, "token ids", (size_t)capacity * sizeof *grown);
        s->ids = grown;
        s->capacity = capacity;
    }
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

/* The window's text less that of its first part: what a token spells may depend on the one before it. */
clv_status clv_text_stream_add(clv_text_stream *s, const clv_tokenizer *tokenizer, const int64_t *ids, int64_t n,
                               bool last, char **text, size_t *size, clv_error *err)
{
    char *before;
    size_t given;
    CLV_TRY(take(s, ids, n, err));
    CLV_TRY(clv_tokenizer_decode(tokenizer, s->ids + s->from, s->shown - s->from, &before, &given, err));
    free(before);
    CLV_TRY(clv_tokenizer_decode(tokenizer, s->ids + s->from, s->n - s->from, text, size, err));
    if (!last && !is_whole(tokenizer, *text, *size))
        *size = given;
    given = given < *size ? given : *size;
    memmove(*text, *text + given, *size - given);
    *size -= given;
    (*text)[*size] = '\0';
    if (*size > 0) {
        s->from = s->shown;
        s->shown = s->n;
    }
    return CLV_OK;
}

void clv_text_stream_free(clv_text_stream *s)
{
    free(s->ids);
    *s = (clv_text_stream){0};
}
