/* sequences.h - sequences of a file as tokens: lines of text, or records of FASTA; and how they are put into batches. */
#ifndef CLEAVE_CLI_SEQUENCES_H
#define CLEAVE_CLI_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/model.h"

typedef struct clv_sequence {
    char *name; /* of a FASTA record, its first word; of a line, its number from 1 */
    char *text; /* the line, or the residues in upper case */
    int64_t *ids, n;
    int64_t whole; /* tokens before it was cut; n where it was not */
    int64_t first,
        own; /* its own tokens: where they begin, behind those that the tokenizer adds, and how many are kept */
} clv_sequence;

typedef struct clv_sequences {
    int64_t n;
    clv_sequence *item;
    int64_t n_left_out;
    clv_sequence *left_out; /* what does not fit, in its order */
    int64_t most;           /* tokens that fit */
    int64_t least_own;      /* that are needed */
    bool fasta;
} clv_sequences;

/* What becomes of a sequence that does not fit the model's positions. */
typedef enum clv_too_long {
    CLV_TOO_LONG_REFUSED,
    CLV_TOO_LONG_LEFT_OUT,
    CLV_TOO_LONG_CUT /* its last own tokens go, what the tokenizer adds stays; left out where that is too much, too */
} clv_too_long;

/* Reads .fasta, .fa or .faa as FASTA, anything else as lines, and encodes them with what the tokenizer adds (<cls>, <eos>).
 * An empty record or line is one like others: what the tokenizer makes of nothing fits or does not.
 *
 * @param least_own  own tokens that a sequence must have to fit, beside those that are added
 * @return CLV_EINVAL naming the record or line: a letter that no protein has, or refused; or when the file has none. That all
 *         are left out is no error */
clv_status clv_sequences_read(clv_sequences *out, const char *path, const clv_tokenizer *tokenizer,
                              const clv_model_info *model, clv_too_long how, int64_t least_own, clv_error *err);
void clv_sequences_free(clv_sequences *sequences);

/* Lists on stderr what was cut and what was left out; whether all were used, be it in part. */
bool clv_sequences_report(const clv_sequences *sequences, const char *command);

/* The option of commands that read them. */
#define CLV_SEQUENCES_OPTION(field)                                                                                    \
    {                                                                                                                  \
        .names = "--truncate", .kind = CLV_OPTION_FLAG, .out = (field),                                                \
        .help = "cut sequences to the tokens that the model takes; else longer ones are left out (exit 1)"             \
    }

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
