/* tokenized_sequences.h - struct clv_sequences: tokenized sequences of a file or of texts. */
#pragma once

#include <stdbool.h>

#include "cleave/sequences.h"

typedef struct clv_sequence {
    char *name; /* first word of a FASTA record; number of a line, from 1 */
    char *text; /* the line, or the residues in upper case */
    int64_t *ids, n;
    int64_t content_begin, n_content; /* the tokens between the tokenizer's special tokens */
    int64_t n_untruncated;            /* n before truncation */
} clv_sequence;

struct clv_sequences {
    int64_t n, n_skipped, capacity;
    clv_sequence *item, *skipped; /* [n] those that fit, [n_skipped] those that do not; both in their order */
    int64_t max_tokens;           /* a sequence fits with at most so many tokens, */
    int64_t min_content_tokens;   /* and at least so many content tokens */
    bool fasta;
};

/* clv_sequences_read with a tokenizer and max_tokens instead of a model. Empty *out with clv_sequences_reset. */
clv_status clv_sequences_load(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer, int64_t max_tokens,
                              const clv_sequences_options *options, clv_error *err);
void clv_sequences_reset(clv_sequences *sequences);
