/* regex_syntax.h - regular expressions as the `tokenizers` library reads them (Oniguruma's Ruby syntax), written anew
 * in the syntax of PCRE2. */
#ifndef CLEAVE_TOKENS_REGEX_SYNTAX_H
#define CLEAVE_TOKENS_REGEX_SYNTAX_H

#include "tokens/text_buffer.h"

/* Appends what PCRE2 (UTF, multi-line, LF as the only newline) must be given to match as Oniguruma does. What it has no
 * words for is CLV_EUNSUPPORTED, and the message names it; what is no expression at all may be left to PCRE2's
 * message. */
clv_status clv_regex_translate(clv_text_buffer *out, clv_text_span expression, clv_error *err);

#endif
