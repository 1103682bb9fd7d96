/* oniguruma_syntax.h - translation of Oniguruma regular expressions, which `tokenizers` uses, to PCRE2. */
#ifndef CLEAVE_TOKENS_REGEX_ONIGURUMA_SYNTAX_H
#define CLEAVE_TOKENS_REGEX_ONIGURUMA_SYNTAX_H

#include "tokens/tokenizer/text_buffer.h"

/* Appends what PCRE2 (UTF, multi-line, LF as the only newline) must be given to match as Oniguruma does. What it has no
 * words for is CLV_EUNSUPPORTED, and the message names it; what is no expression at all may be left to PCRE2's
 * message. */
clv_status clv_regex_oniguruma_to_pcre2(clv_text_buffer *out, clv_text_span expression, clv_error *err);

#endif
