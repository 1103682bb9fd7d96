/* table_text.c - text layout of a result table: aligned columns fitted to the terminal width, then fields. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/text.h"
#include "cli/output/table_internal.h"
#include "cli/output/terminal.h"
#include "cli/output/word_wrap.h"

enum {
    CELL_SIZE = 8192,
    GAP = 2,       /* blanks between columns, and at the beginning of further lines of a row */
    SENTENCE = 40, /* the least width of a sentence that is cut */
};

/* ---- cells ---- */

/* "x,y"; texts that hold commas or blanks themselves are set apart by "; ". */
static void cell_of_list(char cell[CELL_SIZE], const json_t *list)
{
    const char *between = ",";
    size_t used = 0;

    snprintf(cell, CELL_SIZE, "%s", json_array_size(list) == 0 ? "none" : "");
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

/* Widths of the two parts of bytes, "16.3 MiB" and "(17039616)", each aligned in a column of its own. */
typedef struct halves {
    int human, exact; /* exact 0: omitted */
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

static void cell_of_bytes(char cell[CELL_SIZE], double bytes, halves room)
{
    char human[CLV_QUANTITY_TEXT], both[CLV_QUANTITY_TEXT];
    int n = clv_print_bytes(human, sizeof human, bytes);

    clv_print_bytes_exactly(both, sizeof both, bytes);
    snprintf(cell, CELL_SIZE, "%*s%*s", room.human, human, room.exact, room.exact > 0 ? both + n : "");
}

/* Large numbers have all their digits: no exponent. */
static void cell_of_real(char cell[CELL_SIZE], double value)
{
    bool large = fabs(value) >= 1e6 && fabs(value) < 1e15;

    snprintf(cell, CELL_SIZE, large ? "%.0f" : "%.6g", value);
}

/* "100 %", "12.5 %", "3.25 %", "0.01 %"; less, but more than nothing, is "<0.01 %". */
static void cell_of_share(char cell[CELL_SIZE], double share)
{
    double percent = 100 * share;

    if (percent > 0 && percent < 0.005)
        snprintf(cell, CELL_SIZE, "<0.01 %%");
    else
        snprintf(cell, CELL_SIZE,
                 percent == 0 || percent >= 99.95 ? "%.0f %%"
                 : percent < 9.995                ? "%.2f %%"
                                                  : "%.1f %%",
                 percent);
}

static void cell_of_number(char cell[CELL_SIZE], const json_t *value, clv_table_unit u, halves room)
{
    double number = json_number_value(value);

    if (u == CLV_UNIT_BYTES)
        cell_of_bytes(cell, number, room);
    else if (u == CLV_UNIT_SECONDS)
        clv_print_seconds(cell, CELL_SIZE, number);
    else if (u == CLV_UNIT_COUNT)
        clv_print_count(cell, CELL_SIZE, number);
    else if (u == CLV_UNIT_FRACTION)
        cell_of_share(cell, number);
    else if (json_is_integer(value))
        snprintf(cell, CELL_SIZE, "%lld", (long long)json_integer_value(value));
    else
        cell_of_real(cell, number);
}

/* value NULL, or nothing: "-". */
static void cell_text(char cell[CELL_SIZE], const json_t *value, clv_table_unit u, halves room)
{
    if (json_is_number(value))
        cell_of_number(cell, value, u, room);
    else if (json_is_array(value))
        cell_of_list(cell, value);
    else if (json_is_string(value) && json_string_length(value) > 0)
        clv_printable(cell, CELL_SIZE, json_string_value(value), json_string_length(value));
    else
        snprintf(cell, CELL_SIZE, "%s", json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
}

/* For bytes below 1 KiB the exact part is blank. */
static int length_without_spaces(const char *text)
{
    size_t n = strlen(text);

    while (n > 0 && text[n - 1] == ' ')
        n--;
    return (int)n;
}

/* ---- columns ---- */

typedef struct column {
    const char *key;
    clv_table_unit unit;
    halves room;
    bool number; /* some row has a number: the key is right-aligned, too */
    bool breaks; /* begins a further line of the row */
    bool wraps;  /* continues on further lines */
    int width;
} column;

typedef struct grid {
    const json_t *rows;
    int n, width; /* of lines */
    column column[CLV_TABLE_COLUMNS];
} grid;

static void measure(grid *g, column *c)
{
    char cell[CELL_SIZE];

    c->width = clv_text_width(c->key);
    for (size_t r = 0; r < json_array_size(g->rows); r++) {
        cell_text(cell, json_object_get(json_array_get(g->rows, r), c->key), c->unit, c->room);
        int width = clv_text_width(cell);
        c->width = width > c->width ? width : c->width;
    }
}

static void collect(grid *g, const clv_table *t, int list)
{
    const char *keys[CLV_TABLE_COLUMNS];

    *g = (grid){.rows = t->list[list], .n = clv_table_keys(keys, t, list)};
    for (int i = 0; i < g->n; i++) {
        column *c = &g->column[i];
        *c = (column){.key = keys[i], .unit = clv_table_unit_of(t, clv_table_list_scope[list], keys[i])};
        for (size_t r = 0; r < json_array_size(g->rows); r++) {
            const json_t *value = json_object_get(json_array_get(g->rows, r), c->key);
            c->number |= json_is_number(value);
            if (json_is_number(value) && c->unit == CLV_UNIT_BYTES)
                measure_bytes(&c->room, value);
        }
        measure(g, c);
    }
}

/* ---- within a width ---- */

static int width_of(const grid *g, int n)
{
    int width = n > 0 ? (n - 1) * GAP : 0;

    for (int c = 0; c < n; c++)
        width += g->column[c].width;
    return width;
}

static bool fits(const grid *g, int width)
{
    return width_of(g, g->n) <= width;
}

static void round_bytes(grid *g)
{
    for (int c = 0; c < g->n; c++)
        if (g->column[c].unit == CLV_UNIT_BYTES) {
            g->column[c].room.exact = 0;
            measure(g, &g->column[c]);
        }
}

static void leave_out(grid *g, const clv_table *t)
{
    for (int m = 0; m < t->n_minor; m++)
        for (int c = 0; c < g->n; c++)
            if (strcmp(g->column[c].key, t->minor[m]) == 0) {
                memmove(&g->column[c], &g->column[c + 1], (size_t)(g->n - 1 - c) * sizeof *g->column);
                g->n--;
            }
}

/* Columns one after the other, each on the line before where it has room there; a sentence may be cut. */
static void break_lines(grid *g, int width)
{
    int used = 0;

    for (int i = 0; i < g->n; i++) {
        column *c = &g->column[i];
        bool sentence = i == g->n - 1 && !c->number;
        int least = sentence && c->width > SENTENCE ? SENTENCE : c->width;
        c->breaks = i > 0 && used + GAP + least > width;
        used = i == 0 ? 0 : c->breaks ? GAP : used + GAP;
        if (c->width > width - used && !c->number)
            c->width = width > used ? width - used : 1;
        used += c->width;
    }
}

static void fit(grid *g, const clv_table *t, int width)
{
    g->width = width;
    if (!fits(g, width))
        round_bytes(g);
    if (!fits(g, width))
        leave_out(g, t);
    if (fits(g, width))
        return;
    break_lines(g, width);
    column *last = &g->column[g->n - 1];
    last->wraps = t->sentence != NULL && strcmp(last->key, t->sentence) == 0;
}

/* ---- rows ---- */

/* Numbers are right-aligned in their column, words left-aligned. */
static void print_cell(const grid *g, int i, char cell[CELL_SIZE], bool number)
{
    const column *c = &g->column[i];
    bool ends = i == g->n - 1 || g->column[i + 1].breaks;
    int gap = ends || !g->column[i + 1].wraps ? GAP : GAP - 1; /* a blank is before each word */
    if (c->wraps) {
        int start = c->breaks || i == 0 ? GAP : g->width - c->width;
        int at = i > 0 && !c->breaks ? start - 1 : printf(" ");
        clv_print_wrapped(stdout, cell, strlen(cell), at, start, g->width);
        return;
    }
    if (!number)
        (i == g->n - 1 ? clv_text_truncate : clv_text_truncate_middle)(cell, CELL_SIZE, c->width);
    int blanks = c->width - clv_text_width(cell);

    printf("%*s%*s", c->breaks ? GAP : 0, "", number ? blanks : 0, "");
    if (ends)
        printf("%.*s\n", length_without_spaces(cell), cell);
    else
        printf("%s%*s", cell, gap + (number ? 0 : blanks), "");
}

static void print_rows(const clv_table *t, int list, int width)
{
    grid g;
    char cell[CELL_SIZE];

    collect(&g, t, list);
    if (width > 0)
        fit(&g, t, width);
    for (int c = 0; c < g.n; c++) {
        snprintf(cell, sizeof cell, "%s", g.column[c].key);
        print_cell(&g, c, cell, g.column[c].number);
    }
    for (size_t r = 0; r < json_array_size(g.rows); r++)
        for (int c = 0; c < g.n; c++) {
            const json_t *value = json_object_get(json_array_get(g.rows, r), g.column[c].key);
            cell_text(cell, value, g.column[c].unit, g.column[c].room);
            print_cell(&g, c, cell, g.column[c].number && !json_is_string(value));
        }
}

/* ---- fields ---- */

static bool is_list(const clv_table *t, const json_t *value)
{
    for (int i = 0; i < t->n_lists; i++)
        if (t->list[i] == value)
            return true;
    return false;
}

/* Prints a key and its value from column `behind` on; a long value continues on further lines. */
static void print_field(const char *key, const char *text, int indent, int behind, int width)
{
    int n = length_without_spaces(text);
    int at = printf("%*s%-*s ", indent, "", behind - indent - GAP, key);

    if (width > 0 && behind + clv_text_width(text) > width)
        clv_print_wrapped(stdout, text, (size_t)n, at, behind, width);
    else
        printf(" %.*s\n", n, text);
}

/* An object's fields are printed below its key, indented. */
static void print_fields(const clv_table *t, json_t *fields, const char *scope, int indent, int width)
{
    const char *key;
    json_t *value;
    int longest = 0;
    halves room = {0, 0};
    char cell[CELL_SIZE];

    json_object_foreach(fields, key, value)
    {
        if (is_list(t, value) || json_is_object(value))
            continue;
        longest = (int)strlen(key) > longest ? (int)strlen(key) : longest;
        if (clv_table_unit_of(t, scope, key) == CLV_UNIT_BYTES)
            measure_bytes(&room, value);
    }
    json_object_foreach(fields, key, value)
    {
        if (is_list(t, value) || (t->head != NULL && strcmp(key, t->head) == 0))
            continue;
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_fields(t, value, key, indent + GAP, width);
            continue;
        }
        cell_text(cell, value, clv_table_unit_of(t, scope, key), room);
        print_field(key, cell, indent, indent + longest + GAP, width);
    }
}

/* Prints "step training, layers 32, batch 8", broken after values; unknown values are omitted. */
static void print_head(const clv_table *t, json_t *fields, int width)
{
    const char *key;
    json_t *value;
    char cell[CELL_SIZE];
    int at = 0;

    json_object_foreach(fields, key, value)
    {
        if (json_is_null(value))
            continue;
        cell_text(cell, value, clv_table_unit_of(t, t->head, key), (halves){0, 0});
        int columns = (int)strlen(key) + 1 + clv_text_width(cell) + 1; /* a comma may follow */
        bool below = width > 0 && at + 1 + columns > width;
        printf("%s%s %s", at == 0 ? "" : below ? ",\n" : ", ", key, cell);
        at = (at == 0 || below ? 0 : at + 1) + columns;
    }
    printf("\n\n");
}

void clv_table_print_text(const clv_table *t, int width)
{
    if (t->head != NULL)
        print_head(t, json_object_get(t->root, t->head), width);
    for (int i = 0; i < t->n_lists; i++) {
        printf(i > 0 ? "\n" : "");
        if (t->title[i]) {
            size_t word = strcspn(t->title[i], " "), n = strlen(t->title[i]);
            int at = printf("%.*s", (int)word, t->title[i]);
            clv_print_wrapped(stdout, t->title[i] + word, n - word, at, GAP, width > 0 ? width : INT_MAX);
        }
        print_rows(t, i, width);
    }
    print_fields(t, t->root, CLV_TABLE_ROOT, 0, width);
}
