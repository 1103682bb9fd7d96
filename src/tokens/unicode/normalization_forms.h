/* normalization_forms.h - Unicode normalization forms NFC, NFD, NFKC, NFKD (UAX 15). */
#pragma once

#include <stdbool.h>

#include "tokens/tokenizer/text_buffer.h"

typedef struct clv_normalization_form {
    bool compatible; /* NFKC, NFKD: also compatibility decompositions, as of ligatures */
    bool composed;   /* NFC, NFKC */
} clv_normalization_form;

/* Appends valid UTF-8 in a normalization form, in linear time (n log n in a run of marks). */
clv_status clv_unicode_normalize(clv_text_buffer *out, clv_normalization_form form, clv_text_span text, clv_error *err);
