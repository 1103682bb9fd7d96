/* oniguruma_syntax.h - translation of Oniguruma regular expressions, which `tokenizers` uses, to PCRE2. */
#pragma once

#include "tokens/tokenizer/text_buffer.h"

/* Translates an expression for PCRE2 (UTF, multi-line, LF as the only newline) and appends it. @return
 * CLV_EUNSUPPORTED, naming what PCRE2 cannot express; a syntax error may be left to PCRE2 */
clv_status clv_regex_oniguruma_to_pcre2(clv_text_buffer *out, clv_text_span expression, clv_error *err);
