/* table.c - a JSON document in the making, which can also be printed as aligned columns. */
#include "cli/table.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/text.h"
#include "cli/command.h"

enum { MAX_COLUMNS = 32, MAX_LISTS = 2, CELL_SIZE = 2048 };

/* How a number reads in text. */
typedef enum unit { PLAIN, BYTES, SECONDS, COUNT } unit;

struct clv_table {
    json_t *root;
    int n_lists;
    json_t *list[MAX_LISTS]; /* of rows, borrowed from root; new rows go to the last */
    json_t *target;          /* where values go: root, an object in it, or the newest row */
    json_t *units;           /* {scope: {key: unit}} of values that are no plain numbers */
    const char *scope;       /* of target: one of list_scope, TOP, or the object's key */
    bool failed;
};

#define TOP ""
static const char *const list_scope[MAX_LISTS] = {"[0]", "[1]"};

clv_table *clv_table_new(const char *rows)
{
    clv_table *t = calloc(1, sizeof *t);

    if (t == NULL)
        return NULL;
    t->root = json_object();
    t->target = t->root;
    t->units = json_object();
    t->scope = TOP;
    if (rows != NULL)
        clv_table_list(t, rows);
    return t;
}

void clv_table_list(clv_table *t, const char *key)
{
    if (t == NULL)
        return;
    json_t *list = json_array();
    if (t->n_lists == MAX_LISTS || json_object_set_new(t->root, key, list) != 0)
        t->failed = true;
    else
        t->list[t->n_lists++] = list;
}

void clv_table_row(clv_table *t)
{
    if (t == NULL)
        return;
    json_t *row = json_object();
    if (t->n_lists == 0 || json_array_append_new(t->list[t->n_lists - 1], row) != 0)
        t->failed = true;
    else
        t->target = row;
    t->scope = list_scope[t->n_lists > 0 ? t->n_lists - 1 : 0];
}

void clv_table_top(clv_table *t)
{
    if (t == NULL)
        return;
    t->target = t->root;
    t->scope = TOP;
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
    t->scope = key;
}

static void set(clv_table *t, const char *key, json_t *value)
{
    if (t == NULL)
        json_decref(value);
    else if (json_object_set_new(t->target, key, value) != 0)
        t->failed = true;
}

/* JSON has no bytes that are not UTF-8: a path or a prompt with such stands there as people see it. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    char *printable = value == NULL ? clv_printable_copy(text) : NULL;

    if (printable != NULL)
        value = json_string(printable);
    free(printable);
    return value;
}

void clv_table_text(clv_table *t, const char *key, const char *value)
{
    set(t, key, text_value(value));
}

void clv_table_texts(clv_table *t, const char *key, const char *const *values, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, text_value(values[i])) != 0 && t != NULL)
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

static void set_unit(clv_table *t, const char *key, unit u)
{
    if (t == NULL)
        return;
    json_t *scope = json_object_get(t->units, t->scope);
    if (scope == NULL) {
        scope = json_object();
        t->failed |= json_object_set_new(t->units, t->scope, scope) != 0;
    }
    t->failed |= json_object_set_new(scope, key, json_integer(u)) != 0;
}

static unit unit_of(const clv_table *t, const char *scope, const char *key)
{
    return (unit)json_integer_value(json_object_get(json_object_get(t->units, scope), key));
}

void clv_table_bytes(clv_table *t, const char *key, double bytes)
{
    set_unit(t, key, BYTES);
    if (bytes == (double)(int64_t)bytes)
        clv_table_int(t, key, (int64_t)bytes);
    else
        clv_table_real(t, key, bytes);
}

void clv_table_seconds(clv_table *t, const char *key, double seconds)
{
    set_unit(t, key, SECONDS);
    clv_table_real(t, key, seconds);
}

void clv_table_count(clv_table *t, const char *key, double count)
{
    set_unit(t, key, COUNT);
    clv_table_real(t, key, count);
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

/* "x,y"; texts that hold commas or blanks themselves are set apart by "; ". */
static void cell_of_list(char cell[CELL_SIZE], const json_t *list)
{
    const char *between = ",";
    size_t used = 0;

    cell[0] = '\0';
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strpbrk(json_string_value(json_array_get(list, i)), ", ") != NULL)
            between = "; ";
    for (size_t i = 0; i < json_array_size(list) && used < CELL_SIZE; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        used += (size_t)snprintf(cell + used, CELL_SIZE - used, "%s", i > 0 ? between : "");
        if (used < CELL_SIZE)
            used += clv_printable(cell + used, CELL_SIZE - used, text, strlen(text));
    }
}

