/* mlir_lexer.h - splits StableHLO text into tokens. */
#pragma once

#include "interop/mlir.h"

typedef enum mlir_token_kind {
    MLIR_TOKEN_END,
    MLIR_TOKEN_WORD,   /* stablehlo.add */
    MLIR_TOKEN_VALUE,  /* %0#1: text "0", number 1 (-1: none) */
    MLIR_TOKEN_SYMBOL, /* @main: text "main" */
    MLIR_TOKEN_ALIAS,  /* #loc3: text "#loc3" */
    MLIR_TOKEN_BLOCK,  /* ^bb0 */
    MLIR_TOKEN_STRING, /* text: between the quotes, without escapes */
    MLIR_TOKEN_NUMBER, /* text */
    MLIR_TOKEN_ARROW,  /* -> */
    MLIR_TOKEN_MARK    /* text: one of ( ) { } [ ] < > : , = ? ! and others */
} mlir_token_kind;

typedef struct mlir_token {
    mlir_token_kind kind;
    const char *text; /* in the source; of a string with escapes, in the module's arena */
    size_t length;
    int number;
    mlir_place at;
} mlir_token;

typedef struct mlir_lexer {
    mlir_module *module; /* for messages */
    const char *next, *end;
    const char *line_start;
    int line;
    mlir_token token; /* the current one */
} mlir_lexer;

/* Starts; the current token is the first. */
clv_status mlir_lexer_start(mlir_lexer *lexer, mlir_module *module, const char *text, size_t size, clv_error *err);
/* Goes to the next token. */
clv_status mlir_lexer_advance(mlir_lexer *lexer, clv_error *err);
/* The current token is '<': returns what lies between it and its '>', and goes past that. */
clv_status mlir_lexer_raw(const char **text, size_t *length, mlir_lexer *lexer, clv_error *err);
/* Whether the current token is this mark, or this word. */
bool mlir_lexer_is(const mlir_lexer *lexer, const char *text);
