/* table.c - result table of a command: fields and rows filled once, printed as text, JSON or CSV; held as a JSON
 * document.
 */
#include "cli/output/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/text.h"
#include "cli/output/table_internal.h"

const char *const clv_table_list_scope[CLV_TABLE_LISTS] = {"[0]", "[1]", "[2]", "[3]"};

clv_table *clv_table_new(const char *rows)
{
    clv_table *t = calloc(1, sizeof *t);

    if (t == NULL)
        return NULL;
    t->root = json_object();
    t->target = t->root;
    t->units = json_object();
    t->scope = CLV_TABLE_ROOT;
    if (rows != NULL)
        clv_table_begin_list(t, rows);
    return t;
}

void clv_table_begin_list(clv_table *t, const char *key)
{
    if (t == NULL)
        return;
    json_t *list = json_array();
    if (t->n_lists == CLV_TABLE_LISTS || json_object_set_new(t->root, key, list) != 0)
        t->failed = true;
    else
        t->list[t->n_lists++] = list;
}

void clv_table_set_list_title(clv_table *t, const char *title)
{
    if (t != NULL && t->n_lists > 0)
        t->title[t->n_lists - 1] = title;
}

void clv_table_begin_row(clv_table *t)
{
    if (t == NULL)
        return;
    json_t *row = json_object();
    if (t->n_lists == 0 || json_array_append_new(t->list[t->n_lists - 1], row) != 0)
        t->failed = true;
    else
        t->target = row;
    t->scope = clv_table_list_scope[t->n_lists > 0 ? t->n_lists - 1 : 0];
}

static bool has_same_texts(json_t *a, json_t *b)
{
    for (void *at = json_object_iter(a); at; at = json_object_iter_next(a, at)) {
        json_t *value = json_object_iter_value(at);
        if (json_is_string(value) && !json_equal(value, json_object_get(b, json_object_iter_key(at))))
            return false;
    }
    return true;
}

/* An integer when it is whole and one of the two is an integer. */
static json_t *sum_of(const json_t *a, const json_t *b)
{
    double sum = json_number_value(a) + json_number_value(b);
    bool is_integer = (json_is_integer(a) || json_is_integer(b)) && sum == (double)(int64_t)sum;
    return is_integer ? json_integer((int64_t)sum) : json_real(sum);
}

void clv_table_merge_row(clv_table *t)
{
    size_t i = 0, last = t && t->n_lists > 0 ? json_array_size(t->list[t->n_lists - 1]) - 1 : 0;
    while (i < last && !has_same_texts(json_array_get(t->list[t->n_lists - 1], i), t->target))
        i++;
    if (i == last)
        return;
    json_t *rows = t->list[t->n_lists - 1], *into = json_array_get(rows, i);
    for (void *at = json_object_iter(t->target); at; at = json_object_iter_next(t->target, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        if (json_is_number(value))
            t->failed |= json_object_set_new(into, key, sum_of(json_object_get(into, key), value)) != 0;
    }
    json_array_remove(rows, last);
    t->target = into;
}

void clv_table_begin_top_level(clv_table *t)
{
    if (t == NULL)
        return;
    t->target = t->root;
    t->scope = CLV_TABLE_ROOT;
}

void clv_table_begin_object(clv_table *t, const char *key)
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

void clv_table_begin_header(clv_table *t, const char *key)
{
    clv_table_begin_object(t, key);
    if (t != NULL)
        t->head = key;
}

void clv_table_optional_column(clv_table *t, const char *key)
{
    if (t != NULL && t->n_minor < CLV_TABLE_COLUMNS)
        t->minor[t->n_minor++] = key;
}

void clv_table_wrapped_column(clv_table *t, const char *key)
{
    if (t != NULL)
        t->sentence = key;
}

static void set(clv_table *t, const char *key, json_t *value)
{
    if (t == NULL)
        json_decref(value);
    else if (json_object_set_new(t->target, key, value) != 0)
        t->failed = true;
}

/* JSON is UTF-8: other bytes of a path or a prompt are replaced as they are on a terminal. */
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

void clv_table_text_list(clv_table *t, const char *key, const char *const *values, int n)
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

static void set_unit(clv_table *t, const char *key, clv_table_unit u)
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

clv_table_unit clv_table_unit_of(const clv_table *t, const char *scope, const char *key)
{
    return (clv_table_unit)json_integer_value(json_object_get(json_object_get(t->units, scope), key));
}

void clv_table_bytes(clv_table *t, const char *key, double bytes)
{
    set_unit(t, key, CLV_UNIT_BYTES);
    if (bytes == (double)(int64_t)bytes)
        clv_table_int(t, key, (int64_t)bytes);
    else
        clv_table_real(t, key, bytes);
}

void clv_table_seconds(clv_table *t, const char *key, double seconds)
{
    set_unit(t, key, CLV_UNIT_SECONDS);
    clv_table_real(t, key, seconds);
}

void clv_table_count(clv_table *t, const char *key, double count)
{
    set_unit(t, key, CLV_UNIT_COUNT);
    clv_table_real(t, key, count);
}

void clv_table_fraction(clv_table *t, const char *key, double share)
{
    set_unit(t, key, CLV_UNIT_FRACTION);
    clv_table_real(t, key, share);
}

void clv_table_bool(clv_table *t, const char *key, bool value)
{
    set(t, key, json_boolean(value));
}

void clv_table_null(clv_table *t, const char *key)
{
    set(t, key, json_null());
}

int clv_table_keys(const char *keys[CLV_TABLE_COLUMNS], const clv_table *t, int list)
{
    int n = 0;

    for (size_t r = 0; r < json_array_size(t->list[list]); r++) {
        json_t *row = json_array_get(t->list[list], r), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            int c = 0;
            while (c < n && strcmp(keys[c], key) != 0)
                c++;
            if (c == n && n < CLV_TABLE_COLUMNS)
                keys[n++] = key;
        }
    }
    return n;
}

void clv_table_free(clv_table *t)
{
    if (t == NULL)
        return;
    json_decref(t->root);
    json_decref(t->units);
    free(t);
}