/* Room for the two halves of bytes, "16.3 MiB" and "(17039616)", so that both stand below one another. */
typedef struct halves {
    int human, exact;
} halves;

static void measure_bytes(halves *room, const json_t *value)
{
    char text[CLV_QUANTITY_TEXT];
    double bytes = json_number_value(value);
    int human = clv_print_bytes(text, sizeof text, bytes);
    int exact = clv_print_bytes_exactly(text, sizeof text, bytes) - human;

    room->human = human > room->human ? human : room->human;
    room->exact = exact > room->exact ? exact : room->exact;
}

static void cell_of_bytes(char cell[CELL_SIZE], const json_t *value, halves room)
{
    char human[CLV_QUANTITY_TEXT], both[CLV_QUANTITY_TEXT];
    int n = clv_print_bytes(human, sizeof human, json_number_value(value));

    clv_print_bytes_exactly(both, sizeof both, json_number_value(value));
    snprintf(cell, CELL_SIZE, "%*s%*s", room.human, human, room.exact, both + n);
}

/* Large numbers have all their digits: no exponent. */
static void cell_of_real(char cell[CELL_SIZE], double value)
{
    bool large = fabs(value) >= 1e6 && fabs(value) < 1e15;

    snprintf(cell, CELL_SIZE, large ? "%.0f" : "%.6g", value);
}

static void cell_text(char cell[CELL_SIZE], const json_t *value, unit u, halves room)
{
    if (json_is_array(value))
        cell_of_list(cell, value);
    else if (json_is_string(value))
        clv_printable(cell, CELL_SIZE, json_string_value(value), json_string_length(value));
    else if (json_is_number(value) && u == BYTES)
        cell_of_bytes(cell, value, room);
    else if (json_is_number(value) && u == SECONDS)
        clv_print_seconds(cell, CELL_SIZE, json_number_value(value));
    else if (json_is_number(value) && u == COUNT)
        clv_print_count(cell, CELL_SIZE, json_number_value(value));
    else if (json_is_integer(value))
        snprintf(cell, CELL_SIZE, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        cell_of_real(cell, json_real_value(value));
    else
        snprintf(cell, CELL_SIZE, "%s", json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
}

typedef struct column {
    const char *key;
    unit unit;
    halves room;
    int width;
} column;

/* The keys of all rows in order of first use. */
static int collect_columns(column columns[MAX_COLUMNS], const clv_table *t, int list)
{
    int n = 0;

    for (size_t r = 0; r < json_array_size(t->list[list]); r++) {
        json_t *row = json_array_get(t->list[list], r), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            int c = 0;
            while (c < n && strcmp(columns[c].key, key) != 0)
                c++;
            if (c == MAX_COLUMNS)
                continue;
            if (c == n)
                columns[n++] = (column){key, unit_of(t, list_scope[list], key), {0, 0}, (int)strlen(key)};
            if (columns[c].unit == BYTES)
                measure_bytes(&columns[c].room, value);
        }
    }
    return n;
}

static void measure_columns(column *columns, int n, const json_t *rows)
{
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (int c = 0; c < n; c++) {
            const json_t *value = json_object_get(json_array_get(rows, r), columns[c].key);
            char cell[CELL_SIZE];
            if (value == NULL)
                continue;
            cell_text(cell, value, columns[c].unit, columns[c].room);
            if ((int)strlen(cell) > columns[c].width)
                columns[c].width = (int)strlen(cell);
        }
}

/* Bytes below 1 KiB leave the room for exact ones blank. */
static int length_without_spaces(const char *text)
{
    size_t n = strlen(text);

    while (n > 0 && text[n - 1] == ' ')
        n--;
    return (int)n;
}

/* Numbers stand to the right of their column, words to the left. */
static void print_cell(const char *text, int width, bool number, bool last)
{
    if (number && last)
        printf("%*s%.*s", width - (int)strlen(text), "", length_without_spaces(text), text);
    else if (number)
        printf("%*s", width, text);
    else if (last)
        printf("%s", text);
    else
        printf("%-*s", width, text);
    printf(last ? "\n" : "  ");
}

static void print_rows(const clv_table *t, int list)
{
    column columns[MAX_COLUMNS];
    int n = collect_columns(columns, t, list);
    const json_t *rows = t->list[list], *first = json_array_get(rows, 0);

    if (list > 0)
        printf("\n");
    measure_columns(columns, n, rows);
    for (int c = 0; c < n; c++)
        print_cell(columns[c].key, columns[c].width, json_is_number(json_object_get(first, columns[c].key)),
                   c == n - 1);
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (int c = 0; c < n; c++) {
            const json_t *value = json_object_get(json_array_get(rows, r), columns[c].key);
            char cell[CELL_SIZE] = "";
            if (value != NULL)
                cell_text(cell, value, columns[c].unit, columns[c].room);
            print_cell(cell, columns[c].width, json_is_number(value), c == n - 1);
        }
}

static bool is_list(const clv_table *t, const json_t *value)
{
    for (int i = 0; i < t->n_lists; i++)
        if (t->list[i] == value)
            return true;
    return false;
}

/* An object's fields stand below its key, indented. */
static void print_fields(const clv_table *t, json_t *fields, const char *scope, int indent)
{
    const char *key;
    json_t *value;
    int width = 0;
    halves room = {0, 0};

    json_object_foreach(fields, key, value)
    {
        if (is_list(t, value) || json_is_object(value))
            continue;
        if ((int)strlen(key) > width)
            width = (int)strlen(key);
        if (unit_of(t, scope, key) == BYTES)
            measure_bytes(&room, value);
    }
    json_object_foreach(fields, key, value)
    {
        char cell[CELL_SIZE];
        if (is_list(t, value))
            continue;
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_fields(t, value, key, indent + 2);
            continue;
        }
        cell_text(cell, value, unit_of(t, scope, key), room);
        printf("%*s%-*s  %.*s\n", indent, "", width, key, length_without_spaces(cell), cell);
    }
}

