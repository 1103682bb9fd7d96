/* table.c - a JSON document in the making, which can also be printed as aligned columns. */
#include "cli/table.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

enum { MAX_COLUMNS = 32, CELL_SIZE = 256 };

struct clv_table {
    json_t *root;
    json_t *rows;   /* borrowed from root; NULL without rows */
    json_t *target; /* where values go: root or the newest row */
    bool failed;
};

clv_table *clv_table_new(const char *rows)
{
    clv_table *t = calloc(1, sizeof *t);

    if (t == NULL)
        return NULL;
    t->root = json_object();
    t->target = t->root;
    if (rows != NULL) {
        t->rows = json_array();
        t->failed = json_object_set_new(t->root, rows, t->rows) != 0;
    }
    return t;
}

void clv_table_row(clv_table *t)
{
    json_t *row = json_object();

    if (t == NULL)
        return;
    if (json_array_append_new(t->rows, row) != 0)
        t->failed = true;
    else
        t->target = row;
}

void clv_table_top(clv_table *t)
{
    if (t != NULL)
        t->target = t->root;
}

void clv_table_object(clv_table *t, const char *key)
{
    if (t == NULL)
        return;
    json_t *object = json_object();
    if (json_object_set_new(t->root, key, object) != 0)
        t->failed = true;
    else
        t->target = object;
}

static void set(clv_table *t, const char *key, json_t *value)
{
    if (t == NULL)
        json_decref(value);
    else if (json_object_set_new(t->target, key, value) != 0)
        t->failed = true;
}

void clv_table_text(clv_table *t, const char *key, const char *value)
{
    set(t, key, json_string(value));
}

void clv_table_texts(clv_table *t, const char *key, const char *const *values, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(values[i])) != 0 && t != NULL)
            t->failed = true;
    set(t, key, list);
}

void clv_table_int(clv_table *t, const char *key, int64_t value)
{
    set(t, key, json_integer(value));
}

void clv_table_real(clv_table *t, const char *key, double value)
{
    set(t, key, isfinite(value) ? json_real(value) : json_null());
}

void clv_table_bytes(clv_table *t, const char *key, double bytes)
{
    if (bytes == (double)(int64_t)bytes)
        clv_table_int(t, key, (int64_t)bytes);
    else
        clv_table_real(t, key, bytes);
}

void clv_table_bool(clv_table *t, const char *key, bool value)
{
    set(t, key, json_boolean(value));
}

void clv_table_null(clv_table *t, const char *key)
{
    set(t, key, json_null());
}

/* ---- text ---- */

static void cell_of_list(char cell[CELL_SIZE], const json_t *list)
{
    size_t used = 0;

    cell[0] = '\0';
    for (size_t i = 0; i < json_array_size(list) && used < CELL_SIZE; i++)
        used += (size_t)snprintf(cell + used, CELL_SIZE - used, "%s%s", i > 0 ? "," : "",
                                 json_string_value(json_array_get(list, i)));
}

