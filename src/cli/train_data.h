/* train_data.h - what train learns from: text, a byte a token, or files of ids. */
#ifndef CLEAVE_CLI_TRAIN_DATA_H
#define CLEAVE_CLI_TRAIN_DATA_H

#include "cleave/data.h"
#include "cleave/text_data.h"
#include "cli/options.h"

/* What of it options say. */
typedef struct clv_data_option {
    clv_strings text, files; /* one of them */
    bool no_shuffle, chat;
    const char *tokenizer, *field; /* of texts among the files; NULL: a byte a token, and the usual key */
    clv_strings val;               /* none: it is not looked how well the model does on what it does not see */
    int64_t eval_every;
} clv_data_option;

#define CLV_DATA_OPTIONS(o)                                                                                            \
    {.names = "--text",                                                                                                \
     .kind = CLV_OPTION_FILES,                                                                                         \
     .out = &(o)->text,                                                                                                \
     .value = "FILE...",                                                                                               \
     .use = CLV_OPTION_READS,                                                                                          \
     .of_host = true,                                                                                                  \
     .not_beside = "--data",                                                                                           \
     .help = "text to learn, a byte a token; several files are joined"},                                               \
        {.names = "--data",                                                                                            \
         .kind = CLV_OPTION_FILES,                                                                                     \
         .out = &(o)->files,                                                                                           \
         .value = "FILE...",                                                                                           \
         .use = CLV_OPTION_READS,                                                                                      \
         .of_host = true,                                                                                              \
         .help = "ids to learn instead: token files, or one .safetensors with ids [N,S] (docs/data.md)"},              \
        {.names = "--no-shuffle",                                                                                      \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->no_shuffle,                                                                                      \
         .not_beside = "--text",                                                                                       \
         .help = "sequences of --data in their order: row i of all batches is sequence i mod their number"},           \
        {.names = "--tokenizer",                                                                                       \
         .kind = CLV_OPTION_STRING,                                                                                    \
         .out = &(o)->tokenizer,                                                                                       \
         .value = "PATH",                                                                                              \
         .use = CLV_OPTION_READS,                                                                                      \
         .not_beside = "--text",                                                                                       \
         .help =                                                                                                       \
             "by which texts of --data and --val (.txt, .jsonl) become tokens: tokenizer.json, or its folder; else "   \
             "that of -m, else a byte is a token"},                                                                    \
        {.names = "--field",                                                                                           \
         .kind = CLV_OPTION_STRING,                                                                                    \
         .out = &(o)->field,                                                                                           \
         .value = "KEY",                                                                                               \
         .not_beside = "--text",                                                                                       \
         .help = "of a line of .jsonl: its text (text), with --chat its turns (messages)"},                            \
        {.names = "--chat",                                                                                            \
         .kind = CLV_OPTION_FLAG,                                                                                      \
         .out = &(o)->chat,                                                                                            \
         .not_beside = "--text",                                                                                       \
         .help = "lines of .jsonl have turns, of which answers alone are learned, as by data --chat"},                 \
        {.names = "--val",                                                                                             \
         .kind = CLV_OPTION_FILES,                                                                                     \
         .out = &(o)->val,                                                                                             \
         .value = "FILE...",                                                                                           \
         .use = CLV_OPTION_READS,                                                                                      \
         .of_host = true,                                                                                              \
         .help =                                                                                                       \
             "what is not learned: its loss and perplexity are told, before, at the end, and as --eval-every says"},   \
    {                                                                                                                  \
        .names = "--eval-every", .kind = CLV_OPTION_INT, .out = &(o)->eval_every, .min = 0, .max = 1 << 30,            \
        .value = "N", .help = "steps from one look at --val to the next; 0: at the end alone (0)"                      \
    }

typedef struct clv_train_data {
    clv_text_data *text; /* or ... */
    clv_data *ids;
    clv_data *val; /* NULL: none */
    int64_t val_sequences, val_tokens;
    uint64_t val_checksum;
    int64_t seq, tokens, vocab, end; /* end: the id behind each document; -1: none */
    uint64_t seed, checksum;
} clv_train_data;

/* seq 0: what the file has, else 256. vocab 0: as the files say. */
clv_status clv_train_data_open(clv_train_data *out, const clv_data_option *option, int64_t seq, int64_t vocab,
                               uint64_t seed, clv_error *err);
/* One of zeros is none. */
void clv_train_data_close(clv_train_data *data);
/* The batch of a step, [batch,seq]. */
clv_status clv_train_data_batch(const clv_train_data *data, int64_t step, int64_t batch, int32_t *ids, int32_t *labels,
                                clv_error *err);
/* "--data", and what its tokens are: "tokens". */
const char *clv_train_data_option(const clv_train_data *data);
const char *clv_train_data_unit(const clv_train_data *data);

#endif
