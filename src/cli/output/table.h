/* table.h - result table of a command: fields and rows filled once, printed as text, JSON or CSV; held as a JSON
 * document.
 *
 *   clv_table *t = clv_table_new("steps");            {"steps": [{"op": "slice", "bytes": 0}], "bytes": 0}
 *   clv_table_row(t);
 *   clv_table_text(t, "op", "slice");
 *   clv_table_int(t, "bytes", 0);
 *   clv_table_root(t);
 *   clv_table_int(t, "bytes", 0);
 *   return clv_table_finish(t, &form);
 *
 * A key given twice in one row keeps the last value. Out of memory is remembered and reported by clv_table_finish.
 */
#ifndef CLEAVE_CLI_OUTPUT_TABLE_H
#define CLEAVE_CLI_OUTPUT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_table clv_table;

/* How a table is printed: as --json and --wide say. */
typedef struct clv_table_format {
    bool json;
    bool wide; /* text is as wide as it is: all columns, exact bytes, nothing cut */
} clv_table_format;

/* A table whose rows are listed under `rows`; NULL when it has fields alone. */
clv_table *clv_table_new(const char *rows);

/* Values go to a new row from here on, or again to the fields beside the rows (where they go at first). */
void clv_table_row(clv_table *t);
void clv_table_root(clv_table *t);
/* New rows go to another list, under `key` beside the first; printed below it. Two lists at most. */
void clv_table_list(clv_table *t, const char *key);
/* Or to the object under `key` beside the rows: {"memory": {"parameters": 1024}}. */
void clv_table_object(clv_table *t, const char *key);
/* The same, of an object that text shows above all: what the table is of. */
void clv_table_header(clv_table *t, const char *key);
/* A column that is left out of text where its lines would be too long. */
void clv_table_optional_column(clv_table *t, const char *key);

void clv_table_text(clv_table *t, const char *key, const char *value);
void clv_table_text_list(clv_table *t, const char *key, const char *const *values, int n);
void clv_table_int(clv_table *t, const char *key, int64_t value);
/* Amounts: exact in JSON and CSV, in text as people read them: bytes as "16.3 MiB (17039616)", seconds as "8.07 us",
 * counts (of flops) as "633 M". Bytes are whole numbers, but for those of an all_reduce over an uneven shape. */
void clv_table_bytes(clv_table *t, const char *key, double bytes);
void clv_table_seconds(clv_table *t, const char *key, double seconds);
void clv_table_count(clv_table *t, const char *key, double count);
/* A part of a whole, 0.125: in text "12.5 %". */
void clv_table_fraction(clv_table *t, const char *key, double share);
/* Not-a-number and infinities have no JSON form: they become null. */
void clv_table_real(clv_table *t, const char *key, double value);
void clv_table_bool(clv_table *t, const char *key, bool value);
void clv_table_null(clv_table *t, const char *key);

/* Frees a table that is not to be printed. */
void clv_table_free(clv_table *t);

/* Prints the table on stdout, as JSON (one line) or as aligned text, and frees it. Returns the exit code.
 *
 * Text keeps within the terminal's columns (terminal.h), step by step as far as it must: bytes are not exact, minor
 * columns are left out, the last column, a sentence, is cut; then a row takes several lines, of which all but the
 * first are indented. Only words longer than a line are cut, in the middle; numbers never are. */
int clv_table_finish(clv_table *t, const clv_table_format *form);
/* The rows of the first list alone, as CSV (RFC 4180) with a line of keys before them. */
int clv_table_finish_csv(clv_table *t);

#endif
