/* split_pattern.h - the regular expressions by which byte-level models cut text, each as code of its own.
 *
 * An expression from a file is never run: it is one of the known ones, or refused. Time is linear in the text. */
#ifndef CLEAVE_TOKENS_SPLIT_PATTERN_H
#define CLEAVE_TOKENS_SPLIT_PATTERN_H

#include "tokens/text_buffer.h"

typedef struct clv_split_pattern {
    const char *name, *expression;
    /* The end of the piece that begins at `at` < text.size. */
    size_t (*end)(clv_text_span text, size_t at);
} clv_split_pattern;

extern const clv_split_pattern clv_gpt2_pattern;
/* NULL: not known. */
const clv_split_pattern *clv_split_pattern_find(const char *expression);
/* Names, for messages. */
extern const char clv_split_pattern_names[];

#endif
