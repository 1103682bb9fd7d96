/* tokenized_sequences.h - struct clv_sequences: tokenized sequences of a file or of texts. */
#ifndef CLEAVE_INFER_FORWARD_TOKENIZED_SEQUENCES_H
#define CLEAVE_INFER_FORWARD_TOKENIZED_SEQUENCES_H

#include <stdbool.h>

#include "cleave/sequences.h"

typedef struct clv_sequence {
    char *name; /* of a FASTA record, its first word; of a line, its number from 1 */
    char *text; /* the line, or the residues in upper case */
    int64_t *ids, n;
    int64_t whole; /* tokens before it was cut; n where it was not */
    int64_t first,
        own; /* its own tokens: where they begin, behind those that the tokenizer adds, and how many are kept */
} clv_sequence;

struct clv_sequences {
    int64_t n;
    clv_sequence *item;
    int64_t n_skipped;
    clv_sequence *left_out;     /* what does not fit, in its order */
    int64_t most;               /* tokens that fit */
    int64_t min_content_tokens; /* that are needed */
    bool fasta;
};

/* Fills *out, which clv_sequences_reset empties: clv_sequences_read, with a tokenizer and the most tokens that fit. */
clv_status clv_sequences_load(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer, int64_t most,
                              const clv_sequences_options *options, clv_error *err);
void clv_sequences_reset(clv_sequences *sequences);

#endif
