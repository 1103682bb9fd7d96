/* mlir_parser.h - what the files of the parser share: the state, and the parts of a statement. */
#pragma once

#include "base/error.h"
#include "interop/mlir_lexer.h"

enum { MLIR_DEPTH = 48 /* nested regions, attributes, locations */ };

/* A name of a value in scope. */
typedef struct mlir_name {
    const char *text;
    size_t length;
    int first, count; /* ids */
    int next;         /* in its chain; -1: the last */
    uint32_t slot;
} mlir_name;

typedef struct mlir_parser {
    mlir_lexer lexer;
    mlir_module *module;
    int depth;
    int n_names, name_capacity;
    mlir_name *names; /* a stack: scopes end in reverse */
    int *chains;      /* [CHAINS] */
    int function_capacity, mesh_capacity, loc_capacity;
} mlir_parser;

#define MLIR_ADVANCE(p) CLV_TRY(mlir_lexer_advance(&(p)->lexer, err))

/* Room for one more element of an array of the arena. */
#define MLIR_GROW(p, items, capacity, count)                                                                           \
    do {                                                                                                               \
        if (clv_arena_grow((p)->module->arena, &(items), &(capacity), (count), sizeof *(items)) != 0)                  \
            return clv_fail_memory(err, "a program", sizeof *(items));                                                 \
    } while (0)

/* Fails at the current token: "found 'x'; ... is needed". */
clv_status mlir_unexpected(const mlir_parser *p, const char *needed, clv_error *err);
/* Goes past this mark or word, or fails. */
clv_status mlir_expect(mlir_parser *p, const char *mark, clv_error *err);
/* Goes past this mark if it is there. */
clv_status mlir_accept(bool *found, mlir_parser *p, const char *mark, clv_error *err);
/* After an item of a list: goes past `close`, and *done is set, or past the comma before the next item. */
clv_status mlir_end_item(bool *done, mlir_parser *p, const char *close, clv_error *err);
/* A copy of text with a NUL, in the arena. */
clv_status mlir_copy(const char **out, mlir_parser *p, const char *text, size_t length, clv_error *err);
/* Counts a level of nesting; fails beyond MLIR_DEPTH. Leave by p->depth--. */
clv_status mlir_enter(mlir_parser *p, clv_error *err);

clv_status mlir_read_type(mlir_type *out, mlir_parser *p, clv_error *err);
/* Reads the value of an attribute. typed: a number may have a type, "1 : i32". */
clv_status mlir_read_attr(mlir_attr *out, mlir_parser *p, bool typed, clv_error *err);
/* Reads { key = value, ... } or the like between these marks, into a list. */
clv_status mlir_read_attrs(mlir_attr *out, mlir_parser *p, const char *open, const char *close, clv_error *err);
/* Appends the attributes of a list to others. */
clv_status mlir_append_attrs(mlir_attr **attrs, int *n, int *capacity, mlir_parser *p, const mlir_attr *list,
                             clv_error *err);
/* Reads loc(...); *out stays if there is none. */
clv_status mlir_read_loc(const mlir_loc **out, mlir_parser *p, clv_error *err);