void clv_table_free(clv_table *t)
{
    if (t == NULL)
        return;
    json_decref(t->root);
    json_decref(t->units);
    free(t);
}

/* Quoted where it has what would end a field. */
static void print_csv_text(const char *text)
{
    char *printable = clv_printable_copy(text);
    bool quoted = strpbrk(text, ",\"") != NULL;

    printf(quoted ? "\"" : "");
    for (const char *at = printable; at != NULL && *at != '\0'; at++)
        printf(*at == '"' ? "\"\"" : "%c", *at);
    printf(quoted ? "\"" : "");
    free(printable);
}

static void print_csv_cell(const json_t *value)
{
    if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.10g", json_real_value(value));
    else if (json_is_string(value))
        print_csv_text(json_string_value(value));
}

static void print_csv(const clv_table *t)
{
    column columns[MAX_COLUMNS];
    int n = collect_columns(columns, t, 0);

    if (n == 0) /* no row has said what they are */
        return;
    for (int c = 0; c < n; c++)
        printf("%s%s", c > 0 ? "," : "", columns[c].key);
    printf("\n");
    for (size_t r = 0; r < json_array_size(t->list[0]); r++) {
        for (int c = 0; c < n; c++) {
            printf(c > 0 ? "," : "");
            print_csv_cell(json_object_get(json_array_get(t->list[0], r), columns[c].key));
        }
        printf("\n");
    }
}

/* Whether there is something to print; what there is not is freed. */
static bool is_complete(clv_table *t)
{
    if (t != NULL && !t->failed)
        return true;
    fprintf(stderr, "cleave: a table could not be printed: out of memory\n");
    clv_table_free(t);
    return false;
}

int clv_table_finish_csv(clv_table *t)
{
    if (!is_complete(t))
        return CLV_EXIT_FAILED;
    if (t->n_lists > 0)
        print_csv(t);
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
        for (int i = 0; i < t->n_lists; i++)
            print_rows(t, i);
        print_fields(t, t->root, TOP, 0);
    }
    clv_table_free(t);
    return CLV_EXIT_OK;
}
