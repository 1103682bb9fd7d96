/* text_buffer.c - growable UTF-8 string buffer and non-owning text spans. */
#include "tokens/tokenizer/text_buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/grow.h"
#include "base/text/utf8.h"

bool clv_text_span_starts_with(clv_text_span text, clv_text_span with)
{
    return text.size >= with.size && memcmp(text.text, with.text, with.size) == 0;
}

clv_status clv_text_buffer_append(clv_text_buffer *b, const char *text, size_t size, clv_error *err)
{
    CLV_TRY(clv_grow(&b->text, &b->capacity, (int64_t)(b->size + size + 1), 1, "a text", err));
    if (size > 0)
        memcpy(b->text + b->size, text, size);
    b->size += size;
    b->text[b->size] = '\0';
    return CLV_OK;
}

clv_status clv_text_buffer_append_character(clv_text_buffer *b, uint32_t character, clv_error *err)
{
    char bytes[4];
    return clv_text_buffer_append(b, bytes, clv_utf8_encode(bytes, character), err);
}

clv_status clv_text_buffer_append_replaced(clv_text_buffer *b, clv_text_span text, clv_text_span from, clv_text_span to,
                                           clv_error *err)
{
    size_t begin = 0;
    for (size_t at = 0; at < text.size;) {
        if (!clv_text_span_starts_with(clv_text_span_of(text.text + at, text.size - at), from)) {
            at++;
            continue;
        }
        CLV_TRY(clv_text_buffer_append(b, text.text + begin, at - begin, err));
        CLV_TRY(clv_text_buffer_append(b, to.text, to.size, err));
        begin = at += from.size;
    }
    return clv_text_buffer_append(b, text.text + begin, text.size - begin, err);
}

void clv_text_buffer_free(clv_text_buffer *b)
{
    free(b->text);
    *b = (clv_text_buffer){0};
}
