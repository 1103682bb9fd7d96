/* training_data.h - training data of `cleave train`: its options, tokenizing text or opening token files, and
 * batches.
 */
#pragma once

#include "cleave/data.h"
#include "cleave/train.h"
#include "cli/input/sequence_options.h"
#include "cli/options/model_options.h"
#include "cli/parser/option_parser.h"

/* Tokens a sequence, unless --data or --seq says another number. */
enum { CLV_TRAIN_DATA_SEQ = 256 };

typedef struct clv_data_option {
    clv_strings files; /* --data */
    bool no_shuffle, chat, skip_bad_lines;
    const char *tokenizer; /* of text; NULL: the model's, else bytes are tokens */
    const char *field;     /* of JSON lines; NULL: the default key */
    const char *rows;      /* "packed", "padded"; NULL: padded if all files are proteins */
    double mask_rate;      /* of masked language models; 0: the default */
    clv_strings val;       /* --val; none: no validation */
    int64_t eval_every;
} clv_data_option;

#define CLV_DATA_OPTIONS(o)                                                                                            \
    CLV_OPT_VALUE(FILES, "--data, --text", &(o)->files, "FILE...",                                                     \
                  "training data: text, JSON lines, proteins (FASTA), also gzipped or from a pipe (-), token files, "  \
                  "or a safetensors file with ids [N,S]; the format is detected (docs/data.md)",                       \
                  .use = CLV_OPTION_INPUT, .positional = CLV_POSITIONAL_SUGGESTED, .host_local = true),                \
        CLV_OPT_CHOICE("--rows", &(o)->rows, "packed|padded",                                                          \
                       "packed: concatenate documents and cut them into sequences; padded: a row for each document, "  \
                       "padded or cut to a window (padded if all files are FASTA, else packed)",                       \
                       .advanced = true),                                                                              \
        CLV_OPT_REAL("--mask-rate, --mask-prob", &(o)->mask_rate, 1e-6, 1, "R",                                        \
                     "fraction of tokens that an encoder (BERT, ESM-2) predicts: 80 % of them are masked, 10 % "       \
                     "replaced by random tokens, 10 % kept (0.15)",                                                    \
                     .advanced = true),                                                                                \
        CLV_OPT_FLAG("--no-shuffle", &(o)->no_shuffle,                                                                 \
                     "sequences in the order of --data: row i of all batches is sequence i mod their number",          \
                     .advanced = true),                                                                                \
        CLV_OPT_INPUT("--tokenizer", &(o)->tokenizer, "PATH",                                                          \
                      "tokenizer of text in --data and --val: tokenizer.json, or its folder (of -m, else bytes)",      \
                      .missing_hint = clv_model_missing_hint),                                                         \
        CLV_OPT_STRING("--field", &(o)->field, "KEY",                                                                  \
                       "key of the text in a JSON line (text), with --chat of the turns (messages)",                   \
                       .advanced = true),                                                                              \
        CLV_OPT_FLAG("--chat", &(o)->chat, "JSON lines hold turns; train on the answers only, as data --chat"),        \
        CLV_SKIP_BAD_LINES_OPTION(&(o)->skip_bad_lines),                                                               \
        CLV_OPT_VALUE(FILES, "--val", &(o)->val, "FILE...",                                                            \
                      "validation data: its loss and perplexity before, at the end, and every --eval-every steps",     \
                      .use = CLV_OPTION_INPUT, .host_local = true),                                                    \
        CLV_OPT_INT("--eval-every", &(o)->eval_every, 0, 1 << 30, "N",                                                 \
                    "steps between validations; 0: only before and at the end (0)")

typedef struct clv_train_data {
    clv_data *ids;
    clv_data *val; /* NULL: none */
    int64_t val_sequences, val_tokens;
    uint64_t val_checksum;
    int64_t seq, tokens, vocab;
    int64_t eos_id; /* the token after each document; -1: none */
    uint64_t seed, checksum;
    int64_t skipped;  /* malformed JSON lines */
    bool bytes;       /* text without a tokenizer: bytes are tokens */
    bool padded;      /* rows, or those of val, may have padding */
    const char *rows; /* "packed", "padded" */
    double mask_rate; /* 0: next-token prediction */
} clv_train_data;

/* A batch of rows. mask NULL: no padding. */
typedef struct clv_train_batch {
    int32_t *ids, *labels;
    uint8_t *mask;
} clv_train_batch;

/* Opens the data for `model`, whose folder may have a tokenizer; NULL: the model is created for the data. seq 0: that
 * of the file, else 256. */
clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, const clv_model *model,
                               bool has_folder, int64_t seq, uint64_t seed, clv_error *err);
/* Does nothing for zeros. */
void clv_train_data_close(clv_train_data *data);

/* Allocates [batch,seq]; free it whether this succeeds or not. */
clv_status clv_train_batch_alloc(clv_train_batch *out, const clv_train_data *data, int64_t batch, clv_error *err);
void clv_train_batch_free(clv_train_batch *batch);
/* Fills the batch of a step. */
clv_status clv_train_data_fill_batch(const clv_train_data *data, int64_t step, int64_t batch,
                                     const clv_train_batch *out, clv_error *err);

/* *loss: the mean over all labels of data->val, in nats, each sequence once. The trainer does not change. b: a batch of
 * `batch` rows, overwritten. */
clv_status clv_train_validate(double *loss, const clv_train_data *data, clv_trainer *trainer, int64_t batch,
                              const clv_train_batch *b, clv_error *err);
