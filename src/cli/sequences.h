/* sequences.h - sequences of a file as tokens: lines of text, or records of FASTA; and how they are put into batches. */
#ifndef CLEAVE_CLI_SEQUENCES_H
#define CLEAVE_CLI_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "infer/codec.h"
#include "models/model.h"

typedef struct clv_sequence {
    char *name; /* of a FASTA record, its first word; of a line, its number from 1 */
    char *text; /* the line, or the residues in upper case */
    int64_t *ids, n;
} clv_sequence;

typedef struct clv_sequences {
    int64_t n;
    clv_sequence *item;
    bool fasta;
} clv_sequences;

/* Reads .fasta, .fa or .faa as FASTA, anything else as lines, and encodes them with what the tokenizer adds (<cls>, <eos>).
 * @return CLV_EINVAL naming the record or line: empty, a letter that no protein has, longer than the model's positions */
clv_status clv_sequences_read(clv_sequences *out, const char *path, const clv_codec *codec, const clv_model *model,
                              clv_error *err);
void clv_sequences_free(clv_sequences *sequences);

/* Residue letters, as ESM-2 has them. */
extern const char clv_residues[];

/* A batch: sequences of nearly the same length, padded to seq. */
typedef struct clv_batch {
    int64_t rows, seq;
    int64_t *index; /* [rows] which sequences; -1: none, a copy of row 0 */
    int32_t *ids;   /* [rows, seq] */
    uint8_t *mask;  /* [rows, seq] */
} clv_batch;

/* Walks through all sequences, the longest first, in batches of about `tokens` tokens and few different shapes. */
typedef struct clv_batches {
    const clv_sequences *all;
    int64_t *order; /* [n] */
    int64_t next, tokens, most;
    clv_batch batch;
} clv_batches;

/* pad: the token that fills rows; most: the model's positions. Free with clv_batches_end. */
clv_status clv_batches_begin(clv_batches *out, const clv_sequences *all, int64_t tokens, int64_t most, clv_error *err);
/* The next batch is in b->batch; false: there is none. */
bool clv_batches_next(clv_batches *batches, int64_t pad);
void clv_batches_end(clv_batches *batches);

#endif
