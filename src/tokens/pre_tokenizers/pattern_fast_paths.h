/* pattern_fast_paths.h - matches the pre-tokenizer patterns of GPT-2, Llama 3 and Qwen2 by hand-written code, faster
 * than PCRE2. */
#pragma once

#include "tokens/tokenizer/text_buffer.h"

typedef struct clv_pattern_fast_path {
    const char *expression;
    /* End of the match that begins at `at` < text.size. */
    size_t (*end)(clv_text_span text, size_t at);
} clv_pattern_fast_path;

extern const clv_pattern_fast_path clv_gpt2_pattern;
/* Matcher of an expression; NULL: none. */
const clv_pattern_fast_path *clv_pattern_fast_path_find(clv_text_span expression);
