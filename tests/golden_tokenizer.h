/* golden_tokenizer.h - a tokenizer of tests/golden/tokenizer. */
#pragma once

#include "cleave/tokenizer.h"
#include "golden_path.h"
#include "must.h"

/* Free with clv_tokenizer_free. */
static inline clv_tokenizer *golden_tokenizer(const char *name)
{
    clv_error err = {0};
    clv_tokenizer *t;
    must(clv_tokenizer_open(&t, golden_path("tokenizer/%s", name), &err), &err);
    return t;
}
