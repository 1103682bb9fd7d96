/* length_batches.h - groups sequences of similar length into padded batches of few shapes. */
#pragma once

#include "infer/forward/tokenized_sequences.h"

/* A batch: sequences of nearly the same length, padded to seq. */
typedef struct clv_batch {
    int64_t rows, seq;
    int64_t *index; /* [rows] which sequences; -1: none, a copy of row 0 */
    int32_t *ids;   /* [rows, seq] */
    uint8_t *mask;  /* [rows, seq] */
} clv_batch;

/* Walks through all sequences, the longest first, in batches of about `tokens` tokens and few different shapes. */
typedef struct clv_length_batches {
    const clv_sequences *all;
    int64_t *order; /* [n] */
    int64_t next, batch_tokens, max_positions;
    clv_batch batch;
} clv_length_batches;

/* Groups sequences for batches of at most batch_tokens tokens, padding included, but at least one row. max_positions:
 * the model's, beyond which no row is padded. Free with clv_length_batches_end. */
clv_status clv_length_batches_begin(clv_length_batches *out, const clv_sequences *all, int64_t batch_tokens,
                                    int64_t max_positions, clv_error *err);
/* Makes the next batch, batches->batch, whose rows are filled up with pad_token; false: there is none. */
bool clv_length_batches_next(clv_length_batches *batches, int64_t pad_token);
void clv_length_batches_end(clv_length_batches *batches);