static void cell_text(char cell[CELL_SIZE], const json_t *value)
{
    if (json_is_array(value))
        cell_of_list(cell, value);
    else if (json_is_string(value))
        snprintf(cell, CELL_SIZE, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(cell, CELL_SIZE, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(cell, CELL_SIZE, "%.6g", json_real_value(value));
    else
        snprintf(cell, CELL_SIZE, "%s", json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
}

/* The keys of all rows in order of first use. */
static int collect_columns(const char *keys[MAX_COLUMNS], int width[MAX_COLUMNS], const json_t *rows)
{
    int n = 0;

    for (size_t r = 0; r < json_array_size(rows); r++) {
        json_t *row = json_array_get(rows, r), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            char cell[CELL_SIZE];
            int c = 0;
            while (c < n && strcmp(keys[c], key) != 0)
                c++;
            if (c == MAX_COLUMNS)
                continue;
            if (c == n) {
                keys[n] = key;
                width[n++] = (int)strlen(key);
            }
            cell_text(cell, value);
            if ((int)strlen(cell) > width[c])
                width[c] = (int)strlen(cell);
        }
    }
    return n;
}

/* Numbers stand to the right of their column, words to the left. */
static void print_cell(const char *text, int width, bool number, bool last)
{
    if (number)
        printf("%*s", width, text);
    else if (last)
        printf("%s", text);
    else
        printf("%-*s", width, text);
    printf(last ? "\n" : "  ");
}

static void print_rows(const json_t *rows)
{
    const char *keys[MAX_COLUMNS];
    int width[MAX_COLUMNS];
    int n = collect_columns(keys, width, rows);
    const json_t *first = json_array_get(rows, 0);

    for (int c = 0; c < n; c++)
        print_cell(keys[c], width[c], json_is_number(json_object_get(first, keys[c])), c == n - 1);
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (int c = 0; c < n; c++) {
            const json_t *value = json_object_get(json_array_get(rows, r), keys[c]);
            char cell[CELL_SIZE] = "";
            if (value != NULL)
                cell_text(cell, value);
            print_cell(cell, width[c], json_is_number(value), c == n - 1);
        }
}

/* An object's fields stand below its key, indented. */
static void print_fields(json_t *fields, const json_t *skip, int indent)
{
    const char *key;
    json_t *value;
    int width = 0;

    json_object_foreach(fields, key, value) if (value != skip && !json_is_object(value) && (int)strlen(key) > width)
        width = (int)strlen(key);
    json_object_foreach(fields, key, value)
    {
        char cell[CELL_SIZE];
        if (value == skip)
            continue;
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_fields(value, skip, indent + 2);
            continue;
        }
        cell_text(cell, value);
        printf("%*s%-*s  %s\n", indent, "", width, key, cell);
    }
}

void clv_table_free(clv_table *t)
{
    if (t == NULL)
        return;
    json_decref(t->root);
    free(t);
}

/* Quoted where it has what would end a field. */
static void print_csv_cell(const json_t *value)
{
    const char *text = json_string_value(value);

    if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.10g", json_real_value(value));
    else if (text != NULL && strpbrk(text, ",\"\r\n") == NULL)
        printf("%s", text);
    else if (text != NULL) {
        putchar('"');
        for (; *text != '\0'; text++)
            printf(*text == '"' ? "\"\"" : "%c", *text);
        putchar('"');
    }
}

static void print_csv(const json_t *rows)
{
    const char *keys[MAX_COLUMNS];
    int width[MAX_COLUMNS];
    int n = collect_columns(keys, width, rows);

    for (int c = 0; c < n; c++)
        printf("%s%s", c > 0 ? "," : "", keys[c]);
    printf("\n");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        for (int c = 0; c < n; c++) {
            printf(c > 0 ? "," : "");
            print_csv_cell(json_object_get(json_array_get(rows, r), keys[c]));
        }
        printf("\n");
    }
}

/* Whether there is something to print; what there is not is freed. */
static bool is_complete(clv_table *t)
{
    if (t != NULL && !t->failed)
        return true;
    fprintf(stderr, "cleave: a table could not be printed: out of memory, or a text that is not UTF-8\n");
    clv_table_free(t);
    return false;
}

int clv_table_finish_csv(clv_table *t)
{
    if (!is_complete(t))
        return CLV_EXIT_FAILED;
    if (t->rows != NULL)
        print_csv(t->rows);
    clv_table_free(t);
    return CLV_EXIT_OK;
}

int clv_table_finish(clv_table *t, bool json)
{
    if (!is_complete(t))
        return CLV_EXIT_FAILED;
    if (json) {
        json_dumpf(t->root, stdout, JSON_REAL_PRECISION(10));
        printf("\n");
    } else {
        if (t->rows != NULL)
            print_rows(t->rows);
        print_fields(t->root, t->rows, 0);
    }
    clv_table_free(t);
    return CLV_EXIT_OK;
}
