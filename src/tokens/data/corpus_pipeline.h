/* corpus_pipeline.h - corpus tokenization pipeline: chunk reader, chunk encoder, parallel driver. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cleave/corpus.h"
#include "io/files/text_file.h"
#include "tokens/data/token_file.h"

/* ---- corpus_reader.c ---- */

enum { CLV_CORPUS_CHUNK_BYTES = 4 << 20 /* minimal size of a chunk of plain text, except the last of a file */ };

/* Position in a list of files. */
typedef struct clv_corpus_reader {
    const char *const *paths;
    int n, i;            /* number of files; index of the next one */
    bool chat;           /* all files must be JSON */
    clv_text_file *file; /* open file; NULL: none */
    clv_text_format format;
    bool first;       /* the next chunk is the first of its file */
    int64_t line;     /* first line of the next chunk */
    int64_t reported; /* bytes of the file that chunks have reported as read */
    char *ahead;      /* text read beyond the last chunk */
    size_t ahead_size;
} clv_corpus_reader;

typedef struct clv_corpus_chunk {
    const char *path;
    clv_text_format format; /* a document is the file, a line or a record */
    bool first, last;       /* chunk of its file */
    int64_t line;           /* its first line, or element of a JSON array, from 1 */
    int64_t read;           /* bytes of the file on disk that were read for it */
    size_t size;
    char *text; /* malloc'd, followed by a zero byte */
} clv_corpus_chunk;

/* Reads the next chunk, whose text the caller frees; text NULL: there is none. */
clv_status clv_corpus_reader_next(clv_corpus_chunk *out, clv_corpus_reader *reader, clv_error *err);
void clv_corpus_reader_close(clv_corpus_reader *reader);

/* ---- corpus_encoder.c ---- */

/* Encodes chunks; immutable. */
typedef struct clv_corpus_encoder {
    clv_corpus_options options;
    clv_tokenizer *bytes;           /* owned byte tokenizer, if the options have none */
    const clv_tokenizer *tokenizer; /* that of the options, else `bytes` */
    int64_t vocab, end_id;
    const char *turn, *content; /* turn template; position of {content} in it */
} clv_corpus_encoder;

clv_status clv_corpus_encoder_open(clv_corpus_encoder *out, const clv_corpus_options *options, clv_error *err);
/* Does nothing for a zeroed encoder. */
void clv_corpus_encoder_close(clv_corpus_encoder *encoder);

typedef struct clv_corpus_ids {
    int64_t n, capacity, documents, n_loss_tokens, skipped_lines, records;
    int32_t *id;        /* [n] */
    uint8_t *loss_mask; /* [n] in a chat; NULL: all ids are labels */
} clv_corpus_ids;

/* Appends the ids of a chunk. */
clv_status clv_corpus_encoder_encode(clv_corpus_ids *out, const clv_corpus_encoder *encoder,
                                     const clv_corpus_chunk *chunk, clv_error *err);
void clv_corpus_ids_free(clv_corpus_ids *ids);

/* ---- corpus_pipeline.c ---- */

/* Tokenizes a file into a token file in memory. vocab: as in clv_token_file_open. */
clv_status clv_corpus_tokenize_to_memory(clv_token_file *out, clv_corpus_info *info, const clv_corpus_encoder *encoder,
                                         const char *path, int64_t vocab, clv_error *err);
/* Takes the ids of a chunk; called in file order, one call at a time. */
typedef clv_status clv_corpus_sink(void *arg, const clv_corpus_ids *ids, clv_error *err);
clv_status clv_corpus_tokenize_parallel(clv_corpus_info *result, const clv_corpus_encoder *encoder,
                                        const char *const *paths, int n, clv_corpus_sink *sink, void *arg,
                                        clv_error *err);
