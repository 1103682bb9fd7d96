/* corpus.h - a corpus on its way to ids: cut into pieces of files, each of which is encoded by itself, in any order. */
#ifndef CLEAVE_TOKENS_CORPUS_H
#define CLEAVE_TOKENS_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/corpus.h"
#include "io/text_file.h"
#include "tokens/token_file.h"

/* ---- corpus_read.c: pieces ---- */

enum { CLV_CORPUS_PIECE = 4 << 20 /* bytes of text, at least, but for the last of a file */ };

/* Where the reading of files stands. */
typedef struct clv_corpus_cursor {
    const char *const *paths;
    int n, i;            /* files, the next one's number */
    bool chat;           /* all must be lines of JSON */
    clv_text_file *file; /* that is read; NULL: none */
    clv_text_form form;
    bool first;       /* nothing of it was handed on */
    int64_t line, at; /* the next piece's first line; bytes of the file that were told */
    char *ahead;      /* what was read of the next piece */
    size_t ahead_size;
} clv_corpus_cursor;

typedef struct clv_corpus_piece {
    const char *path;
    clv_text_form form; /* documents are the file itself, its lines, or its records */
    bool first, last;   /* of its file */
    int64_t line;       /* the number, from 1, of its first line; of a JSON array, its first element */
    int64_t read;       /* bytes of the file, as it lies on the disk, that were read for it */
    size_t size;
    char *text; /* its own; a zero byte follows */
} clv_corpus_piece;

/* Reads the next piece, which the caller frees. text NULL: there is none. */
clv_status clv_corpus_next(clv_corpus_piece *out, clv_corpus_cursor *cursor, clv_error *err);
void clv_corpus_close(clv_corpus_cursor *cursor);

/* ---- corpus_encode.c: ids ---- */

/* What is made of a document, known before any is read. */
typedef struct clv_corpus_form {
    clv_corpus_options options;
    clv_tokenizer *bytes;           /* its own, where none was given */
    const clv_tokenizer *tokenizer; /* one of the two */
    int64_t vocab, end;
    const char *turn, *content; /* {content} in it */
} clv_corpus_form;

clv_status clv_corpus_form_open(clv_corpus_form *out, const clv_corpus_options *options, clv_error *err);
/* One of zeros is none. */
void clv_corpus_form_close(clv_corpus_form *form);

typedef struct clv_corpus_ids {
    int64_t n, room, documents, learned_ids, skipped, records;
    int32_t *id;      /* [n] */
    uint8_t *learned; /* [n]; of a chat alone, else all are */
} clv_corpus_ids;

/* Appends the ids of a piece. */
clv_status clv_corpus_encode(clv_corpus_ids *out, const clv_corpus_form *form, const clv_corpus_piece *piece,
                             clv_error *err);
void clv_corpus_ids_free(clv_corpus_ids *ids);

/* ---- corpus.c: all of it, on several threads ---- */

/* Tokenizes a file into a token file in memory. vocab: as clv_token_file_open has it. */
clv_status clv_corpus_load(clv_token_file *out, clv_corpus_info *info, const clv_corpus_form *form, const char *path,
                           int64_t vocab, clv_error *err);
/* Takes ids, in the order of documents, one call at a time. */
typedef clv_status clv_corpus_sink(void *arg, const clv_corpus_ids *ids, clv_error *err);
clv_status clv_corpus_run(clv_corpus_info *result, const clv_corpus_form *form, const char *const *paths, int n,
                          clv_corpus_sink *sink, void *arg, clv_error *err);

#endif
