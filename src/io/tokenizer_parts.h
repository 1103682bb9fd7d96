/* tokenizer_parts.h - the components of a tokenizer: read by tokenizer_json.c, run by tokenizer.c. */
#ifndef CLEAVE_IO_TOKENIZER_PARTS_H
#define CLEAVE_IO_TOKENIZER_PARTS_H

#include "io/bpe.h"
#include "io/json.h"
#include "io/tokenizer.h"

enum { CLV_MAX_TOKENIZER_STEPS = 16, CLV_MAX_TEMPLATE = 16 };

typedef struct clv_token_text {
    const char *text;
    size_t size;
} clv_token_text;

/* A step on text, or on the texts of tokens. */
typedef struct clv_text_step {
    enum {
        CLV_TEXT_PREPEND,
        CLV_TEXT_REPLACE,
        CLV_TEXT_BYTES,
        CLV_TEXT_FUSE,
        CLV_TEXT_STRIP,
        CLV_TEXT_METASPACE,
        CLV_TEXT_BYTE_LEVEL
    } kind;
    clv_token_text a, b;     /* PREPEND: a; REPLACE: a by b; STRIP: a; METASPACE: a is what stands for a space */
    int64_t start, stop;     /* STRIP: at most so many of a at each end */
    bool strips_first_space; /* METASPACE */
} clv_text_step;

typedef struct clv_text_steps {
    int n;
    clv_text_step step[CLV_MAX_TOKENIZER_STEPS];
} clv_text_steps;

typedef struct clv_metaspace {
    bool present, split;
    clv_token_text replacement;
    enum { CLV_PREPEND_NEVER, CLV_PREPEND_FIRST, CLV_PREPEND_ALWAYS } prepend;
} clv_metaspace;

/* Pieces found by a pattern, their bytes written as characters of their own (GPT-2). */
typedef struct clv_byte_level {
    bool present, prefix_space;
    struct clv_pattern *pattern; /* NULL: the text is one piece */
} clv_byte_level;

typedef struct clv_added_token {
    clv_token_text text;
    int64_t id;
} clv_added_token;

struct clv_tokenizer {
    clv_arena *arena;
    int64_t size;          /* one more than the largest id */
    clv_token_text *token; /* [size]; text NULL: no such id */
    bool *special;         /* [size] */
    int n_added;
    clv_added_token *added; /* the longest first */
    clv_text_steps normalizer, decoder;
    clv_metaspace metaspace;
    clv_byte_level byte_level;
    int n_before, n_after; /* special ids around a text */
    int64_t before[CLV_MAX_TEMPLATE], after[CLV_MAX_TEMPLATE];
    clv_bpe bpe;
};

/* Fills an empty tokenizer, which has its arena, from a parsed tokenizer.json. */
clv_status clv_tokenizer_from_json(clv_tokenizer *t, const json_t *document, const char *where, clv_error *err);

#endif
