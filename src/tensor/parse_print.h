/* parse_print.h - scanner and string builder for the text forms of meshes, layouts, rules and graphs. */
#pragma once

#include <stdbool.h>

#include "base/memory/arena.h"
#include "cleave/mesh.h"

/* A text that is being parsed. */
typedef struct clv_scanner {
    const char *what; /* kind of text for messages, "layout" */
    const char *text;
    int at; /* index of the next character */
} clv_scanner;

/* Skips spaces and tabs. */
void clv_scan_skip_spaces(clv_scanner *scan);
/* Skips spaces; if c is the next character, skips it and returns true. */
bool clv_scan_accept(clv_scanner *scan, char c);
/* Skips spaces and reads a decimal number; false if there is none. Numbers above 2^53 become 2^53. */
bool clv_scan_number(clv_scanner *scan, int64_t *out);
/* Fails with "layout 'text', column 5 ('c'): message" for index `at`; columns count from 1. */
clv_status clv_scan_fail(const clv_scanner *scan, int at, clv_status code, clv_error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A text builder: as snprintf, it counts the whole text, writes what fits, and ends it with NUL; out may be NULL. */
typedef struct clv_text {
    char *out;
    size_t size;
    size_t length;
} clv_text;

void clv_text_add(clv_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds the shortest decimal of 6 to 17 digits that reads back as the same number. */
void clv_text_add_double(clv_text *text, double value);
/* Adds an untrusted name, escaped. */
void clv_text_add_name(clv_text *text, const char *name);
/* Adds "model", or "model:(2)2" for a part of the axis. */
void clv_text_add_subaxis(clv_text *text, clv_subaxis sub, const clv_mesh *mesh);
/* "stage 0", "stages 0, 2": those whose bits are set. */
void clv_text_add_stages(clv_text *text, uint32_t stages);
/* Returns the length of the whole text without the NUL. */
int clv_text_finish(clv_text *text);

/* Returns the text that `write` builds, in the arena; NULL: out of memory. May call `write` twice. */
typedef void clv_text_writer(clv_text *text, const void *arg);
const char *clv_text_to_arena(clv_arena *arena, clv_text_writer *write, const void *arg);

/* In mesh.c. Lists the axis names for a message, "x, y" or "none"; finds an axis by a name of given length, or -1. */
void clv_mesh_names(char *out, size_t size, const clv_mesh *mesh);
int clv_mesh_find_axis_or_negative(const clv_mesh *mesh, const char *name, int length);
