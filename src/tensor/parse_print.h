/* parse_print.h - scanner and string builder for the text forms of meshes, layouts, rules and graphs. */
#ifndef CLEAVE_TENSOR_PARSE_PRINT_H
#define CLEAVE_TENSOR_PARSE_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory/arena.h"
#include "cleave/mesh.h"
#include "cleave/status.h"

/* A place in a text being parsed. */
typedef struct clv_scanner {
    const char *what; /* "layout": begins each message */
    const char *text;
    int at; /* index of the next character */
} clv_scanner;

void clv_scan_skip_spaces(clv_scanner *scan);
/* Skips spaces, then the character if it is next. */
bool clv_scan_accept(clv_scanner *scan, char c);
/* Skips spaces, then reads decimal digits; false when there are none. Numbers above 2^53 read as 2^53. */
bool clv_scan_number(clv_scanner *scan, int64_t *out);
/* Fails with "layout 'text', column 5 ('c'): message"; columns count from 1. */
clv_status clv_scan_fail(const clv_scanner *scan, int at, clv_status code, clv_error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Text being written with snprintf's convention: counts all, writes what fits, ends with NUL; out may be NULL. */
typedef struct clv_text {
    char *out;
    size_t size;
    size_t length;
} clv_text;

void clv_text_add(clv_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The shortest decimal of 6 to 17 digits that reads back as the same number. */
void clv_text_add_double(clv_text *text, double value);
/* A name that is the caller's or a file's, printable. */
void clv_text_add_name(clv_text *text, const char *name);
/* "model", or "model:(2)2" for a part of the axis. */
void clv_text_add_subaxis(clv_text *text, clv_subaxis sub, const clv_mesh *mesh);
/* The length of the whole text without its end. */
int clv_text_finish(clv_text *text);

/* What `write` writes, in the arena; NULL: out of memory. It may be called twice. */
typedef void clv_text_writer(clv_text *text, const void *arg);
const char *clv_text_to_arena(clv_arena *arena, clv_text_writer *write, const void *arg);

/* mesh.c: the names of a mesh for a message, "x, y" or "none"; an axis by a name that does not end with NUL, or -1. */
void clv_mesh_names(char *out, size_t size, const clv_mesh *mesh);
int clv_mesh_find_name(const clv_mesh *mesh, const char *name, int length);

#endif
