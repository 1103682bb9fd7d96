/* table_internal.h - struct clv_table and what its printers share; private to table*.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cli/output/table.h"

enum { CLV_TABLE_COLUMNS = 32, CLV_TABLE_LISTS = 4 };

/* How a number reads in text. */
typedef enum clv_table_unit {
    CLV_UNIT_PLAIN,
    CLV_UNIT_BYTES,
    CLV_UNIT_SECONDS,
    CLV_UNIT_COUNT,
    CLV_UNIT_FRACTION
} clv_table_unit;

struct clv_table {
    json_t *root;
    int n_lists;
    json_t *list[CLV_TABLE_LISTS]; /* of rows, borrowed from root; new rows go to the last */
    const char *title[CLV_TABLE_LISTS];
    json_t *target;    /* where values go: root, an object in it, or the newest row */
    json_t *units;     /* {scope: {key: unit}} of values that are no plain numbers */
    const char *scope; /* of target: one of clv_table_list_scope, CLV_TABLE_ROOT, or the object's key */
    const char *head;  /* the key of the object that text shows first; NULL: none */
    const char *minor[CLV_TABLE_COLUMNS]; /* columns that text leaves out where the width is short */
    int n_minor;
    const char *sentence; /* a last column that is continued on further lines; NULL: it is cut */
    bool failed;
};

#define CLV_TABLE_ROOT ""
extern const char *const clv_table_list_scope[CLV_TABLE_LISTS];

clv_table_unit clv_table_unit_of(const clv_table *t, const char *scope, const char *key);

/* The keys of the rows of a list in order of first use; returns how many. */
int clv_table_keys(const char *keys[CLV_TABLE_COLUMNS], const clv_table *t, int list);

/* Prints the table on stdout in lines of at most `width` columns; 0: as wide as it is. */
void clv_table_print_text(const clv_table *t, int width);
