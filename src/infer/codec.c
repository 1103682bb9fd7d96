#include "infer/codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static clv_status open_tokenizer(clv_codec *out, const char *folder, int64_t vocabulary, clv_error *err)
{
    CLV_TRY(clv_tokenizer_open(&out->tokenizer, folder, err));
    int64_t size = clv_tokenizer_size(out->tokenizer);
    if (size <= vocabulary)
        return CLV_OK;
    clv_codec_close(out);
    return clv_fail(err, CLV_EFORMAT, "%s: the tokenizer has ids up to %lld, the model's vocab_size is %lld", folder,
                    (long long)size - 1, (long long)vocabulary);
}

clv_status clv_codec_open(clv_codec *out, const char *folder, int64_t vocabulary, clv_error *err)
{
    char *path;
    *out = (clv_codec){0};
    CLV_TRY(clv_tokenizer_find(&path, folder, err));
    bool has_tokenizer = path != NULL;
    free(path);
    if (has_tokenizer)
        return open_tokenizer(out, folder, vocabulary, err);
    if (vocabulary == 256)
        return CLV_OK;
    return clv_fail(err, CLV_ENOTFOUND,
                    "%s has no tokenizer.json or vocab.txt, and its vocabulary of %lld is not that of bytes (256)",
                    folder, (long long)vocabulary);
}

void clv_codec_close(clv_codec *codec)
{
    clv_tokenizer_free(codec->tokenizer);
    codec->tokenizer = NULL;
}

clv_status clv_codec_encode(const clv_codec *codec, const char *text, size_t size, int64_t **ids, int64_t *n,
                            clv_error *err)
{
    if (codec->tokenizer)
        return clv_tokenizer_encode(codec->tokenizer, text, size, true, ids, n, err);
    int64_t *bytes = malloc((size + 1) * sizeof *bytes);
    if (!bytes)
        return clv_fail_memory(err, "the prompt", size * sizeof *bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)text[i];
    *ids = bytes;
    *n = (int64_t)size;
    return CLV_OK;
}

/* ---- streaming ---- */

/* Text of tokens [from, to) of the stream. */
static clv_status decode(const clv_codec *codec, const clv_text_stream *s, int64_t from, int64_t to, char **text,
                         size_t *size, clv_error *err)
{
    if (codec->tokenizer)
        return clv_tokenizer_decode(codec->tokenizer, s->ids + from, to - from, text, size, err);
    char *bytes = malloc((size_t)(to - from) + 1);
    if (!bytes)
        return clv_fail_memory(err, "a text", (size_t)(to - from));
    for (int64_t i = from; i < to; i++)
        bytes[i - from] = (char)s->ids[i];
    bytes[to - from] = '\0';
    *text = bytes;
    *size = (size_t)(to - from);
    return CLV_OK;
}

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

/* Bytes of a character that is not whole yet read as U+FFFD at the end. */
static bool is_whole(const clv_codec *codec, const char *text, size_t size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    return !codec->tokenizer || size < 3 || memcmp(text + size - 3, replacement, 3) != 0;
}

/* The window's text less that of its first part: what a token spells may depend on the one before it. */
clv_status clv_text_stream_add(clv_text_stream *s, const clv_codec *codec, const int64_t *ids, int64_t n, bool last,
                               char **text, size_t *size, clv_error *err)
{
    char *before;
    size_t given;
    CLV_TRY(take(s, ids, n, err));
    CLV_TRY(decode(codec, s, s->from, s->shown, &before, &given, err));
    free(before);
    CLV_TRY(decode(codec, s, s->from, s->n, text, size, err));
    if (!last && !is_whole(codec, *text, *size))
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
