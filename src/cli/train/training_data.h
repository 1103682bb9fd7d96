/* training_data.h - training data of `cleave train`: its options, tokenizing text or opening token files, and
 * batches.
 */
#ifndef CLEAVE_CLI_TRAIN_TRAINING_DATA_H
#define CLEAVE_CLI_TRAIN_TRAINING_DATA_H

#include "cleave/data.h"
#include "cleave/model.h"
#include "cli/options/model_options.h"
#include "cli/parser/option_parser.h"

/* What of it options say. */
typedef struct clv_data_option {
    clv_strings files;
    bool no_shuffle, chat, skip_bad_lines;
    const char *tokenizer, *field; /* of texts among the files; NULL: the model's, else a byte a token; the usual key */
    const char *rows;              /* "packed", "padded"; NULL: padded where all files are proteins */
    double mask_rate;              /* of models that learn what is masked; 0: the usual one */
    clv_strings val;               /* none: it is not looked how well the model does on what it does not see */
    int64_t eval_every;
} clv_data_option;

#define CLV_DATA_OPTIONS(o)                                                                                            \
    {.names = "--data, --text",                                                                                        \
     .kind = CLV_OPTION_FILES,                                                                                         \
     .bare = CLV_POSITIONAL_SUGGESTED,                                                                                 \
     .out = &(o)->files,                                                                                               \
     .value = "FILE...",                                                                                               \
     .use = CLV_OPTION_INPUT,                                                                                          \
     .host_local = true,                                                                                               \
     .help =                                                                                                           \
         "what to learn: texts, lines of JSON, proteins (FASTA), also gzipped or from a pipe (-), token files, or "    \
         "one safetensors file with ids [N,S]; told by what they hold (docs/data.md)"},                                \
        {.names = "--rows",                                                                                            \
         .kind = CLV_OPTION_CHOICE,                                                                                    \
         .out = &(o)->rows,                                                                                            \
         .value = "packed|padded",                                                                                     \
         .advanced = true,                                                                                             \
         .help = "packed: documents one behind the other, cut into sequences; padded: each is a row of its own, "      \
                 "padded, or a window of it (padded where all files are FASTA, else packed)"},                         \
        {.names = "--mask-rate, --mask-prob",                                                                          \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(o)->mask_rate,                                                                                       \
         .real_min = 1e-6,                                                                                             \
         .real_max = 1,                                                                                                \
         .value = "R",                                                                                                 \
         .advanced = true,                                                                                             \
         .help = "the share of tokens that an encoder (BERT, ESM-2) is to find: of those 80 % are masked, 10 % "       \
                 "another token, 10 % as they are (0.15)"},                                                            \
        {.names = "--no-shuffle",                                                                                      \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->no_shuffle,                                                                                      \
         .advanced = true,                                                                                             \
         .help = "sequences of --data in their order: row i of all batches is sequence i mod their number"},           \
        {.names = "--tokenizer",                                                                                       \
         .kind = CLV_OPTION_STRING,                                                                                    \
         .missing_hint = clv_model_missing_hint,                                                                       \
         .out = &(o)->tokenizer,                                                                                       \
         .value = "PATH",                                                                                              \
         .use = CLV_OPTION_INPUT,                                                                                      \
         .help = "by which texts of --data and --val become tokens: tokenizer.json, or its "                           \
                 "folder; else "                                                                                       \
                 "that of -m, else a byte is a token"},                                                                \
        {.names = "--field",                                                                                           \
         .kind = CLV_OPTION_STRING,                                                                                    \
         .out = &(o)->field,                                                                                           \
         .value = "KEY",                                                                                               \
         .advanced = true,                                                                                             \
         .help = "of a line of JSON: its text (text), with --chat its turns (messages)"},                              \
        {.names = "--chat",                                                                                            \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->chat,                                                                                            \
         .help = "lines of JSON have turns, of which answers alone are learned, as by data --chat"},                   \
        {.names = "--skip-bad-lines",                                                                                  \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->skip_bad_lines,                                                                                  \
         .help =                                                                                                       \
             "lines of JSON that are not as they ought to be are passed over and counted; else the first ends it"},    \
        {.names = "--val",                                                                                             \
         .kind = CLV_OPTION_FILES,                                                                                     \
         .out = &(o)->val,                                                                                             \
         .value = "FILE...",                                                                                           \
         .use = CLV_OPTION_INPUT,                                                                                      \
         .host_local = true,                                                                                           \
         .help =                                                                                                       \
             "what is not learned: its loss and perplexity are told, before, at the end, and as --eval-every says"},   \
    {                                                                                                                  \
        .names = "--eval-every", .kind = CLV_OPTION_INT, .out = &(o)->eval_every, .min = 0, .max = 1 << 30,            \
        .value = "N", .help = "steps from one look at --val to the next; 0: at the end alone (0)"                      \
    }

typedef struct clv_train_data {
    clv_data *ids;
    clv_data *val; /* NULL: none */
    int64_t val_sequences, val_tokens;
    uint64_t val_checksum;
    int64_t seq, tokens, vocab, end; /* end: the id behind each document; -1: none */
    uint64_t seed, checksum;
    int64_t skipped;  /* lines of JSON that were passed over */
    bool bytes;       /* texts without a tokenizer: a byte is a token */
    bool padded;      /* rows, or those of val, may have padding */
    const char *rows; /* how documents become rows: "packed", "padded" */
    double mask_rate; /* 0: the next token is learned */
} clv_train_data;

/* Rows of a step, or of a look at val. mask NULL: no row has padding. */
typedef struct clv_train_batch {
    int32_t *ids, *labels;
    uint8_t *mask;
} clv_train_batch;

/* For a model that is begun with, whose folder may have a tokenizer; NULL: it is made for the data. seq 0: what the
 * file has, else 256. */
clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, const clv_model *model,
                               bool has_folder, int64_t seq, uint64_t seed, clv_error *err);
/* One of zeros is none. */
void clv_train_data_close(clv_train_data *data);
/* Memory of [batch,seq], to be freed whether it succeeds or not; and the batch of a step. */
clv_status clv_train_batch_make(clv_train_batch *out, const clv_train_data *data, int64_t batch, clv_error *err);
void clv_train_batch_free(clv_train_batch *batch);
clv_status clv_train_data_batch(const clv_train_data *data, int64_t step, int64_t batch, const clv_train_batch *out,
                                clv_error *err);

#endif
