/* normalization_forms.h - Unicode normalization forms NFC, NFD, NFKC, NFKD (UAX 15). */
#ifndef CLEAVE_TOKENS_UNICODE_NORMALIZATION_FORMS_H
#define CLEAVE_TOKENS_UNICODE_NORMALIZATION_FORMS_H

#include <stdbool.h>

#include "tokens/tokenizer/text_buffer.h"

typedef struct clv_normalization_form {
    bool compatible; /* NFKC, NFKD: ligatures, widths and the like are taken apart */
    bool composed;   /* NFC, NFKC */
} clv_normalization_form;

/* Appends valid UTF-8 in a form, in time linear in its length (a logarithm of the longest run of marks apart). */
clv_status clv_unicode_normalize(clv_text_buffer *out, clv_normalization_form form, clv_text_span text, clv_error *err);

#endif
