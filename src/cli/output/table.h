/* table.h - result table of a command: fields and rows filled once, printed as text, JSON or CSV; held as a JSON
 * document.
 *
 *   clv_table *t = clv_table_new("steps");            {"steps": [{"op": "slice", "bytes": 0}], "bytes": 0}
 *   clv_table_begin_row(t);
 *   clv_table_text(t, "op", "slice");
 *   clv_table_int(t, "bytes", 0);
 *   clv_table_begin_top_level(t);
 *   clv_table_int(t, "bytes", 0);
 *   return clv_table_finish(t, &format);
 *
 * A key given twice in one row keeps the last value. Out of memory is remembered and reported by clv_table_finish.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_table clv_table;

/* Text unless json or csv. */
typedef struct clv_table_format {
    bool json; /* one line */
    bool csv;  /* the rows of the first list alone (RFC 4180), after a line of keys */
    bool wide; /* text of any width: all columns, exact bytes, nothing cut */
} clv_table_format;

/* A table whose rows are listed under `rows`; NULL when it has fields alone. */
clv_table *clv_table_new(const char *rows);

/* The following values go to a new row, or (clv_table_begin_top_level, and at first) to the fields outside of the
 * rows. */
void clv_table_begin_row(clv_table *t);
void clv_table_begin_top_level(clv_table *t);
/* Adds the numbers of the newest row to an earlier row with the same texts, if there is one, and removes it. */
void clv_table_merge_row(clv_table *t);
/* The following rows go to a further list (four at most), under `key`, printed below the others. */
void clv_table_begin_list(clv_table *t, const char *key);
/* Text has this line above the newest list. */
void clv_table_set_list_title(clv_table *t, const char *title);
/* The following values go to the object under `key`: {"memory": {"parameters": 1024}}. */
void clv_table_begin_object(clv_table *t, const char *key);
/* The same; text prints this object first. */
void clv_table_begin_header(clv_table *t, const char *key);
/* A column that text omits when lines are too long. */
void clv_table_optional_column(clv_table *t, const char *key);
/* A last column whose sentences text continues on further lines, and does not cut. */
void clv_table_wrapped_column(clv_table *t, const char *key);

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

/* Prints the table on stdout, and frees it. Returns the exit code.
 *
 * Text fits the terminal's columns (terminal.h), in steps: bytes are rounded, optional columns are left out, the last
 * column, a sentence, is cut, a row takes several lines. Only words longer than a line are cut, in the middle; numbers
 * never are. */
int clv_table_finish(clv_table *t, const clv_table_format *format);
