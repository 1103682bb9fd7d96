/* corpus_pipeline.h - corpus tokenization pipeline: chunk reader, chunk encoder, parallel driver. */
#ifndef CLEAVE_TOKENS_DATA_CORPUS_PIPELINE_H
#define CLEAVE_TOKENS_DATA_CORPUS_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/corpus.h"
#include "io/files/text_file.h"
#include "tokens/data/token_file.h"

/* ---- corpus_reader.c: pieces ---- */

enum { CLV_CORPUS_CHUNK_BYTES = 4 << 20 /* bytes of text, at least, but for the last of a file */ };

/* Where the reading of files stands. */
typedef struct clv_corpus_reader {
    const char *const *paths;
    int n, i;            /* files, the next one's number */
    bool chat;           /* all must be lines of JSON */
    clv_text_file *file; /* that is read; NULL: none */
    clv_text_format form;
    bool first;       /* nothing of it was handed on */
    int64_t line, at; /* the next piece's first line; bytes of the file that were told */
    char *ahead;      /* what was read of the next piece */
    size_t ahead_size;
} clv_corpus_reader;

typedef struct clv_corpus_chunk {
    const char *path;
    clv_text_format form; /* documents are the file itself, its lines, or its records */
    bool first, last;     /* of its file */
    int64_t line;         /* the number, from 1, of its first line; of a JSON array, its first element */
    int64_t read;         /* bytes of the file, as it lies on the disk, that were read for it */
    size_t size;
    char *text; /* its own; a zero byte follows */
} clv_corpus_chunk;

/* Reads the next piece, which the caller frees. text NULL: there is none. */
clv_status clv_corpus_reader_next(clv_corpus_chunk *out, clv_corpus_reader *cursor, clv_error *err);
void clv_corpus_reader_close(clv_corpus_reader *cursor);

/* ---- corpus_encoder.c: ids ---- */

/* What is made of a document, known before any is read. */
typedef struct clv_corpus_encoder {
    clv_corpus_options options;
    clv_tokenizer *bytes;           /* its own, where none was given */
    const clv_tokenizer *tokenizer; /* one of the two */
    int64_t vocab, end_id;
    const char *turn, *content; /* {content} in it */
} clv_corpus_encoder;

clv_status clv_corpus_encoder_open(clv_corpus_encoder *out, const clv_corpus_options *options, clv_error *err);
/* One of zeros is none. */
void clv_corpus_encoder_close(clv_corpus_encoder *form);

typedef struct clv_corpus_ids {
    int64_t n, room, documents, n_loss_tokens, skipped_lines, records;
    int32_t *id;        /* [n] */
    uint8_t *loss_mask; /* [n]; of a chat alone, else all are */
} clv_corpus_ids;

/* Appends the ids of a piece. */
clv_status clv_corpus_encoder_encode(clv_corpus_ids *out, const clv_corpus_encoder *form, const clv_corpus_chunk *piece,
                                     clv_error *err);
void clv_corpus_ids_free(clv_corpus_ids *ids);

/* ---- corpus_pipeline.c: all of it, on several threads ---- */

/* Tokenizes a file into a token file in memory. vocab: as clv_token_file_open has it. */
clv_status clv_corpus_tokenize_to_memory(clv_token_file *out, clv_corpus_info *info, const clv_corpus_encoder *form,
                                         const char *path, int64_t vocab, clv_error *err);
/* Takes ids, in the order of documents, one call at a time. */
typedef clv_status clv_corpus_sink(void *arg, const clv_corpus_ids *ids, clv_error *err);
clv_status clv_corpus_tokenize_parallel(clv_corpus_info *result, const clv_corpus_encoder *form,
                                        const char *const *paths, int n, clv_corpus_sink *sink, void *arg,
                                        clv_error *err);

#endif
