/* text_buffer.h - growable UTF-8 string buffer and non-owning text spans (string views). */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* A borrowed text, which may hold zero bytes. */
typedef struct clv_text_span {
    const char *text;
    size_t size;
} clv_text_span;

static inline clv_text_span clv_text_span_of(const char *text, size_t size)
{
    return (clv_text_span){text, size};
}

bool clv_text_span_starts_with(clv_text_span text, clv_text_span with);

/* Bytes to show of a text, for "%.*s" in a message. */
static inline int clv_text_span_shown(clv_text_span text, int most)
{
    return text.size < (size_t)most ? (int)text.size : most;
}

/* Owned text; zeroed: empty. After an append, even of nothing, a zero byte follows the text. */
typedef struct clv_text_buffer {
    char *text;
    size_t size;
    int64_t capacity;
} clv_text_buffer;

clv_status clv_text_buffer_append(clv_text_buffer *b, const char *text, size_t size, clv_error *err);
/* Appends a character as UTF-8. */
clv_status clv_text_buffer_append_character(clv_text_buffer *b, uint32_t character, clv_error *err);
/* Appends text with each `from`, which must not be empty, replaced by `to`. */
clv_status clv_text_buffer_append_replaced(clv_text_buffer *b, clv_text_span text, clv_text_span from, clv_text_span to,
                                           clv_error *err);
void clv_text_buffer_free(clv_text_buffer *b);

static inline clv_text_span clv_text_buffer_span(const clv_text_buffer *b)
{
    return (clv_text_span){b->text, b->size};
}
