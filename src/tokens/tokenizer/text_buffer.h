/* text_buffer.h - growable UTF-8 string buffer and non-owning text spans (string views). */
#ifndef CLEAVE_TOKENS_TOKENIZER_TEXT_BUFFER_H
#define CLEAVE_TOKENS_TOKENIZER_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

/* Text of someone else's; it may hold zero bytes. */
typedef struct clv_text_span {
    const char *text;
    size_t size;
} clv_text_span;

static inline clv_text_span clv_text_span_of(const char *text, size_t size)
{
    return (clv_text_span){text, size};
}

/* Whether text begins with another. */
bool clv_text_span_starts_with(clv_text_span text, clv_text_span with);

/* malloc'd; all zero: empty. Once something was appended (nothing counts), a zero byte stands behind. */
typedef struct clv_text_buffer {
    char *text;
    size_t size, capacity;
} clv_text_buffer;

clv_status clv_text_buffer_append(clv_text_buffer *b, const char *text, size_t size, clv_error *err);
/* A character as UTF-8. */
clv_status clv_text_buffer_append_character(clv_text_buffer *b, uint32_t character, clv_error *err);
/* Appends text with every `from`, which is not empty, replaced by `to`. */
clv_status clv_text_buffer_append_replaced(clv_text_buffer *b, clv_text_span text, clv_text_span from, clv_text_span to,
                                           clv_error *err);
void clv_text_buffer_free(clv_text_buffer *b);

static inline clv_text_span clv_text_buffer_span(const clv_text_buffer *b)
{
    return (clv_text_span){b->text, b->size};
}

#endif
