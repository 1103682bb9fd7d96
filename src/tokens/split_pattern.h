/* split_pattern.h - the regular expressions by which most byte-level models cut text, each as code of its own: faster
 * than PCRE2 (regex.h), in time linear in the text, and by the `tokenizers` library's own tables of Unicode. */
#ifndef CLEAVE_TOKENS_SPLIT_PATTERN_H
#define CLEAVE_TOKENS_SPLIT_PATTERN_H

#include "tokens/text_buffer.h"

typedef struct clv_split_pattern {
    const char *expression;
    /* The end of the piece that begins at `at` < text.size. */
    size_t (*end)(clv_text_span text, size_t at);
} clv_split_pattern;

extern const clv_split_pattern clv_gpt2_pattern;
/* NULL: not known. */
const clv_split_pattern *clv_split_pattern_find(clv_text_span expression);

#endif
